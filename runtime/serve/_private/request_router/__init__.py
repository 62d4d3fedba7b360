"""See `runtime.serve.request_router`."""

from runtime.serve.request_router import (
    PendingRequest,
    PowerOfTwoChoicesRequestRouter,
    RequestRouter,
    RunningReplica,
)

__all__ = ["PendingRequest", "PowerOfTwoChoicesRequestRouter", "RequestRouter", "RunningReplica"]
