from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from autoscaler.config import Deadlines
from autoscaler.instances import (
    ACTIVE,
    COUNTED,
    HISTORY,
    IN_FLIGHT,
    INITIAL,
    TERMINAL,
    TRANSITIONS,
    Instance,
    InstanceState,
    InstanceTable,
    Transition,
    advance,
    deadline_of,
)
from runtime._core.fsm import InvalidTransition, reachable_states, terminal_states
from tests.autoscaler.build import NOW, instance

S = InstanceState
PAIRS = list(itertools.product(S, S))


@pytest.mark.parametrize(("state", "target"), PAIRS, ids=[f"{a.name}-{b.name}" for a, b in PAIRS])
def test_every_pair_is_an_edge_or_an_error(state: S, target: S) -> None:
    before = instance("a", state=state)
    step = Transition("a", target, "why")
    if (state, target) in TRANSITIONS:
        after = advance(before, step, NOW)
        assert after.state is target
        assert after.since_s == NOW
        assert after.reason == "why"
    else:
        with pytest.raises(InvalidTransition, match=target.name):
            advance(before, step, NOW)


def test_every_edge_leads_where_its_key_says_and_gives_a_reason() -> None:
    for (_, wanted), edge in TRANSITIONS.items():
        assert edge.target is wanted
        assert edge.reason


def test_all_states_can_be_reached_and_the_final_ones_are_final() -> None:
    assert reachable_states(INITIAL, TRANSITIONS) == frozenset(S)
    assert terminal_states(S, TRANSITIONS) == TERMINAL


def test_every_state_can_still_end() -> None:
    for state in S:
        assert reachable_states(state, TRANSITIONS) & TERMINAL


def test_the_groups_of_states() -> None:
    assert IN_FLIGHT < ACTIVE < COUNTED
    assert not COUNTED & TERMINAL
    assert S.TERMINATING not in COUNTED


def test_all_but_running_have_a_deadline() -> None:
    for state in S:
        until_s = deadline_of(instance("a", state=state), Deadlines())
        assert (until_s is None) == (state in TERMINAL | {S.RUNNING}), state


def test_an_own_deadline_goes_first_and_ends_with_the_state() -> None:
    adopted = instance("a", state=S.SETTING_UP, expires_s=NOW + 5)
    assert deadline_of(adopted, Deadlines()) == NOW + 5
    joined = advance(adopted, Transition("a", S.RUNNING, "joined"), NOW)
    assert joined.expires_s == 0.0


def test_advancing_resets_what_belongs_to_the_state() -> None:
    before = instance("a", asked_s=1.0, not_before_s=2.0, settled=True, unjoined_since_s=3.0)
    after = advance(before, Transition("a", S.TERMINATING, "x", failure="broken", step="pip"), NOW)
    assert (after.asked_s, after.not_before_s, after.settled, after.unjoined_since_s) == (
        0.0,
        0.0,
        False,
        0.0,
    )
    assert (after.failure, after.step) == ("broken", "pip")
    assert after.machine_id == before.machine_id


def test_the_first_machine_dates_the_allocation() -> None:
    asked = instance("a", state=S.REQUESTED)
    there = advance(asked, Transition("a", S.ALLOCATED, "x", machine_id="m"), NOW)
    runs = advance(there, Transition("a", S.SETTING_UP, "x", machine_id="m"), NOW + 9)
    assert there.allocated_s == runs.allocated_s == NOW


def test_the_history_is_short_and_in_the_error() -> None:
    one = instance("a", state=S.RUNNING)
    for _ in range(20):
        one = advance(one, Transition("a", S.DRAINING, "idle"), NOW)
        one = advance(one, Transition("a", S.RUNNING, "refused"), NOW)
    assert len(one.history) == HISTORY
    with pytest.raises(InvalidTransition, match="DRAINING: idle; "):
        advance(one, Transition("a", S.QUEUED, "x"), NOW)


class TestTable:
    def table(self, *instances: Instance) -> InstanceTable:
        table = InstanceTable()
        for one in instances:
            table.add(one)
        return table

    def test_a_living_name_is_not_given_twice(self) -> None:
        table = self.table(instance("a"))
        with pytest.raises(ValueError, match="known already"):
            table.add(instance("a"))

    @pytest.mark.parametrize("state", sorted(TERMINAL, key=lambda s: s.name))
    def test_an_ended_one_may_come_back(self, state: S) -> None:
        table = self.table(instance("a", state=state))
        table.add(instance("a", state=S.TERMINATING))
        assert [i.state for i in table] == [S.TERMINATING]

    def test_notes_never_change_the_state(self) -> None:
        table = self.table(instance("a"))
        with pytest.raises(ValueError, match="must not change"):
            table.note(instance("a", state=S.DRAINING), NOW)

    def test_the_version_grows_with_changes_only(self) -> None:
        table = self.table(instance("a"))
        (one,) = table
        version = table.version
        table.note(one, NOW)
        assert table.version == version
        table.note(replace(one, settled=True), NOW)
        table.apply(Transition("a", S.DRAINING, "x"), NOW)
        assert table.version == version + 2

    def test_pruning_keeps_the_living_and_the_latest(self) -> None:
        ended = [instance(f"e{n}", state=S.TERMINATED, since_s=NOW - n) for n in range(10)]
        table = self.table(instance("a", since_s=0.0), *ended)
        table.prune(NOW, keep_s=6.0, keep=5)
        assert {i.id for i in table} == {"a", "e0", "e1", "e2", "e3", "e4"}
        table.prune(NOW, keep_s=2.0, keep=5)
        assert {i.id for i in table} == {"a", "e0", "e1", "e2"}

    def test_unknown_names(self) -> None:
        table = self.table()
        assert table.get("x") is None
        with pytest.raises(KeyError):
            table.apply(Transition("x", S.RUNNING, "x"), NOW)
