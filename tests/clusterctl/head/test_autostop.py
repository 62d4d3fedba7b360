"""When a cluster ends by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoscaler.status import Report
from clusterctl.head import autostop, log_ins
from clusterctl.head.autostop import SETUPS_COUNT_S, Facts, Idleness, uses
from clusterctl.spec.definition import Autostop
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages import control as messages
from runtime._wire.messages.base import ErrorKind

TEN = Autostop(idle_minutes=10)


def test_nothing_to_do_is_idle() -> None:
    assert uses(Facts()) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(jobs=["job-1"]), "jobs: job-1"),
        (Facts(drivers=1), "1 program is connected"),
        (Facts(working=2), "2 nodes work"),
        (Facts(waiting=3), "3 requests wait or hold their place"),
        (Facts(setups=["w-1"]), "being set up: w-1"),
        (Facts(log_ins=["ann by SSH (pts/0)"]), "log-ins: ann by SSH (pts/0)"),
        (Facts(unknown=["who is logged in"]), "not known: who is logged in"),
    ],
)
def test_every_use_counts_and_is_named(facts: Facts, words: str) -> None:
    assert uses(facts) == [words]


def test_it_is_over_after_the_whole_time_without_a_break() -> None:
    idle = Idleness(0.0).after(Facts(), 300.0)
    assert not idle.is_over(TEN, 599.0)
    assert idle.is_over(TEN, 600.0)


def test_a_use_begins_the_time_anew() -> None:
    idle = Idleness(0.0).after(Facts(jobs=["job-1"]), 599.0)
    assert not idle.after(Facts(), 1198.0).is_over(TEN, 1198.0)
    assert idle.after(Facts(), 1199.0).is_over(TEN, 1199.0)


def test_what_is_not_known_counts_as_use() -> None:
    assert not Idleness(0.0).after(Facts(unknown=["anything"]), 6000.0).is_over(TEN, 6000.0)


def test_a_request_that_changed_something_begins_the_time_anew() -> None:
    idle = Idleness(0.0).after(Facts(touched_s=500.0), 600.0)
    assert not idle.is_over(TEN, 1099.0)
    assert idle.is_over(TEN, 1100.0)


def test_set_ups_that_only_fail_count_for_a_while() -> None:
    idle = Idleness(0.0).after(Facts(jobs=["job-1"]), 100.0)
    for now in range(200, 100 + int(SETUPS_COUNT_S), 100):
        idle = idle.after(Facts(setups=["i-1"]), float(now))
        assert idle.is_used
    late = 100.0 + SETUPS_COUNT_S
    idle = idle.after(Facts(setups=["i-2"]), late)
    assert not idle.is_over(TEN, late)
    idle = idle.after(Facts(setups=["i-3"]), late + 600.0)
    assert idle.is_over(TEN, late + 600.0)
    assert idle.after(Facts(setups=["i-4"], touched_s=late + 601.0), late + 602.0).is_used


class Quiet:
    """A control store of a cluster that nobody uses."""

    def __init__(self) -> None:
        self.is_there = True

    async def call(self, request: Any, timeout_s: float = 0.0) -> Any:
        if not self.is_there:
            raise CallError(ErrorKind.UNAVAILABLE, "gone")
        if isinstance(request, messages.ListJobs):
            return SimpleNamespace(jobs=[])
        return SimpleNamespace(nodes=[], demands=[], groups=[], requesters=[])


class Rig:
    """An `Autostop` whose ends are noted instead of carried out. The first ones find a use after all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: Autostop | None, late_uses: int = 0) -> None:
        monkeypatch.setattr(log_ins, "found", list)
        monkeypatch.setattr(autostop, "_SOON_S", 0.01)
        self.control = Quiet()
        self.ends: list[tuple[bool, bool]] = []
        self.late_uses = late_uses
        report = Report(0.0, "c", 1)
        self.autostop = autostop.Autostop(
            cast(ControlClient, self.control), list, lambda: report, self.end, policy
        )

    async def end(self, down: bool, now: bool) -> bool:
        self.ends.append((down, now))
        return len(self.ends) > self.late_uses


def test_it_ends_when_it_is_time_and_a_late_use_begins_the_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, Autostop(idle_minutes=0.001, down=True), late_uses=2)
    asyncio.run(rig.autostop.run())
    assert rig.ends == [(True, False)] * 3


def test_what_it_cannot_find_out_keeps_it_and_told_so_it_ends_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def live() -> list[str]:
        rig = Rig(monkeypatch, Autostop(idle_minutes=0.0))
        rig.control.is_there = False
        running = asyncio.create_task(rig.autostop.run())
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert rig.ends == []
        used_for = list((await rig.autostop.state())["uses"])
        rig.autostop.end_now(down=False)
        await running
        assert rig.ends == [(False, True)]
        return used_for

    (found,) = asyncio.run(live())
    assert "the control store does not answer" in found


def test_a_new_spec_counts_only_where_it_says_something_new(monkeypatch: pytest.MonkeyPatch) -> None:
    async def idle_minutes(rig: Rig) -> object:
        return (await rig.autostop.state())["idle_minutes"]

    rig = Rig(monkeypatch, None)
    rig.autostop.set(TEN)
    rig.autostop.configure(None)
    assert asyncio.run(idle_minutes(rig)) == 10
    rig.autostop.configure(Autostop(idle_minutes=20))
    assert asyncio.run(idle_minutes(rig)) == 20
    rig.autostop.configure(None)
    assert asyncio.run(idle_minutes(rig)) is None
