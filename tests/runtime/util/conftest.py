"""Sessions for the tests of the tools: the same as for the rest of the public API."""

from tests.runtime.api.conftest import fresh, session

__all__ = ["fresh", "session"]
