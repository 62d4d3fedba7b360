"""Sessions for the tests of experimental tools: the same as for the rest of the public API."""

from tests.runtime.api.conftest import fresh, session

__all__ = ["fresh", "session"]
