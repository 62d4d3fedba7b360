"""Sessions for the tests of the libraries' door."""

from __future__ import annotations

from tests.runtime.api.conftest import fresh, session

__all__ = ["fresh", "session"]
