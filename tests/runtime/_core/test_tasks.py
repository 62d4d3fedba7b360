"""The life of a task: the table, and what it refuses."""

from __future__ import annotations

import itertools

import pytest

from runtime._core.fsm import InvalidTransition
from runtime._core.tasks import TRANSITIONS, TaskState, step

TASK = b"t" * 24


@pytest.mark.parametrize("pair", TRANSITIONS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_every_edge_leads_where_it_says_and_has_a_reason(pair: tuple[TaskState, TaskState]) -> None:
    state, target = pair
    assert step(TASK, state, target) is target
    assert TRANSITIONS[pair].target is target
    assert TRANSITIONS[pair].reason


@pytest.mark.parametrize(
    ("state", "target"),
    [pair for pair in itertools.product(TaskState, TaskState) if pair not in TRANSITIONS],
    ids=lambda state: state.name,
)
def test_everything_else_is_refused_and_names_the_task(state: TaskState, target: TaskState) -> None:
    with pytest.raises(InvalidTransition, match=TASK.hex()):
        step(TASK, state, target)


def reachable(start: TaskState) -> set[TaskState]:
    found, queue = {start}, [start]
    while queue:
        state = queue.pop()
        for source, target in TRANSITIONS:
            if source is state and target not in found:
                found.add(target)
                queue.append(target)
    return found


@pytest.mark.parametrize("state", TaskState, ids=lambda state: state.name)
def test_every_state_is_reached_and_can_end(state: TaskState) -> None:
    assert state in reachable(TaskState.WAITING_FOR_ARGUMENTS)
    assert TaskState.FINISHED in reachable(state)


def test_what_is_being_cancelled_never_runs_again() -> None:
    assert [target for source, target in TRANSITIONS if source is TaskState.CANCELLING] == [
        TaskState.FINISHED
    ]
