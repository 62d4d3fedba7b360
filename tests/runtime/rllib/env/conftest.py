"""Sessions for the tests of environment runners: the same as for the public API."""

from tests.runtime.api.conftest import session

__all__ = ["session"]
