"""Which calls are due, from a table alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.config import Budgets
from autoscaler.dispatch import Dispatch
from autoscaler.effects import (
    CallFailed,
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.instances import Instance, InstanceState, InstanceTable, Transition
from autoscaler.provider import Machine, Throttled
from tests.autoscaler.build import NOW, SMALL, config, instance, machine

S = InstanceState
SETTINGS = config(SMALL, log_dir="/logs")


class Desk:
    """A table with the dispatch on it."""

    def __init__(self, *instances: Instance) -> None:
        self.table = InstanceTable({one.id: one for one in instances})
        self.dispatch = Dispatch(self.table)
        self.settings = SETTINGS
        self.machines: dict[str, Machine] = {
            one.machine_id: machine(one.id) for one in instances if one.machine_id
        }

    def due(self, now: float = NOW) -> Sequence[Effect]:
        return self.dispatch.due(self.settings, self.machines, now)

    def ended(self, outcome: Outcome) -> None:
        self.dispatch.ended(outcome, NOW)

    def again(self, name: str, not_before_s: float = 0.0) -> None:
        """Notes what the observer does after a failed call: that it is to be made again."""
        self.table.note(replace(self.table[name], asked_s=0.0, not_before_s=not_before_s), NOW)


def test_every_state_has_its_call_and_machines_end_before_others_are_made() -> None:
    desk = Desk(
        instance("q", state=S.QUEUED, token="t"),
        instance("a", state=S.ALLOCATED),
        instance("s", state=S.SETTING_UP),
        instance("r", state=S.RUNNING),
        instance("b", state=S.RUNNING, recalled=True),
        instance("d", state=S.DRAINING),
        instance("e", state=S.TERMINATING),
    )
    effects = desk.due()
    assert [type(effect) for effect in effects] == [Terminate, Drain, Resume, SetUp, Create]
    assert effects[0] == Terminate(("m-e",))
    assert isinstance(effects[3], SetUp)
    assert effects[3].log_path == desk.table["s"].setup_log == "/logs/setup-s.log"
    assert desk.table["q"].state is S.REQUESTED
    assert desk.table["q"].asked_s == NOW
    assert desk.due() == [], "each is waited for"


def test_a_call_is_made_again_only_after_its_answer_and_its_pause() -> None:
    desk = Desk(instance("d", state=S.DRAINING), instance("e", state=S.TERMINATING))
    assert len(desk.due()) == 2
    desk.again("d")
    desk.again("e", not_before_s=NOW + 5.0)
    assert desk.due() == [], "nobody has answered"
    assert desk.dispatch.is_draining("d")
    desk.ended(Drained("d"))
    desk.ended(Terminated({"m-e": None}))
    assert not desk.dispatch.is_draining("d")
    assert [type(effect) for effect in desk.due()] == [Drain]
    assert [type(effect) for effect in desk.due(NOW + 5.0)] == [Terminate]


def test_an_answered_call_is_not_made_again_by_itself() -> None:
    desk = Desk(
        instance("s", state=S.SETTING_UP),
        instance("b", state=S.RUNNING, recalled=True),
        instance("q", state=S.QUEUED, token="t"),
    )
    assert len(desk.due()) == 3
    for outcome in (SetUpEnded("s"), Resumed("b"), Created("t")):
        desk.ended(outcome)
    assert desk.due() == []


def test_a_repeated_create_names_the_whole_batch_but_what_was_cancelled() -> None:
    desk = Desk(*(instance(name, state=S.QUEUED, token="t") for name in ("a", "b", "c")))
    desk.table.apply(Transition("c", S.CANCELLED, "not wanted"), NOW)
    (first,) = desk.due()
    assert isinstance(first, Create)
    assert first.request.instance_ids == ("a", "b")
    desk.table.apply(Transition("a", S.ALLOCATED, "made", machine_id="m-a"), NOW)
    desk.again("b")
    desk.ended(Created("t"))
    (second,) = desk.due()
    assert second == first


def test_a_platform_that_asks_to_be_left_alone_still_has_its_nodes_drained() -> None:
    desk = Desk(
        instance("q", state=S.QUEUED, token="t"),
        instance("d", state=S.DRAINING),
        instance("e", state=S.TERMINATING),
    )
    desk.ended(CallFailed(Throttled("too many calls", retry_after_s=9.0)))
    assert [type(effect) for effect in desk.due()] == [Drain]
    until_s = desk.dispatch.throttle.until_s
    assert until_s == NOW + 9.0
    assert [type(effect) for effect in desk.due(until_s)] == [Terminate, Create]


def test_only_so_many_setups_and_creations_are_under_way() -> None:
    desk = Desk(
        *(instance(f"s{number}", state=S.SETTING_UP) for number in range(3)),
        *(instance(f"q{number}", state=S.QUEUED, token=f"t{number}") for number in range(3)),
    )
    desk.settings = config(SMALL, budgets=Budgets(max_setting_up=2, max_creating=1))
    assert [type(effect) for effect in desk.due()] == [SetUp, SetUp, Create]
    desk.ended(SetUpEnded("s0"))
    desk.ended(Created("t0"))
    assert [type(effect) for effect in desk.due()] == [SetUp, Create]


def test_a_type_that_the_configuration_lacks_gets_no_call() -> None:
    desk = Desk(instance("s", "other", S.SETTING_UP), instance("q", "other", S.QUEUED))
    assert desk.due() == []
