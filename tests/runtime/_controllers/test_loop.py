"""The loop by itself: timers, requests, limits of waits, stalls and ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from runtime._controllers.controller import (
    Begin,
    Done,
    Effect,
    Event,
    Item,
    Overdue,
    Reply,
    Requested,
    ResultOf,
    Sleep,
    Stop,
    Store,
    Submit,
    Take,
    TimerFired,
    Wait,
)
from runtime._controllers.loop import Ended, Loop
from tests.sim.controllers.world import Chances, SimEngine, SimStream
from tests.sim.events import Events


class Scripted:
    """A controller that answers events by a function, and remembers them with their times."""

    def __init__(self, react: Callable[[Event, float], Sequence[Effect]]) -> None:
        self._react = react
        self.events: list[tuple[float, Event]] = []
        self.waits: list[Wait] = []

    def step(self, event: Event, now: float) -> Sequence[Effect]:
        self.events.append((round(now - 1000, 3), event))
        return self._react(event, now)

    def waiting_for(self) -> Sequence[Wait]:
        return self.waits


def engine(seed: int = 0) -> SimEngine:
    return SimEngine(Events(seed), Chances())


def run(react: Callable[[Event, float], Sequence[Effect]], **options: Any) -> tuple[Any, Scripted]:
    controller = Scripted(react)
    return Loop(controller, engine(), **options).run(), controller


def test_timers_fire_in_order_and_the_last_of_a_key_counts() -> None:
    def react(event: Event, now: float) -> list[Effect]:
        match event:
            case Begin():
                return [
                    Sleep("b", 2),
                    Sleep("a", 1),
                    Sleep("c", 3),
                    Sleep("c", -1),
                    Sleep("d", 1),
                    Sleep("d", 5),
                ]
            case TimerFired("d"):
                return [Stop("end")]
        return []

    value, controller = run(react)
    assert value == "end"
    assert controller.events[1:] == [(1, TimerFired("a")), (2, TimerFired("b")), (5, TimerFired("d"))]


def test_the_error_of_stop_and_of_the_controller_end_the_loop() -> None:
    with pytest.raises(KeyError):
        run(lambda _event, _now: [Stop(error=KeyError("x"))])
    with pytest.raises(ZeroDivisionError):
        run(lambda _event, now: [Sleep("x", now // 0)])


def test_requests_are_answered_from_any_thread_and_refused_after_the_end() -> None:
    answers: list[Any] = []

    def react(event: Event, now: float) -> list[Effect]:
        match event:
            case Begin():
                return [Store("kept", "value"), Sleep("end", 30)]
            case Requested(number, "double"):
                return [Reply(number, 2)]
            case Requested(number, "kept"):
                return [Reply(number, ResultOf("kept"))]
            case Requested(number, "bad"):
                return [Reply(number, error=ValueError("bad"))]
            case Requested(_, "never"):
                return []
            case TimerFired():
                return [Stop()]
        return []

    ours = engine()
    loop = Loop(Scripted(react), ours)
    futures: list[Future[Any]] = []

    def ask() -> None:
        futures.extend(loop.request(what) for what in ("double", "kept", "bad", "never"))
        futures[0].add_done_callback(lambda future: answers.append(future.result()))

    def from_a_thread() -> None:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    ours.world.at(1, from_a_thread)
    loop.run()
    assert answers == [2]
    assert futures[1].result() == "value"
    with pytest.raises(ValueError, match="bad"):
        futures[2].result()
    for future in (futures[3], loop.request("late")):
        with pytest.raises(Ended):
            future.result()


def test_a_wait_that_lasts_too_long_is_told_once() -> None:
    wait = Wait("x", "the x", 1000.0, limit_s=7)

    def react(event: Event, _now: float) -> list[Effect]:
        match event:
            case Begin():
                controller.waits = [wait, Wait("y", "the y", 1000.0, limit_s=20)]
                return [Sleep("often", 0.5)]
            case TimerFired():
                return [Sleep("often", 0.5)]
            case Overdue(Wait("y")):
                return [Stop()]
        return []

    controller = Scripted(react)
    Loop(controller, engine()).run()
    overdue = [(at, event.wait.key) for at, event in controller.events if isinstance(event, Overdue)]
    assert [key for _, key in overdue] == ["x", "y"]
    assert 7 <= overdue[0][0] <= 8
    assert 20 <= overdue[1][0] <= 21


def test_limits_hold_while_nothing_happens() -> None:
    def react(event: Event, _now: float) -> list[Effect]:
        controller.waits = [Wait("x", "the x", 1000.0, limit_s=100)]
        return [Stop()] if isinstance(event, Overdue) else []

    controller = Scripted(react)
    Loop(controller, engine()).run()
    assert controller.events[-1][0] == 100


def test_a_stall_is_reported_with_what_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    waits = [Wait(n, f"number {n}", 1000.0 + n) for n in range(12)]

    def react(event: Event, _now: float) -> list[Effect]:
        controller.waits = waits
        return [Sleep("end", 300)] if isinstance(event, Begin) else [Stop()]

    controller = Scripted(react)
    with caplog.at_level(logging.WARNING):
        Loop(controller, engine(), name="the farm", stall_s=10).run()
    reports = [record.getMessage() for record in caplog.records]
    assert len(reports) == 5  # after 10, 20, 40, 80 and 160 s
    assert reports[0].startswith(
        "the farm: nothing has happened for 10 s. It waits for number 0 (for 10 s); number 1"
    )
    assert reports[0].endswith("; and 2 more.")


def test_timers_are_nothing_that_happens(caplog: pytest.LogCaptureFixture) -> None:
    def react(event: Event, now: float) -> list[Effect]:
        controller.waits = [Wait("task", "a task", 1000.0)]
        return [Sleep("tick", 1)] if now < 1035 else [Stop()]

    controller = Scripted(react)
    with caplog.at_level(logging.WARNING):
        Loop(controller, engine(), name="the farm", stall_s=10).run()
    reports = [record.getMessage() for record in caplog.records]
    assert [report[:41] for report in reports] == [
        f"the farm: nothing has happened for {seconds} s. " for seconds in (10, 20)
    ]


def test_who_waits_for_nothing_does_not_stall(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(lambda event, _now: [Sleep("end", 300)] if isinstance(event, Begin) else [Stop()], stall_s=1)
    assert not caplog.records


@pytest.mark.parametrize("seed", range(20))
def test_items_come_when_they_are_asked_for(seed: int) -> None:
    credit = 1 + seed % 3

    def react(event: Event, _now: float) -> list[Effect]:
        match event:
            case Begin():
                return [Submit("s", SimStream(10)), Take("s", credit)]
            case Item("s", _):
                return [Take("s", 1)]
            case Done("s"):
                return [Stop()]
        return []

    controller = Scripted(react)
    Loop(controller, engine(seed)).run()
    items = [event.index for _, event in controller.events if isinstance(event, Item)]
    assert items == list(range(10))


def test_a_cancelled_future_harms_nobody() -> None:
    def react(event: Event, _now: float) -> list[Effect]:
        match event:
            case Requested(number):
                return [Reply(number, 1), Stop()]
        return []

    ours = engine()
    loop = Loop(Scripted(react), ours)
    ours.world.at(1, lambda: loop.request("x").cancel())
    loop.run()
