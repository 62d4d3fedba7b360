"""What holds of every table of the engine."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from runtime._controllers import members
from runtime._core import actors, fsm, jobs, nodes, placement_groups

TABLES: list[Any] = [
    pytest.param(nodes.NodeState, nodes.NodeEvent, nodes.NodeState.ALIVE, nodes.TRANSITIONS, id="node"),
    pytest.param(
        actors.ActorState,
        actors.ActorEvent,
        actors.ActorState.DEPENDENCIES_UNREADY,
        actors.TRANSITIONS,
        id="actor",
    ),
    pytest.param(jobs.JobState, jobs.JobEvent, jobs.JobState.RUNNING, jobs.TRANSITIONS, id="job"),
    pytest.param(
        placement_groups.GroupState,
        placement_groups.GroupEvent,
        placement_groups.GroupState.PENDING,
        placement_groups.TRANSITIONS,
        id="placement group",
    ),
    pytest.param(
        members.MemberState,
        members.MemberEvent,
        members.MemberState.STARTING,
        members.TRANSITIONS,
        id="member of a group",
    ),
]
FINAL = {
    "node": "DEAD",
    "actor": "DEAD",
    "job": "FINISHED",
    "placement group": "REMOVED",
    "member of a group": "DEAD",
}


@pytest.mark.parametrize(("states", "events", "initial", "table"), TABLES)
class TestEveryTable:
    def test_every_state_is_reachable(
        self, states: type[enum.Enum], events: type[enum.Enum], initial: enum.Enum, table: Any
    ) -> None:
        assert fsm.reachable_states(initial, table) == set(states)

    def test_every_event_is_used(
        self, states: type[enum.Enum], events: type[enum.Enum], initial: enum.Enum, table: Any
    ) -> None:
        assert {event for _, event in table} == set(events)

    def test_every_edge_has_a_reason(
        self, states: type[enum.Enum], events: type[enum.Enum], initial: enum.Enum, table: Any
    ) -> None:
        assert all(len(edge.reason) > 5 for edge in table.values())

    def test_there_is_one_end_and_nothing_leaves_it(
        self, states: type[enum.Enum], events: type[enum.Enum], initial: enum.Enum, table: Any
    ) -> None:
        final = fsm.terminal_states(states, table)
        assert len(final) == 1
        assert not any(state in final for state, _ in table)

    def test_every_state_leads_to_the_end(
        self, states: type[enum.Enum], events: type[enum.Enum], initial: enum.Enum, table: Any
    ) -> None:
        (final,) = fsm.terminal_states(states, table)
        assert all(final in fsm.reachable_states(state, table) for state in states)

    def test_values_are_the_names_on_the_wire(
        self, states: type[enum.Enum], events: type[enum.Enum], initial: enum.Enum, table: Any
    ) -> None:
        assert all(state.value == state.name for state in states)


@pytest.mark.parametrize("event", list(actors.ActorEvent))
@pytest.mark.parametrize("state", list(actors.ActorState))
def test_a_living_actor_takes_every_end_and_a_dead_one_none(
    state: actors.ActorState, event: actors.ActorEvent
) -> None:
    listed = (state, event) in actors.TRANSITIONS
    if state is actors.ActorState.DEAD:
        assert not listed
    elif state is actors.ActorState.ALIVE:
        only_before = {
            actors.ActorEvent.ARGUMENTS_READY,
            actors.ActorEvent.STARTED,
            actors.ActorEvent.CONSTRUCTOR_RAISED,
            actors.ActorEvent.UNPLACEABLE,
            actors.ActorEvent.UNSTARTABLE,
        }
        assert listed == (event not in only_before)
    elif state is actors.ActorState.DEPENDENCIES_UNREADY:
        ends = {
            actors.ActorEvent.ARGUMENTS_READY,
            actors.ActorEvent.CONSTRUCTOR_RAISED,
            actors.ActorEvent.UNPLACEABLE,
            actors.ActorEvent.KILLED,
            actors.ActorEvent.ABANDONED,
        }
        assert listed == (event in ends)
    else:
        assert listed == (event is not actors.ActorEvent.ARGUMENTS_READY)


@pytest.mark.parametrize("state", [s for s in placement_groups.GroupState if s.value != "REMOVED"])
def test_a_group_can_be_removed_at_any_time(state: placement_groups.GroupState) -> None:
    edge = placement_groups.TRANSITIONS[state, placement_groups.GroupEvent.REMOVED]
    assert edge.target is placement_groups.GroupState.REMOVED
