from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autoscaler.config import Cause
from autoscaler.effects import Created, Drained, Listing, Outcome, Resumed, SetUpEnded, Terminated
from autoscaler.instances import TERMINAL, Instance, InstanceState, InstanceTable, Transition
from autoscaler.observe import (
    Adopted,
    DiedYoung,
    Event,
    Facts,
    Noted,
    OfferRefused,
    OfferServed,
    SetupKnown,
    machines_of,
    observe,
)
from autoscaler.provider import (
    SPOT,
    Capacity,
    Config,
    LaunchResult,
    Machine,
    MachineState,
    MachineTags,
    NotFound,
    ProviderError,
    SetupError,
    Transient,
)
from runtime._wire.messages.base import NodeInfo
from tests.autoscaler.build import NOW, SMALL, config, instance, machine, node

S = InstanceState
M = MachineState
SETTINGS = config(SMALL)
HAVE_MACHINE = (S.ALLOCATED, S.SETTING_UP, S.RUNNING, S.DRAINING, S.TERMINATING)


def see(
    *instances: Instance,
    nodes: Sequence[NodeInfo] = (),
    machines: Sequence[Machine] | None = None,
    outcomes: Sequence[Outcome] = (),
    lag_s: float = 0.0,
    listed_s: float = NOW - 1,
    now: float = NOW,
) -> tuple[InstanceTable, list[Event]]:
    """The table after the events, and the events."""
    listing = None if machines is None else Listing(listed_s, tuple(machines))
    events = observe(instances, Facts(nodes, listing, outcomes, lag_s), SETTINGS, now)
    table = InstanceTable({one.id: one for one in instances})
    for event in events:
        if isinstance(event, Transition):
            table.apply(event, now)
        elif isinstance(event, Adopted):
            table.add(event.instance)
        elif isinstance(event, Noted):
            table.note(event.instance, now)
    return table, events


def only(table: InstanceTable) -> Instance:
    (one,) = table
    return one


def kinds(events: list[Event], kind: type) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


# ---------------------------------------------------------------- create


def test_a_created_machine_is_allocated() -> None:
    result = LaunchResult((machine("a", state=M.PENDING),))
    table, events = see(instance("a", state=S.REQUESTED), outcomes=[Created("token", result)])
    assert only(table).state is S.ALLOCATED
    assert only(table).machine_id == "m-a"
    assert kinds(events, OfferServed)


def test_a_machine_that_runs_at_once_is_set_up_at_once() -> None:
    result = LaunchResult((machine("a"),))
    table, _ = see(instance("a", state=S.REQUESTED), outcomes=[Created("token", result)])
    assert only(table).state is S.SETTING_UP


def test_partial_success() -> None:
    result = LaunchResult((machine("a"),), (Capacity("no second one"),))
    table, events = see(
        instance("a", state=S.REQUESTED),
        instance("b", state=S.REQUESTED),
        outcomes=[Created("token", result)],
    )
    assert {i.id: i.state for i in table} == {"a": S.SETTING_UP, "b": S.FAILED}
    (refused,) = kinds(events, OfferRefused)
    assert isinstance(refused, OfferRefused)
    assert isinstance(refused.error, Capacity)
    failed = table.get("b")
    assert failed is not None
    assert "no second one" in failed.failure


@pytest.mark.parametrize("error", [Capacity("none"), Config("no image")])
def test_a_refused_call_fails_all(error: ProviderError) -> None:
    table, events = see(
        instance("a", state=S.REQUESTED),
        instance("b", state=S.REQUESTED),
        instance("c", state=S.REQUESTED, token="other"),
        outcomes=[Created("token", error=error)],
    )
    assert [i.state for i in table] == [S.FAILED, S.FAILED, S.REQUESTED]
    assert len(kinds(events, OfferRefused)) == 2


def test_an_open_outcome_is_asked_again_with_the_same_token() -> None:
    waiting = instance("a", state=S.REQUESTED, asked_s=NOW - 3)
    table, events = see(waiting, outcomes=[Created("token", error=Transient("timeout", 4.0))])
    one = only(table)
    assert (one.state, one.asked_s, one.not_before_s) == (S.REQUESTED, 0.0, NOW + 4.0)
    assert not kinds(events, OfferRefused)


def test_fewer_machines_without_a_reason() -> None:
    table, _ = see(instance("a", state=S.REQUESTED), outcomes=[Created("token", LaunchResult())])
    assert only(table).state is S.FAILED
    assert "no reason" in only(table).failure


def test_a_listing_tells_of_a_machine_before_the_call_returns() -> None:
    table, _ = see(instance("a", state=S.REQUESTED), machines=[machine("a", state=M.PENDING)])
    assert only(table).state is S.ALLOCATED


def test_no_machine_by_the_deadline() -> None:
    old = instance("a", state=S.REQUESTED, since_s=NOW - SETTINGS.deadlines.requested_s, asked_s=1.0)
    table, events = see(old, machines=[])
    assert only(table).state is S.FAILED
    assert kinds(events, OfferRefused)


@pytest.mark.parametrize("state", [s for s in S if s is not S.REQUESTED])
def test_a_late_answer_moves_nothing_else(state: S) -> None:
    one = instance("a", state=state)
    table, _ = see(
        one, outcomes=[Created("token", error=Capacity("x"))], nodes=[node("a")] if state is S.RUNNING else []
    )
    assert only(table).state is state


# ---------------------------------------------------------------- set-up and joining


def test_a_machine_that_runs_is_set_up() -> None:
    table, _ = see(instance("a", state=S.ALLOCATED), machines=[machine("a")])
    assert only(table).state is S.SETTING_UP
    table, _ = see(instance("a", state=S.ALLOCATED), machines=[machine("a", state=M.PENDING)])
    assert only(table).state is S.ALLOCATED


def test_setup_that_ended_waits_for_its_node() -> None:
    table, events = see(instance("a", state=S.SETTING_UP), outcomes=[SetUpEnded("a")])
    assert only(table).state is S.SETTING_UP
    assert only(table).settled
    assert not kinds(events, SetupKnown)


@pytest.mark.parametrize("state", [S.ALLOCATED, S.SETTING_UP])
@pytest.mark.parametrize("info", ["ALIVE", "DRAINING"])
def test_a_registered_node_makes_it_run(state: S, info: str) -> None:
    table, events = see(instance("a", state=state), nodes=[node("a", state=info)])
    assert only(table).state is S.RUNNING
    assert only(table).node_id == b"a"
    assert kinds(events, SetupKnown) == [SetupKnown("small", True)]


def test_a_failed_setup_ends_the_machine_and_keeps_the_step() -> None:
    outcome = SetUpEnded("a", SetupError("pip install", "exit status 1"))
    table, events = see(instance("a", state=S.SETTING_UP), outcomes=[outcome])
    one = only(table)
    assert one.state is S.TERMINATING
    assert one.step == "pip install"
    assert "exit status 1" in one.failure
    assert kinds(events, SetupKnown) == [SetupKnown("small", False)]


@pytest.mark.parametrize(
    ("state", "settled", "words"),
    [
        (S.ALLOCATED, False, "did not run"),
        (S.SETTING_UP, False, "setup took longer"),
        (S.SETTING_UP, True, "did not join"),
    ],
)
def test_deadlines_before_running(state: S, settled: bool, words: str) -> None:
    old = instance("a", state=state, since_s=NOW - 2000, settled=settled)
    table, events = see(old, machines=[machine("a", state=M.PENDING)])
    assert only(table).state is S.TERMINATING
    assert words in only(table).failure
    assert kinds(events, SetupKnown) == [SetupKnown("small", False)]


def test_a_node_that_dies_right_after_joining() -> None:
    table, events = see(
        instance("a", state=S.SETTING_UP), nodes=[node("a", state="DEAD", death_reason="oom")]
    )
    assert only(table).state is S.TERMINATING
    assert "oom" in only(table).failure
    assert kinds(events, SetupKnown) == [SetupKnown("small", False)]


def test_the_head_is_nobodys_node() -> None:
    table, _ = see(instance("a", state=S.SETTING_UP), nodes=[node("a", is_head=True)])
    assert only(table).state is S.SETTING_UP


# ---------------------------------------------------------------- running


def test_a_dead_node_ends_its_machine_at_once() -> None:
    table, _ = see(
        instance("a"), nodes=[node("a", state="DEAD", death_reason="no heartbeat")], machines=[machine("a")]
    )
    assert only(table).state is S.TERMINATING
    assert "no heartbeat" in only(table).failure


def test_an_agent_that_was_restarted_counts() -> None:
    again = node("new", instance_id="a")
    for nodes in ([node("a", state="DEAD"), again], [again, node("a", state="DEAD")]):
        table, _ = see(instance("a"), nodes=nodes)
        assert only(table).state is S.RUNNING
        assert only(table).node_id == b"new"


def test_a_node_that_is_missing_has_a_while_to_come_back() -> None:
    table, _ = see(instance("a"))
    assert only(table).unjoined_since_s == NOW
    later = NOW + SETTINGS.node_grace_s
    table, _ = see(only(table), now=later)
    assert only(table).state is S.TERMINATING
    table, _ = see(instance("a", unjoined_since_s=NOW), nodes=[node("a")])
    assert only(table).unjoined_since_s == 0.0


@pytest.mark.parametrize("state", [M.STOPPING, M.STOPPED])
@pytest.mark.parametrize("stage", [S.ALLOCATED, S.SETTING_UP, S.RUNNING])
def test_a_stopped_machine_is_ended(state: MachineState, stage: S) -> None:
    table, _ = see(instance("a", state=stage), machines=[machine("a", state=state)])
    assert only(table).state is S.TERMINATING
    assert state.value.lower() in only(table).failure


def unwanted(name: str) -> Machine:
    found = machine(name)
    return replace(found, unwanted="the spec names it no more")


def test_a_machine_that_is_given_up_is_drained_if_it_works_and_ended_at_once_if_it_does_not_yet() -> None:
    for stage, then in ((S.ALLOCATED, S.TERMINATING), (S.SETTING_UP, S.TERMINATING), (S.RUNNING, S.DRAINING)):
        table, events = see(instance("a", state=stage), nodes=[], machines=[unwanted("a")])
        assert only(table).state is then
        assert only(table).reason == "the spec names it no more"
        assert not only(table).failure
        assert not kinds(events, SetupKnown)
    table, _ = see(only(table), nodes=[node("a")], machines=[unwanted("a")])
    assert only(table).state is S.DRAINING
    assert not only(table).only_if_idle


def test_a_spot_machine_that_has_drained_its_node_itself_is_given_up_all_the_same() -> None:
    drained = node("a", state="DRAINING")
    table, _ = see(instance("a", joined_s=NOW - 60), nodes=[drained])
    (one,) = table.in_state(S.DRAINING)
    assert one.cause is Cause.BY_HAND
    assert one.is_counted
    table, events = see(one, nodes=[drained], machines=[replace(unwanted("a"), market=SPOT)])
    assert only(table).cause is Cause.UNWANTED
    assert only(table).failure == "the spec names it no more"
    assert not only(table).is_counted, "it does not block its own replacement"
    assert kinds(events, DiedYoung), "its offer is to blame"
    table, events = see(only(table), nodes=[drained], machines=[replace(unwanted("a"), market=SPOT)])
    assert not events


def test_a_spot_machine_that_is_given_up_soon_is_held_against_its_offer() -> None:
    spot = replace(unwanted("a"), market=SPOT)
    table, events = see(instance("a", joined_s=NOW - 60), machines=[spot])
    assert only(table).state is S.DRAINING
    assert only(table).failure == "the spec names it no more"
    assert kinds(events, DiedYoung)
    table, events = see(instance("a", joined_s=NOW - 60), machines=[unwanted("a")])
    assert not kinds(events, DiedYoung)
    for stage in (S.ALLOCATED, S.SETTING_UP):
        table, events = see(instance("a", state=stage), machines=[spot])
        assert only(table).state is S.TERMINATING
        assert only(table).failure == "the spec names it no more"
        assert [event.lived_s for event in kinds(events, DiedYoung)] == [0.0]
        assert not kinds(events, SetupKnown), "its type can be set up for all we know"


def test_a_node_drained_by_hand_is_draining() -> None:
    table, _ = see(instance("a"), nodes=[node("a", state="DRAINING")])
    assert only(table).state is S.DRAINING
    assert only(table).settled
    fresh = instance("a", since_s=NOW - 1)
    table, _ = see(fresh, nodes=[node("a", state="DRAINING")])
    assert only(table).state is S.RUNNING, "our own drain may just have been refused"


# ---------------------------------------------------------------- gone


@pytest.mark.parametrize("state", [S.ALLOCATED, S.SETTING_UP, S.TERMINATING])
def test_absent_from_the_listing_is_gone(state: S) -> None:
    table, _ = see(instance("a", state=state), machines=[])
    assert only(table).state is S.TERMINATED


def test_what_the_platform_calls_gone_is_gone() -> None:
    table, _ = see(instance("a", state=S.TERMINATING), machines=[machine("a", state=M.GONE)])
    assert only(table).state is S.TERMINATED


@pytest.mark.parametrize("state", [S.RUNNING, S.DRAINING])
def test_a_living_node_is_the_second_witness(state: S) -> None:
    alive = node("a", state="ALIVE" if state is S.RUNNING else "DRAINING")
    table, _ = see(instance("a", state=state), nodes=[alive], machines=[])
    assert only(table).state is state


@pytest.mark.parametrize("state", HAVE_MACHINE)
def test_a_listing_older_than_the_machine_proves_nothing(state: S) -> None:
    one = instance("a", state=state, allocated_s=NOW)
    table, _ = see(one, machines=[], listed_s=NOW - 1)
    assert only(table).state is state


@pytest.mark.parametrize("state", [S.ALLOCATED, S.SETTING_UP, S.TERMINATING])
def test_lagging_listings_are_believed_late(state: S) -> None:
    young = instance("a", state=state, allocated_s=NOW - 15)
    table, _ = see(young, machines=[], lag_s=20.0)
    assert only(table).absent_since_s == 0.0, "too young to be listed for certain"
    old = replace(young, allocated_s=NOW - 100)
    table, _ = see(old, machines=[], lag_s=20.0, listed_s=NOW - 1)
    assert only(table).state is state
    assert only(table).absent_since_s == NOW - 1
    table, _ = see(only(table), machines=[], lag_s=20.0, listed_s=NOW + 18, now=NOW + 18)
    assert only(table).state is state
    table, _ = see(only(table), machines=[], lag_s=20.0, listed_s=NOW + 19, now=NOW + 19)
    assert only(table).state is S.TERMINATED


@pytest.mark.parametrize("state", [S.ALLOCATED, S.SETTING_UP, S.TERMINATING])
def test_a_machine_that_is_listed_as_ended_is_believed_at_once(state: S) -> None:
    young = instance("a", state=state, allocated_s=NOW - 1)
    table, _ = see(young, machines=[machine("a", state=M.GONE)], lag_s=20.0)
    assert only(table).state is S.TERMINATED


def test_reappearing_starts_the_clock_anew() -> None:
    table, _ = see(
        instance("a", state=S.TERMINATING, absent_since_s=NOW - 5), machines=[machine("a")], lag_s=20.0
    )
    assert only(table).absent_since_s == 0.0


def test_without_a_listing_nothing_is_gone() -> None:
    for state in HAVE_MACHINE:
        table, _ = see(instance("a", state=state), nodes=[node("a")] if state is S.RUNNING else [])
        assert only(table).state in (state, S.RUNNING)


# ---------------------------------------------------------------- drain and terminate


def test_an_accepted_drain_is_settled_and_the_plan_ends_it() -> None:
    one = instance("a", state=S.DRAINING, reason="idle for 61 s")
    table, _ = see(one, nodes=[node("a", state="DRAINING")], outcomes=[Drained("a")])
    assert only(table).state is S.DRAINING
    assert only(table).settled


def test_a_refused_drain_goes_back_to_work_and_rests() -> None:
    one = instance("a", state=S.DRAINING)
    table, _ = see(one, nodes=[node("a")], outcomes=[Drained("a", "the node is busy")])
    assert only(table).state is S.RUNNING
    assert only(table).not_before_s > NOW


@pytest.mark.parametrize("cause", Cause)
def test_at_the_deadline_of_a_drain_only_those_go_that_must(cause: Cause) -> None:
    one = instance("a", state=S.DRAINING, cause=cause, settled=True, since_s=NOW - 5000)
    table, _ = see(one, nodes=[node("a", state="DRAINING")])
    others = {Cause.SURPLUS: S.TERMINATING, Cause.UNWANTED: S.TERMINATING, Cause.BY_HAND: S.DRAINING}
    expected = others.get(cause, S.RUNNING)
    assert only(table).state is expected
    assert only(table).recalled is (expected is S.RUNNING)


def test_a_node_called_back_is_told_until_it_has_heard_it() -> None:
    one = instance("a", recalled=True, asked_s=NOW - 1)
    still = [node("a", state="DRAINING")]
    table, _ = see(one, nodes=still)
    assert only(table).recalled
    table, _ = see(one, nodes=still, outcomes=[Resumed("a", "no connection")])
    assert only(table).recalled
    assert (only(table).asked_s, only(table).not_before_s) == (0.0, NOW + 1.0)
    table, _ = see(one, nodes=still, outcomes=[Resumed("a")])
    assert only(table).state is S.RUNNING, "what is known of its node may be old"
    assert not only(table).recalled


def test_a_node_that_dies_while_draining_is_no_failure() -> None:
    table, _ = see(instance("a", state=S.DRAINING), nodes=[node("a", state="DEAD")])
    assert only(table).state is S.TERMINATING
    assert not only(table).failure


@pytest.mark.parametrize(
    ("answer", "again"), [(None, False), (NotFound("gone"), False), (Transient("busy", 3.0), True)]
)
def test_answers_to_terminate(answer: ProviderError | None, again: bool) -> None:
    one = instance("a", state=S.TERMINATING, asked_s=NOW - 1)
    table, _ = see(one, machines=[machine("a")], outcomes=[Terminated({"m-a": answer})])
    assert only(table).state is S.TERMINATING, "only a listing proves the end"
    assert (only(table).asked_s == 0.0) is again
    if again:
        assert only(table).not_before_s == NOW + 3.0


def test_terminate_is_asked_again_after_its_deadline() -> None:
    long_ago = NOW - SETTINGS.deadlines.terminating_s
    one = instance("a", state=S.TERMINATING, since_s=long_ago, asked_s=long_ago)
    table, _ = see(one, machines=[machine("a")])
    assert only(table).asked_s == 0.0


# ---------------------------------------------------------------- unknown machines


def test_a_machine_with_a_living_node_is_adopted() -> None:
    table, _ = see(machines=[machine("a")], nodes=[node("a")])
    one = only(table)
    assert (one.state, one.machine_id, one.node_id, one.node_type) == (S.RUNNING, "m-a", b"a", "small")


def test_a_machine_without_node_has_a_while_and_goes() -> None:
    table, events = see(machines=[machine("a")])
    one = only(table)
    assert one.state is S.SETTING_UP
    assert one.settled, "it is not set up again"
    table, events = see(one, machines=[machine("a")], now=NOW + SETTINGS.adopt_grace_s)
    assert only(table).state is S.TERMINATING
    assert not kinds(events, SetupKnown), "its type is not to blame"
    table, _ = see(one, machines=[machine("a")], nodes=[node("a")], now=NOW + 1)
    assert only(table).state is S.RUNNING


def test_an_adopted_machine_with_a_dead_node_is_nobodys_fault() -> None:
    adopted = instance("a", state=S.SETTING_UP, settled=True, adopted=True, expires_s=NOW + 5)
    table, events = see(adopted, nodes=[node("a", state="DEAD")])
    assert only(table).state is S.TERMINATING
    assert not kinds(events, SetupKnown)


@pytest.mark.parametrize("state", [M.STOPPING, M.STOPPED])
def test_an_unknown_stopped_machine_goes(state: MachineState) -> None:
    table, _ = see(machines=[machine("a", state=state)])
    assert only(table).state is S.TERMINATING


def test_the_head_and_machines_of_others_are_left_alone() -> None:
    others = [
        machine("head", role=MachineTags.HEAD),
        machine("x", cluster="other"),
        Machine("m-y", M.RUNNING, "small", {}),
    ]
    table, events = see(machines=others)
    assert len(table) == 0
    assert events == []


@pytest.mark.parametrize("state", sorted(TERMINAL, key=lambda s: s.name))
def test_a_machine_of_an_instance_that_had_ended_goes(state: S) -> None:
    table, _ = see(instance("a", state=state), machines=[machine("a")])
    assert only(table).state is S.TERMINATING
    assert only(table).machine_id == "m-a"


def test_a_second_machine_of_one_name_goes_and_the_first_stays() -> None:
    table, _ = see(instance("a", state=S.SETTING_UP), machines=[machine("a"), machine("a", id="m-twin")])
    assert {i.machine_id: i.state for i in table} == {"m-a": S.SETTING_UP, "m-twin": S.TERMINATING}
    table, events = see(*table, machines=[machine("a"), machine("a", id="m-twin")])
    assert not kinds(events, Adopted), "once is enough"


def test_a_machine_without_a_name_goes() -> None:
    nameless = Machine("m-1", M.RUNNING, "small", {MachineTags.CLUSTER_ID: "cluster"})
    table, _ = see(machines=[nameless])
    assert only(table).state is S.TERMINATING


# ---------------------------------------------------------------- all of it


@pytest.mark.parametrize("state", list(S))
def test_quiet_facts_cause_no_events(state: S) -> None:
    """What is as it should be leaves the table as it is."""
    one = instance("a", state=state)
    nodes = [node("a")] if state is S.RUNNING else []
    if state is S.DRAINING:
        nodes = [node("a", state="DRAINING")]
    machines = (
        [machine("a", state=M.PENDING if state is S.ALLOCATED else M.RUNNING)] if one.machine_id else []
    )
    one = replace(one, address="10.0.0.1" if machines else "")
    if state in TERMINAL:
        machines = []
    _, events = see(one, nodes=nodes, machines=machines)
    assert events == []


def test_the_listings_word_counts_more_than_an_answers() -> None:
    answer = Created("token", LaunchResult((machine("a", state=M.PENDING),)))
    facts = Facts((), Listing(NOW, (machine("a"),)), (answer,))
    assert machines_of(facts)["m-a"].state is M.RUNNING
