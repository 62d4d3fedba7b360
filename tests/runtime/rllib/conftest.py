"""Sessions for the tests of reinforcement learning: the same as for the public API."""

from tests.runtime.api.conftest import fresh, session

__all__ = ["fresh", "session"]
