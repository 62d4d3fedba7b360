"""User code that computes lets replies through often enough."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import runtime as ray
from runtime._system.interpreter import IS_PLAIN, SWITCH_S


@pytest.fixture
def pythons_own() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


@pytest.mark.skipif(IS_PLAIN, reason="RUNTIME_PLAIN_INTERPRETER=1 leaves the interval as it is")
def test_threads_take_turns_more_often_while_connected(pythons_own: float) -> None:
    ray.init(num_cpus=1)
    try:
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)

        @ray.remote
        def of_a_worker() -> float:
            return sys.getswitchinterval()

        assert ray.get(of_a_worker.remote()) == pytest.approx(SWITCH_S)
    finally:
        ray.shutdown()
    assert sys.getswitchinterval() == pythons_own


@pytest.mark.parametrize("own", [0.0001, 0.02])
def test_what_the_program_wants_counts(pythons_own: float, own: float) -> None:
    """What it has set before, if that is less, and what it sets afterwards in any case."""
    assert pythons_own
    sys.setswitchinterval(min(own, 0.0001))
    ray.init(num_cpus=1)
    try:
        assert sys.getswitchinterval() == pytest.approx(0.0001)
        sys.setswitchinterval(own)
    finally:
        ray.shutdown()
    assert sys.getswitchinterval() == pytest.approx(own)
