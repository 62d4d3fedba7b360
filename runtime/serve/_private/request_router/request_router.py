"""See `runtime.serve.request_router`."""

from runtime.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    LocalityScope,
    MultiplexMixin,
    RequestRouter,
)

__all__ = ["FIFOMixin", "LocalityMixin", "LocalityScope", "MultiplexMixin", "RequestRouter"]
