"""See `runtime.serve.request_router`."""

from runtime.serve.request_router import RunningReplica

__all__ = ["RunningReplica"]
