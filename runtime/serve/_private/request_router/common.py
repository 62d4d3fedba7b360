"""See `runtime.serve.request_router`."""

from runtime.serve.request_router import PendingRequest, RequestRoutingContext

__all__ = ["PendingRequest", "RequestRoutingContext"]
