"""Sessions for the tests of reinforcement learning: the same as for the public API. And what is logged can be seen."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.runtime.api.conftest import fresh, session

__all__ = ["fresh", "session"]


@pytest.fixture(autouse=True)
def logged() -> Iterator[None]:
    """`init` of an earlier test keeps the engine's logger to itself, perhaps for errors only; `caplog` sees it here."""
    logger = logging.getLogger("runtime")
    before = logger.propagate, logger.level
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
    yield
    logger.propagate = before[0]
    logger.setLevel(before[1])
