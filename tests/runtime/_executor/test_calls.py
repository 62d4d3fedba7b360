"""The calls that wait and those that have begun."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._executor.calls import Calls
from runtime._owner.context import Execution
from tests.runtime._executor.stand_ins import Peer, push


@pytest.fixture
def calls() -> Calls:
    return Calls(lambda push: Execution(push.task_id, "name", "module.name", None))


def queued(calls: Calls, *items: tuple[Any, int]) -> None:
    calls.waiting.extend((peer, push(number)) for peer, number in items)


def left(calls: Calls) -> list[int]:
    return [push.task_id[0] for _, push in calls.waiting]


def numbers(task_ids: list[bytes]) -> list[int]:
    return [task_id[0] for task_id in task_ids]


def test_a_caller_takes_back_only_its_own_calls_at_the_end(calls: Calls) -> None:
    one, other = Peer(), Peer()
    queued(calls, (one, 1), (other, 2), (one, 3), (one, 4))
    assert numbers(calls.take_back(one, 5)) == [3, 4]  # type: ignore[arg-type]
    assert left(calls) == [1, 2]


def test_a_caller_takes_back_no_more_than_it_asks_for(calls: Calls) -> None:
    one = Peer()
    queued(calls, (one, 1), (one, 2), (one, 3))
    assert numbers(calls.take_back(one, 2)) == [2, 3]  # type: ignore[arg-type]
    assert numbers(calls.take_back(one, 0)) == []  # type: ignore[arg-type]
    assert left(calls) == [1]


def test_everything_goes_back_to_its_callers_in_order(calls: Calls) -> None:
    one, other = Peer(), Peer()
    queued(calls, (one, 1), (other, 2), (one, 3))
    back: Any = calls.take_back_all()
    assert {caller: numbers(ids) for caller, ids in back.items()} == {one: [1, 3], other: [2]}
    assert not calls.waiting


def test_a_call_is_withdrawn_for_its_own_caller_only(calls: Calls) -> None:
    one, other = Peer(), Peer()
    queued(calls, (one, 1), (other, 1))
    assert calls.withdraw(other, push(1).task_id)  # type: ignore[arg-type]
    assert [caller for caller, _ in calls.waiting] == [one]
    assert not calls.withdraw(other, push(1).task_id)  # type: ignore[arg-type]


def test_calls_with_one_id_of_two_callers_are_told_apart(calls: Calls) -> None:
    one, other = Peer(), Peer()
    mine = calls.begin(one, push(1))  # type: ignore[arg-type]
    theirs = calls.begin(other, push(1))  # type: ignore[arg-type]
    assert calls.running_tasks() == [(push(1).task_id, True)] * 2
    assert calls.running_tasks({(other, push(1).task_id)}) == [  # type: ignore[arg-type]
        (push(1).task_id, True),
        (push(1).task_id, False),
    ]
    calls.end(one, push(1).task_id)  # type: ignore[arg-type]
    assert list(calls.begun.values()) == [theirs]
    assert mine is not theirs
    calls.end(one, push(1).task_id)  # type: ignore[arg-type]


def test_it_is_idle_when_nothing_runs_or_waits(calls: Calls) -> None:
    one = Peer()
    assert calls.is_idle
    queued(calls, (one, 1))
    assert not calls.is_idle
    calls.waiting.clear()
    calls.begin(one, push(2))  # type: ignore[arg-type]
    assert not calls.is_idle
    calls.end(one, push(2).task_id)  # type: ignore[arg-type]
    assert calls.is_idle


def test_what_a_lost_caller_queued_is_dropped(calls: Calls) -> None:
    one, other = Peer(), Peer()
    queued(calls, (one, 1), (other, 2), (one, 3))
    calls.caller_lost(one)  # type: ignore[arg-type]
    assert left(calls) == [2]
