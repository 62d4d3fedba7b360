"""The background thread of a pump: one test walks every edge of its table, without threads and without time."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime._core.fsm import reachable_states, terminal_states
from runtime._transport import background as module
from runtime._transport.background import (
    LONG_NAP_S,
    NAP_S,
    NAPS_BEFORE_SLEEP,
    TRANSITIONS,
    Background,
    Event,
    Phase,
)


class FakePump:
    """A pump whose callers do what `during` says, nap by nap and round by round."""

    def __init__(self) -> None:
        self.stopped = False
        self.dirty: list[Any] = []
        self.followers: list[Any] = []
        self.rounds = 0
        self.in_burst = False
        self.is_led = False
        self.done: list[str] = []
        self.during: Callable[[], None] = lambda: None

    def try_to_lead(self) -> bool:
        if self.is_led:
            return False
        self.is_led = True
        return True

    def stop_leading(self) -> None:
        assert self.is_led
        self.is_led = False

    def background_round(self) -> None:
        assert self.is_led
        self.done.append("round")
        self.during()

    def poll_once(self) -> None:
        self.done.append("poll")

    def flush_all(self) -> None:
        self.done.append("flush")
        self.dirty = []


class Walk:
    """A background thread without a thread."""

    def __init__(self) -> None:
        self.pump = FakePump()
        self.naps: list[float] = []
        self.background = Background(self.pump, self._nap)

    def _nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.pump.during()

    @property
    def phase(self) -> Phase:
        return self.background.machine.state

    def turn(self, during: Callable[[], None] = lambda: None) -> Phase:
        self.pump.during = during
        self.background.turn()
        return self.phase


@pytest.fixture
def walk() -> Iterator[Walk]:
    walk = Walk()
    yield walk
    walk.background.alarm.close()


@pytest.fixture
def epoll() -> Iterator[select.epoll]:
    with select.epoll() as epoll:
        yield epoll


def caller_leads(walk: Walk, found: bool) -> Callable[[], None]:
    def lead() -> None:
        walk.pump.is_led = True
        walk.pump.rounds += found

    return lead


def asleep(walk: Walk) -> None:
    """A caller leads for long, and finds nothing."""
    walk.pump.is_led = True
    for _ in range(NAPS_BEFORE_SLEEP):
        assert walk.phase is Phase.NAPPING
        walk.turn()
    assert walk.phase is Phase.SLEEPING


def test_the_table_is_complete() -> None:
    assert reachable_states(Phase.NAPPING, TRANSITIONS) == set(Phase)
    assert terminal_states(Phase, TRANSITIONS) == {Phase.ENDED}
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_it_leads_when_nobody_waits_until_a_caller_does(walk: Walk) -> None:
    assert walk.turn() is Phase.LEADING
    assert walk.naps == [NAP_S]
    rounds = iter([lambda: None, lambda: walk.pump.followers.append("a caller")])
    assert walk.turn(lambda: next(rounds)()) is Phase.NAPPING
    assert walk.pump.done == ["round", "round"]
    assert not walk.pump.is_led


def test_it_naps_while_callers_lead_in_turns(walk: Walk) -> None:
    for _ in range(3 * NAPS_BEFORE_SLEEP):
        assert walk.turn(caller_leads(walk, found=True)) is Phase.NAPPING
        walk.pump.is_led = False
    walk.pump.followers.append("another")
    for _ in range(3 * NAPS_BEFORE_SLEEP):
        assert walk.turn() is Phase.NAPPING
    assert walk.pump.done == []


def test_it_sends_for_a_caller_that_leads_for_long(walk: Walk) -> None:
    walk.pump.is_led = True
    walk.turn(lambda: walk.pump.dirty.append("a connection"))
    assert walk.pump.done == ["flush"]


def test_it_sleeps_while_one_caller_leads_for_long_and_the_alarm_wakes_it(walk: Walk) -> None:
    asleep(walk)
    walk.background.alarm.ring()
    walk.pump.dirty.append("a connection")  # why it was rung
    assert walk.turn() is Phase.NAPPING
    assert walk.pump.done == ["flush"]
    assert not walk.background.alarm.armed
    assert len(walk.naps) == NAPS_BEFORE_SLEEP  # no nap before it looks


def test_it_leads_when_the_long_leader_has_gone(walk: Walk) -> None:
    asleep(walk)
    walk.pump.is_led = False  # just before it slept: there is nothing to wait for
    assert walk.turn() is Phase.LEADING


def test_a_burst_of_a_caller_ends_its_lead(walk: Walk) -> None:
    walk.turn()
    assert walk.turn(lambda: setattr(walk.pump, "in_burst", True)) is Phase.NAPPING
    assert walk.pump.done == ["round"]
    assert not walk.pump.is_led


@pytest.mark.parametrize("leads", [False, True])
def test_beside_an_event_loop_it_helps_after_the_loop_had_its_time(
    walk: Walk, epoll: select.epoll, leads: bool
) -> None:
    if leads:
        walk.turn()
    assert walk.turn(lambda: walk.background.assist(epoll.fileno())) is Phase.ASSISTING
    assert not walk.pump.is_led
    before = len(walk.naps)
    walk.pump.dirty.append("a connection")
    assert walk.turn() is Phase.ASSISTING
    walk.pump.dirty = []
    walk.background.alarm.ring()
    assert walk.turn() is Phase.ASSISTING
    assert walk.naps[before:] == [NAP_S, LONG_NAP_S]
    assert walk.pump.done[-2:] == ["poll", "poll"]


@pytest.mark.parametrize("phase", [Phase.NAPPING, Phase.SLEEPING, Phase.LEADING])
def test_a_failure_is_logged_and_survived(walk: Walk, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    monkeypatch.setattr(module, "report", reports.append)
    failures = iter([True])

    def fail_once() -> None:
        if next(failures, False):
            raise RuntimeError("unforeseen")
        walk.pump.stopped = True

    if phase is Phase.SLEEPING:
        asleep(walk)
        walk.pump.dirty.append("a connection")
        walk.pump.flush_all = fail_once  # type: ignore[method-assign]
    elif phase is Phase.LEADING:
        walk.turn()
    assert walk.phase is phase
    walk.pump.during = fail_once
    walk.background.run()
    assert reports == ["the background thread"]
    assert walk.phase is Phase.ENDED
    assert not walk.pump.is_led or phase is Phase.SLEEPING  # a caller leads still


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_stopped_pump_ends_it_and_it_leads_no_more(walk: Walk, epoll: select.epoll, phase: Phase) -> None:
    if phase is Phase.SLEEPING:
        asleep(walk)
        walk.pump.is_led = False
    elif phase is not Phase.NAPPING:
        walk.turn()
    if phase is Phase.ASSISTING:
        walk.turn(lambda: walk.background.assist(epoll.fileno()))
    assert walk.phase is phase
    walk.pump.stopped = True
    walk.background.run()
    assert walk.phase is Phase.ENDED
    assert not walk.pump.is_led


def test_what_it_meets_when_the_pump_has_closed_everything_is_no_failure(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "report", lambda what: pytest.fail(what))
    walk.turn()

    def close() -> None:
        walk.pump.stopped = True
        raise OSError("a closed descriptor")

    walk.pump.during = close
    walk.background.run()
    assert walk.phase is Phase.ENDED
    assert not walk.pump.is_led
