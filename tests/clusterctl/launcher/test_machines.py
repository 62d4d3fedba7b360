"""Waiting for a machine: what is believed of listings, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from autoscaler.provider import Capabilities, Machine, MachineState, ProviderError, Transient
from clusterctl.errors import NotFound, TimedOut
from clusterctl.launcher import machines

RUNNING = Machine("m-1", MachineState.RUNNING, "head", {}, address="10.0.0.1")
PENDING = Machine("m-1", MachineState.PENDING, "head", {})
UNADDRESSED = Machine("m-1", MachineState.RUNNING, "head", {})
STOPPED = Machine("m-1", MachineState.STOPPED, "head", {})
OTHER = Machine("m-2", MachineState.RUNNING, "head", {}, address="10.0.0.2")


class Clock:
    """Stands in for `time`: it goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(machines, "time", made)
    return made


class Listing:
    """A platform whose listings come as given; the last one again and again."""

    def __init__(self, lag_s: float, *listings: Sequence[Machine] | Transient) -> None:
        self.capabilities = Capabilities(listing_lag_s=lag_s)
        self._listings = list(listings)
        self.ended: list[list[str]] = []

    def terminate(self, ids: Sequence[str]) -> dict[str, Exception | None]:
        self.ended.append([*ids])
        return dict.fromkeys(ids)

    def list(self) -> Sequence[Machine]:
        listing = self._listings.pop(0) if len(self._listings) > 1 else self._listings[0]
        if isinstance(listing, Transient):
            raise listing
        return listing


def await_running(listing: Listing, deadline_s: float = 30.0) -> Machine:
    return machines.await_running(cast(Any, listing), "m-1", deadline_s)


def test_it_waits_until_the_machine_runs_and_has_an_address() -> None:
    assert await_running(Listing(0, [OTHER, PENDING], [UNADDRESSED], [RUNNING, OTHER])) == RUNNING


def test_a_platform_that_hiccups_is_asked_again() -> None:
    wants_fewer_calls = Transient("slow down", retry_after_s=0.0)
    assert await_running(Listing(0, [PENDING], wants_fewer_calls, [RUNNING])) == RUNNING


def test_a_listing_may_lag_behind() -> None:
    assert await_running(Listing(30, [], [STOPPED], [RUNNING])) == RUNNING


@pytest.mark.parametrize(
    ("listed", "words"), [([OTHER], "has vanished"), ([STOPPED], "STOPPED instead of running")]
)
def test_a_machine_that_will_not_run_is_not_waited_for(listed: list[Machine], words: str) -> None:
    with pytest.raises(NotFound, match=words):
        await_running(Listing(0, listed))


def test_there_is_a_deadline() -> None:
    with pytest.raises(TimedOut, match="m-1 does not run after 0 s"):
        await_running(Listing(0, [PENDING]), deadline_s=0)


SILENT = Machine("m-3", MachineState.RUNNING, "w", {}, unreachable="10.0.0.3 does not answer")


class Ending(Listing):
    """Ends what is not silent, one listing later."""

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        return {id: Transient("no answer") if id == SILENT.id else None for id in ids}


def test_what_cannot_be_reached_is_named_when_all_else_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SILENCE_S", 0.0)
    listing = Ending(0, [RUNNING, SILENT], [SILENT])
    with pytest.raises(TimedOut, match=r"(?s)cannot be entered.*m-3: 10\.0\.0\.3 does not answer") as raised:
        machines.end_all(cast(Any, listing))
    assert "m-1" not in str(raised.value)


def test_what_answers_again_is_ended_after_all() -> None:
    listing = Ending(0, [RUNNING, SILENT], [SILENT], [SILENT], [OTHER], [])
    assert machines.end_all(cast(Any, listing)) == 3


def test_a_machine_that_takes_its_time_to_end_is_not_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    listing = Listing(0, *[[RUNNING]] * 12, [OTHER], [])
    assert machines.end_all(cast(Any, listing)) == 2
    assert listing.ended == [["m-1"], ["m-2"]]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] <= 2.0


def test_hiccups_are_waited_out_and_refusals_are_not() -> None:
    answers: list[Exception | str] = [Transient("busy", 0.0), Transient("busy", 0.0), "made"]

    def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert machines.patiently(call) == "made"
    answers += [ProviderError("never")]
    with pytest.raises(ProviderError, match="never"):
        machines.patiently(call)
    answers += [Transient("busy", 60.0)]
    with pytest.raises(Transient):
        machines.patiently(call, patience_s=30.0)


def test_what_was_made_just_now_is_ended_when_it_comes_to_be_listed(clock: Clock) -> None:
    listing = Listing(0.3, [], [], [RUNNING], [])
    assert machines.end_all(cast(Any, listing), settles=True) == 1
    assert listing.ended == [["m-1"]]
    assert machines.end_all(cast(Any, Listing(0.3, [], [RUNNING]))) == 0, (
        "where nothing was made nobody waits"
    )


class Slow(Listing):
    """Each listing says what was so when it was asked for, and takes longer than listings lag."""

    def __init__(self, clock: Clock, *listings: Sequence[Machine]) -> None:
        super().__init__(30.0, *listings)
        self._clock = clock

    def list(self) -> Sequence[Machine]:
        self._clock.sleep(40.0)
        return super().list()


def test_an_answer_that_comes_late_is_as_old_as_its_question(clock: Clock) -> None:
    listing = Slow(clock, [], [RUNNING], [])
    assert machines.end_all(cast(Any, listing), settles=True) == 1
    assert listing.ended == [["m-1"]]
    assert machines.listed_with(cast(Any, Slow(clock, [], [RUNNING])), "m-1") == [RUNNING]
    for early in ([], [STOPPED]):
        assert await_running(Slow(clock, early, [RUNNING])) == RUNNING


def test_a_known_machine_is_missing_only_when_listings_can_lag_no_longer(clock: Clock) -> None:
    def listed(listing: Listing) -> list[Machine]:
        return machines.listed_with(cast(Any, listing), "m-1")

    assert listed(Listing(30, [OTHER], [], [RUNNING, OTHER])) == [RUNNING, OTHER]
    assert listed(Listing(0.2, [OTHER])) == [OTHER]
    gone = Machine("m-1", MachineState.GONE, "head", {})
    assert listed(Listing(30, [gone, OTHER])) == [OTHER], "the platform says so itself"
