"""A session for applications."""

from __future__ import annotations

from tests.runtime.api.conftest import session

__all__ = ["session"]
