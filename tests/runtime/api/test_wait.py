"""wait: what is ready, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gate import Gate
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def identity(value: Any) -> Any:
    return value


@ray.remote(num_cpus=0.01)
def after(gate: Any, value: Any = None) -> Any:
    ray.get(gate.pass_through.remote())
    return value


@ray.remote
def fail() -> None:
    raise ValueError("waited for")


def test_waits_for_one_by_default() -> None:
    refs = [ray.put(i) for i in range(3)]
    ready, rest = ray.wait(refs)
    assert len(ready) == 1
    assert len(rest) == 2
    assert set(ready) | set(rest) == set(refs)


def test_the_order_of_the_input_is_kept() -> None:
    refs = [ray.put(i) for i in range(10)]
    ready, rest = ray.wait(refs, num_returns=10)
    assert ready == refs
    assert rest == []


def test_never_more_than_asked_for() -> None:
    refs = [ray.put(i) for i in range(10)]
    ready, rest = ray.wait(refs, num_returns=4)
    assert len(ready) == 4
    assert rest == [ref for ref in refs if ref not in ready]


def test_the_ready_one_is_found() -> None:
    gate = Gate.remote()
    blocked = after.remote(gate)
    quick = identity.remote(1)
    assert ray.wait([blocked, quick]) == ([quick], [blocked])
    ray.get(gate.open.remote())
    assert ray.wait([blocked], timeout=60) == ([blocked], [])


def test_a_timeout_gives_what_there_is() -> None:
    gate = Gate.remote()
    blocked = [after.remote(gate) for _ in range(2)]
    done = ray.put(1)
    ready, rest = ray.wait([*blocked, done], num_returns=3, timeout=0.1)
    assert ready == [done]
    assert rest == blocked
    ray.get(gate.open.remote())
    assert len(ray.wait(blocked, num_returns=2, timeout=60)[0]) == 2


def test_timeout_zero_only_looks() -> None:
    gate = Gate.remote()
    blocked = after.remote(gate)
    assert ray.wait([blocked], timeout=0) == ([], [blocked])
    done = ray.put(1)
    assert ray.wait([done], timeout=0) == ([done], [])
    ray.get(gate.open.remote())
    ray.get(blocked, timeout=60)


def test_failed_tasks_are_ready() -> None:
    ref = fail.remote()
    assert ray.wait([ref], timeout=60) == ([ref], [])


def test_results_as_they_come() -> None:
    pending = [identity.remote(i) for i in range(50)]
    seen = []
    while pending:
        ready, pending = ray.wait(pending)
        seen += ray.get(ready)
    assert sorted(seen) == list(range(50))


def test_an_empty_list() -> None:
    assert ray.wait([]) == ([], [])


def test_fetch_local_is_accepted() -> None:
    ref = ray.put(1)
    assert ray.wait([ref], fetch_local=False) == ([ref], [])


def test_inside_a_task() -> None:
    @ray.remote
    def first(refs: list[Any]) -> int:
        ready, _ = ray.wait(refs)
        return ray.get(ready[0])

    gate = Gate.remote()
    blocked = after.remote(gate)
    assert ray.get(first.remote([blocked, ray.put(5)]), timeout=60) == 5
    ray.get(gate.open.remote())
    ray.get(blocked, timeout=60)


def test_references_owned_by_others() -> None:
    @ray.remote
    def make() -> list[Any]:
        return [ray.put("inner"), identity.remote("task")]

    refs = ray.get(make.remote())
    ready, rest = ray.wait(refs, num_returns=2, timeout=60)
    assert rest == []
    assert ray.get(ready) == ["inner", "task"]


# ---------------------------------------------------------------- misuse


def test_a_single_reference_is_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        ray.wait(ray.put(1))


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError):
        ray.wait([1, 2])


def test_duplicates_are_refused() -> None:
    ref = ray.put(1)
    with pytest.raises(ValueError, match="unique"):
        ray.wait([ref, ref])


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="num_returns"):
        ray.wait([ray.put(1)], num_returns=2)


def test_none_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        ray.wait([ray.put(1)], num_returns=0)


def test_a_negative_timeout_is_refused() -> None:
    with pytest.raises(ValueError):
        ray.wait([ray.put(1)], timeout=-1)
