"""wait: what is ready, in which order, and what is refused."""

from __future__ import annotations

import random
import threading
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


# ---------------------------------------------------------------- the rest of the last answer


def test_the_rest_may_be_changed_before_it_is_asked_for_again() -> None:
    gate = Gate.remote()
    blocked = after.remote(gate)
    refs = [blocked, *(ray.put(i) for i in range(5))]
    _, rest = ray.wait(refs)
    rest.reverse()
    ready, rest = ray.wait(rest)
    assert ready == [refs[5]]
    assert rest == [*refs[4:1:-1], blocked]
    more = ray.put("more")
    rest.insert(0, more)
    assert ray.wait(rest) == ([more], [*refs[4:1:-1], blocked])
    rest[0] = blocked
    with pytest.raises(ValueError, match="unique"):
        ray.wait(rest)
    _, rest = ray.wait(refs)
    rest[-1] = None
    with pytest.raises(TypeError, match="got list containing"):
        ray.wait(rest)
    ray.get(gate.open.remote())
    ray.get(blocked, timeout=60)


def test_it_is_refused_like_any_other_list() -> None:
    _, rest = ray.wait([ray.put(i) for i in range(5)])
    with pytest.raises(ValueError, match="nonnegative"):
        ray.wait(rest, timeout=-1)
    _, rest = ray.wait(rest)
    with pytest.raises(ValueError, match="cannot be greater"):
        ray.wait(rest, num_returns=4)
    _, rest = ray.wait(rest)
    with pytest.raises(ValueError, match="0"):
        ray.wait(rest, num_returns=0)


def test_many_ways_to_ask_give_the_same() -> None:
    """What is asked at random, as a list of its own or as the rest of the last answer, is answered alike."""
    rng = random.Random(7)
    gate = Gate.remote()
    blocked = [after.remote(gate) for _ in range(3)]
    failed = fail.remote()
    ray.wait([failed])
    ready = [*(ray.put(i) for i in range(40)), failed]
    left = [*blocked, *ready]
    rng.shuffle(left)
    while any(ref in ready for ref in left):
        expected = [ref for ref in left if ref in ready]
        count = rng.randint(1, min(3, len(left)))
        timeout = None if count <= len(expected) else 0.01
        asked = left if rng.random() < 0.7 else list(left)
        given = list(asked)
        found, left = ray.wait(asked, num_returns=count, timeout=timeout)
        assert found == expected[:count]
        assert left == [ref for ref in given if ref not in found]
        assert asked == given
        assert asked is not left
    assert ray.wait(left, num_returns=3, timeout=0.01) == ([], left)
    ray.get(gate.open.remote())
    assert ray.wait(left, num_returns=3, timeout=60) == (left, [])


def test_what_comes_late_is_found_although_others_come_before() -> None:
    """Waiting looks at everything a few times, and then asks to be called: both find it."""
    gate = Gate.remote()
    blocked = after.remote(gate)
    opened = threading.Event()

    def others() -> None:
        for i in range(200):
            ray.get(identity.remote(i))
        opened.set()
        ray.get(gate.open.remote())

    thread = threading.Thread(target=others)
    thread.start()
    assert ray.wait([blocked], timeout=60) == ([blocked], [])
    assert opened.is_set()
    thread.join()


def test_threads_that_wait_for_rests_of_their_own() -> None:
    def take(results: list[int]) -> None:
        left = [identity.remote(i) for i in range(100)]
        while left:
            ready, left = ray.wait(left)
            results += ray.get(ready)

    taken: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=take, args=(results,)) for results in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(results) for results in taken] == [list(range(100))] * 4


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
