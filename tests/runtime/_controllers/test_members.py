"""Groups of actors and what policies make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from runtime._controllers.controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Begin,
    Call,
    CreateActor,
    CreateGang,
    Done,
    Effect,
    Event,
    Failed,
    Kill,
    TimerFired,
)
from runtime._controllers.members import TRANSITIONS, GangSpec, Group, GroupSpec, MemberEvent, MemberState
from runtime._controllers.policies import AllOrNone, Elastic, OneByOne, Policy, Reused
from runtime._core.fsm import InvalidTransition, reachable_states, terminal_states
from runtime.exceptions import ActorDiedError, RayTaskError

LOST = RuntimeError("lost")


def group(policy: Policy, **options: Any) -> Group:
    return Group(GroupSpec("g", "class", **options), policy)


def created(effects: Sequence[Effect]) -> list[Any]:
    return [effect.key for effect in effects if isinstance(effect, CreateActor)]


def killed(effects: Sequence[Effect]) -> list[Any]:
    return [effect.actor for effect in effects if isinstance(effect, Kill)]


def begun(made: Group, waiting: int = 0, up: bool = True) -> list[Any]:
    """Creates the first members and has them come up."""
    keys = created(made.step(Begin(), 0.0, waiting))
    if up:
        for key in keys:
            made.step(ActorUp(key, "node"), 1.0, waiting)
    return keys


def test_the_table_is_whole() -> None:
    assert reachable_states(MemberState.STARTING, TRANSITIONS) == set(MemberState)
    assert terminal_states(MemberState, TRANSITIONS) == {MemberState.DEAD}
    for state in MemberState:
        if state is not MemberState.DEAD:
            assert (state, MemberEvent.DIED) in TRANSITIONS
            assert (state, MemberEvent.RESTARTS) in TRANSITIONS
    made = group(OneByOne(1))
    (key,) = begun(made)
    with pytest.raises(InvalidTransition, match="member"):
        made.members[key].move(MemberEvent.UP, 2.0)


def test_calls_go_to_the_member_with_the_fewest() -> None:
    made = group(OneByOne(2), most_calls=2)
    first, second = begun(made)
    targets = []
    for number in range(4):
        (call,) = made.call(number, "work", [number], 2.0)
        assert isinstance(call, Call)
        targets.append(call.actor)
    assert targets == [first, second, first, second]
    assert made.free == 0
    assert made.call(5, "work", [], 2.0) == []
    assert made.step(Done(1), 3.0) == []
    assert made.free == 1
    assert [call.actor for call in made.call(5, "work", [], 3.0) if isinstance(call, Call)] == [second]


def test_a_member_can_be_chosen() -> None:
    made = group(OneByOne(2))
    _, second = begun(made)
    (call,) = made.call("x", "work", [], 2.0, member=second)
    assert isinstance(call, Call)
    assert call.actor == second
    assert made.call("y", "work", [], 2.0, member=("g", 99)) == []


def test_a_drained_member_ends_after_its_calls() -> None:
    made = group(OneByOne(1), most_calls=2)
    (key,) = begun(made)
    made.call("a", "work", [], 2.0)
    made.call("b", "work", [], 2.0)
    assert made.drain(key, 3.0) == []
    assert made.call("c", "work", [], 3.0) == []
    assert killed(made.step(Done("a"), 4.0)) == []
    assert killed(made.step(Failed("b", LOST), 5.0)) == [key]
    made.step(ActorDied(key, "killed"), 6.0)
    assert key not in made.members


def test_a_restart_keeps_calls_that_are_retried() -> None:
    made = group(OneByOne(1))
    (key,) = begun(made)
    made.call("a", "work", [], 2.0)
    made.step(ActorLost(key, "crash"), 3.0)
    assert made.members[key].state is MemberState.STARTING
    assert made.free == 0
    made.step(ActorUp(key, "other", 1), 4.0)
    assert made.members[key].state is MemberState.BUSY
    assert made.members[key].node_id == "other"
    made.step(Done("a"), 5.0)
    assert made.members[key].state is MemberState.READY


def test_waits_name_members_and_limits() -> None:
    made = group(OneByOne(3), start_limit_s=60)
    first, second, _ = begun(made, up=False)
    made.step(ActorUp(first), 1.0)
    made.call("a", "work", [], 2.0)
    made.step(ActorUp(second), 3.0)
    waits = made.waiting_for()
    assert [(wait.since_s, wait.limit_s) for wait in waits] == [(2.0, None), (0.0, 60)]
    assert "has 1 calls" in waits[0].what
    assert "starts" in waits[1].what


def test_events_of_others_change_nothing() -> None:
    made = group(OneByOne(1))
    begun(made)
    others: list[Event] = [ActorUp("x"), ActorLost("x"), ActorDied("x"), Done("x"), Failed("x", LOST)]
    for event in others:
        assert made.step(event, 2.0) == []


def test_all_or_none_starts_again_when_all_have_ended() -> None:
    made = group(AllOrNone(3, failures=1))
    keys = begun(made)
    assert len(keys) == 3
    effects = made.step(ActorDied(keys[1], "crash"), 2.0)
    assert killed(effects) == [keys[0], keys[2]]
    assert created(effects) == []
    assert made.step(ActorDied(keys[0], "killed"), 3.0) == []
    again = created(made.step(ActorDied(keys[2], "killed"), 4.0))
    assert len(again) == 3
    made.step(ActorDied(again[0], "crash again"), 5.0)
    assert made.failure == "a member has died: crash again"
    assert made.step(ActorDied(again[1], "killed"), 6.0) == []


def test_a_gang_is_created_by_one_effect() -> None:
    spec = GroupSpec(
        "g", "class", options_of=lambda number: {"num_cpus": number}, gang=GangSpec({"CPU": 2}, "SPREAD")
    )
    made = Group(spec, AllOrNone(2, failures=1))
    (effect,) = made.step(Begin(), 0.0)
    assert isinstance(effect, CreateGang)
    assert [actor.key for actor in effect.actors] == [*made.members]
    assert [actor.options["num_cpus"] for actor in effect.actors] == [0, 1]
    assert (effect.bundles, effect.strategy) == ([{"CPU": 2}, {"CPU": 2}], "SPREAD")
    first, second = made.members
    made.step(ActorDied(first, "crash"), 2.0)
    (again,) = made.step(ActorDied(second, "its gang has died"), 3.0)
    assert isinstance(again, CreateGang)
    assert not {first, second} & {actor.key for actor in again.actors}


def test_a_gang_may_choose_its_nodes_by_labels() -> None:
    for selectors in ({"zone": "a"}, [{"zone": "a"}, {"zone": "b"}]):
        spec = GroupSpec("g", "class", gang=GangSpec({"CPU": 1}, selectors=selectors))
        (effect,) = Group(spec, AllOrNone(2)).step(Begin(), 0.0)
        assert isinstance(effect, CreateGang)
        assert [*effect.selectors] == ([selectors] * 2 if isinstance(selectors, dict) else selectors)


def test_all_or_none_counts_deaths_at_once_as_one() -> None:
    made = group(AllOrNone(2, failures=1))
    first, second = begun(made)
    made.step(ActorDied(first, "crash"), 2.0)
    made.step(ActorDied(second, "crash too"), 2.0)
    assert made.failure == ""
    assert len(made.members) == 2


def test_one_by_one_replaces_and_resizes() -> None:
    policy = OneByOne(2, failures=1)
    made = group(policy)
    first, second = begun(made)
    (third,) = created(made.step(ActorDied(first, "crash"), 2.0))
    made.step(ActorUp(third), 3.0)
    policy.resize(3)
    (fourth,) = created(made.adjust(0, 4.0))
    policy.resize(1)
    made.step(ActorUp(fourth), 4.5)
    assert set(made.members) == {second, third, fourth}
    assert len(made.in_state(MemberState.DRAINING)) == 2
    made.step(ActorDied(made.in_state(MemberState.READY)[0].key, "crash"), 5.0)
    assert made.failure


def test_elastic_grows_with_work_and_shrinks_without() -> None:
    made = group(Elastic(1, 3, idle_s=5))
    (first,) = begun(made)
    grown = created(made.adjust(10, 2.0))
    assert len(grown) == 2
    assert created(made.adjust(10, 2.0)) == []
    for key in grown:
        made.step(ActorUp(key), 3.0, 10)
    made.call("a", "work", [], 3.0, member=first)
    assert killed(made.step(TimerFired("tick"), 7.0)) == []
    assert sorted(killed(made.step(TimerFired("tick"), 8.0))) == sorted(grown)


def test_elastic_counts_room_and_members_that_start() -> None:
    made = group(Elastic(0, 10, idle_s=5), most_calls=2)
    assert begun(made) == []
    assert len(created(made.adjust(3, 1.0))) == 3
    assert created(made.adjust(3, 1.0)) == []


def test_reused_keeps_some_for_later() -> None:
    made = group(Reused(3, kept=1))
    assert begun(made) == []
    keys = created(made.adjust(5, 0.0))
    assert len(keys) == 3
    for at, key in enumerate(keys):
        made.step(ActorUp(key), float(at), 5)
        made.call(f"call {key[1]}", "work", [], float(at), member=key)
    assert killed(made.step(Done("call 0"), 10.0)) == []
    assert killed(made.step(Done("call 1"), 11.0)) == [keys[0]]
    assert created(made.step(ActorDied(keys[0], "killed"), 12.0)) == []


def test_members_that_never_start_are_not_replaced_for_ever() -> None:
    made = group(OneByOne(1), failed_starts=3)
    (key,) = begun(made)
    for number in range(2):
        (key,) = created(made.step(ActorDied(key, f"crash {number}"), 2.0))
    made.step(ActorUp(key), 3.0)  # breaks the row
    for _ in range(3):
        (key,) = created(made.step(ActorDied(key, "no module"), 4.0))
    assert made.step(ActorDied(key, "no module"), 5.0) == []
    assert made.failure == "3 members in a row died before they were ready: no module"


def test_the_end_of_a_group() -> None:
    made = group(OneByOne(2))
    keys = begun(made)
    made.call("a", "work", [], 2.0)
    assert killed(made.end(3.0)) == keys
    assert made.step(ActorDied(keys[0], "killed"), 4.0) == []
    assert made.failure


def test_who_is_known_to_be_dead_gets_no_calls_before_the_death_is_told() -> None:
    made = group(OneByOne(1), most_calls=2)
    (key,) = begun(made)
    made.call("a", "work", [], 2.0)
    made.step(Failed("a", LOST), 2.0)
    assert made.free == 2
    made.call("b", "work", [], 2.0)
    made.step(Failed("b", ActorDiedError("it was killed")), 2.0)
    assert made.free == 0
    assert made.call("c", "work", [], 2.0) == []
    assert made.call("c", "work", [], 2.0, member=key) == []
    assert "to be dead or to restart" in made.waiting_for()[0].what
    (other,) = created(made.step(ActorDied(key, "it was killed"), 3.0))
    made.step(ActorUp(other, "node"), 4.0)
    assert made.free == 2


def test_a_call_tells_of_the_process_that_the_member_had() -> None:
    made = group(OneByOne(1), most_calls=2)
    (key,) = begun(made)
    made.call("a", "work", [], 2.0)
    made.call("b", "work", [], 2.0)
    made.step(Failed("a", ActorDiedError()), 2.0)
    assert made.free == 0
    made.step(ActorLost(key), 3.0)
    made.step(ActorUp(key, "node", 1), 4.0)
    assert made.free == 1
    made.step(Failed("b", ActorDiedError()), 5.0)  # of the first process, told late
    assert made.free == 2
    made.call("c", "work", [], 6.0)
    made.step(Failed("c", ActorDiedError()), 7.0)
    assert made.free == 0
    made.step(ActorUp(key, "node", 2), 8.0)  # the end of the second process was not told by itself
    assert made.free == 2


def test_an_error_of_a_call_that_itself_called_a_dead_actor_is_no_death() -> None:
    made = group(OneByOne(1))
    begun(made)
    made.call("a", "work", [], 2.0)
    inner = RayTaskError("work", "traceback", ActorDiedError("another one")).as_instanceof_cause()
    assert isinstance(inner, ActorDiedError)
    made.step(Failed("a", inner), 2.0)
    assert made.free == 1
