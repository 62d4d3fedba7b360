"""See `runtime.serve.request_router`."""

from runtime.serve.request_router import PowerOfTwoChoicesRequestRouter

__all__ = ["PowerOfTwoChoicesRequestRouter"]
