"""The ends of a worker process, as decisions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from runtime._core import fsm
from runtime._executor.lifecycle import TRANSITIONS, Event, Lifecycle, Stage

ENDINGS: dict[str, Callable[[Lifecycle], None]] = {
    "unreferenced": Lifecycle.unreferenced,
    "not constructed": Lifecycle.not_constructed,
    "leave": lambda life: life.leave("left", 3),
    "leave again": lambda life: life.leave("left again", 4),
}


def test_every_stage_is_reachable_and_leads_to_the_exit() -> None:
    assert fsm.reachable_states(Stage.SERVING, TRANSITIONS) == set(Stage)
    assert fsm.terminal_states(Stage, TRANSITIONS) == {Stage.EXITING}
    assert all(Stage.EXITING in fsm.reachable_states(stage, TRANSITIONS) for stage in Stage)


def test_every_event_is_used_and_every_edge_has_a_reason() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)
    assert all(len(edge.reason) > 5 for edge in TRANSITIONS.values())


def test_a_process_that_serves_never_exits_by_itself() -> None:
    life = Lifecycle()
    assert life.stage is Stage.SERVING
    assert life.accepts_calls
    assert not life.leaving
    assert not life.ends_when_idle


@pytest.mark.parametrize("ending", [Lifecycle.unreferenced, Lifecycle.not_constructed])
def test_what_has_come_runs_before_an_actor_without_handles_exits(
    ending: Callable[[Lifecycle], None],
) -> None:
    life = Lifecycle()
    ending(life)
    assert life.stage is Stage.FINISHING
    assert life.accepts_calls
    assert life.ends_when_idle
    life.exit()
    assert (life.reason, life.status) == ("", 0)


def test_an_actor_that_leaves_takes_no_call_and_lets_others_finish() -> None:
    life = Lifecycle()
    life.leave("exit_actor() is called.", 2)
    assert life.leaving
    assert not life.accepts_calls
    assert life.ends_when_idle
    life.exit()
    assert (life.stage, life.reason, life.status) == (Stage.EXITING, "exit_actor() is called.", 2)


def test_the_first_reason_to_leave_counts() -> None:
    life = Lifecycle()
    life.leave("first", 1)
    life.leave("second", 2)
    assert (life.reason, life.status) == ("first", 1)


def test_a_retired_worker_takes_no_call_and_waits_until_nobody_needs_it() -> None:
    life = Lifecycle()
    life.retire("spent")
    assert not life.accepts_calls
    assert not life.ends_when_idle
    life.exit()
    assert (life.stage, life.reason, life.status) == (Stage.EXITING, "spent", 0)


def test_a_task_that_calls_sys_exit_chooses_the_status() -> None:
    life = Lifecycle()
    life.exit(7)
    assert (life.stage, life.reason, life.status) == (Stage.EXITING, "", 7)


def test_a_retired_worker_cannot_leave_as_it_has_no_actor() -> None:
    life = Lifecycle()
    life.retire("spent")
    with pytest.raises(fsm.InvalidTransition, match="RETIRING"):
        life.leave("how?")


@pytest.mark.parametrize("order", list(itertools.permutations(ENDINGS)), ids=" > ".join)
def test_endings_may_come_in_any_order(order: tuple[str, ...]) -> None:
    life = Lifecycle()
    for name in order:
        ENDINGS[name](life)
        assert life.ends_when_idle
    first = next(name for name in order if name.startswith("leave"))
    assert life.status == (3 if first == "leave" else 4)
    life.exit()
    after = (life.stage, life.reason, life.status)
    for name in order:
        ENDINGS[name](life)
    life.exit(9)
    assert (life.stage, life.reason, life.status) == after, "a process that exits takes no other end"
