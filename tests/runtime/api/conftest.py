"""Sessions for the tests of the public API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.under_test import init, ray


@pytest.fixture(scope="module")
def session(no_leaks: None) -> Iterator[None]:
    """One local session with 4 CPUs for all tests of a module; each must leave the CPUs free."""
    init(num_cpus=4)
    yield
    ray.shutdown()


@pytest.fixture
def fresh() -> Iterator[None]:
    """For tests that call `init` themselves: whatever they started is shut down afterwards."""
    ray.shutdown()
    yield
    ray.shutdown()
