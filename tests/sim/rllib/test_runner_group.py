"""Environment runners of chance: they die, are slow, or come up late, and every round ends with what it can have."""

from __future__ import annotations

import heapq
import random

import pytest

from runtime.rllib._core.runner_group import FAILED_STARTS, Round, Runners, RunnerState, Verdict

START_S, STEP_S = 0.5, 0.001


class World:
    """Runners whose calls take as long as chance wants. Time passes only here."""

    def __init__(self, seed: int, count: int, death: float, slow: float) -> None:
        self.random = random.Random(seed)
        self.runners = Runners(restart=True, ignore_failures=False, most_restarts=10**6)
        self.death, self.slow = death, slow
        self.now = 0.0
        self.events: list[tuple[float, int, str, int, int, int]] = []
        self.order = 0
        self.busy: dict[int, int] = {}  # the amount that a runner samples, by number
        self.sampled = 0
        self.pace: float | None = None
        self.wasted_s = 0.0  # in the last round, while a runner was idle
        for number in self.runners.add(count):
            self.start(number)

    def at(self, delay: float, what: str, number: int, amount: int = 0) -> None:
        self.order += 1
        attempt = self.runners.members[number].attempt
        heapq.heappush(self.events, (self.now + delay, self.order, what, number, attempt, amount))

    def start(self, number: int) -> None:
        fails = self.runners.members[number].was_up and self.random.random() < self.death / 4
        self.at(START_S * self.random.uniform(0.5, 2), "died" if fails else "up", number)

    def call(self, number: int, amount: int) -> None:
        assert number in self.runners.ready
        assert number not in self.busy
        assert amount > 0
        self.busy[number] = amount
        factor = 200 if self.random.random() < self.slow else self.random.uniform(0.8, 1.3)
        seconds = STEP_S * amount * factor
        if self.random.random() < self.death:
            self.at(seconds * self.random.random(), "died", number)
        else:
            self.at(seconds, "done", number, amount)

    def round(self, wanted: int, timeout_s: float) -> Round:
        work = Round(wanted, self.now, timeout_s, self.pace)
        began, self.wasted_s = self.now, 0.0
        while not work.is_over(self.now):
            free = [number for number in self.runners.ready if number not in self.busy]
            for number, amount in work.calls(free, self.now):
                self.call(number, amount)
            is_idle, before = len(self.busy) < len(self.runners.ready), self.now
            look = work.look_in(self.now)
            assert look is not None  # every wait of a round with a timeout has an end
            if not self.events or self.events[0][0] > self.now + look:
                self.now += max(look, 1e-6)
                self.wasted_s += is_idle * (self.now - before)
                continue
            self.now, _, what, number, attempt, amount = heapq.heappop(self.events)
            self.wasted_s += is_idle * (self.now - before)
            self.happen(what, number, attempt, amount, work)
        assert self.now - began <= timeout_s + 1e-3
        self.pace = work.pace
        return work

    def happen(self, what: str, number: int, attempt: int, amount: int, work: Round) -> None:
        if what == "up":
            assert self.runners.up(number, attempt, self.now) == (
                attempt == self.runners.members[number].attempt
            )
        elif what == "done" and attempt == self.runners.members[number].attempt:
            del self.busy[number]
            self.sampled += amount
            work.took(number, amount, self.now)
        elif what == "died":
            verdict = self.runners.died(number, attempt, self.now)
            if verdict is Verdict.NOTHING:
                return
            assert verdict in (Verdict.REPLACE, Verdict.FAIL)
            self.busy.pop(number, None)
            work.lost(number)
            if verdict is Verdict.REPLACE:
                self.start(number)


@pytest.mark.parametrize("seed", range(40))
def test_every_round_gets_what_it_wants_while_runners_die(seed: int) -> None:
    world = World(seed, count=seed % 4 + 2, death=0.1, slow=0.0)
    for number in range(25):
        before = world.sampled
        work = world.round(1000, timeout_s=60.0)
        assert work.missing <= 0, (seed, number)
        assert world.sampled - before >= 1000, (seed, number)
        if not world.runners.some_left():
            break


@pytest.mark.parametrize("seed", range(40))
def test_slow_runners_do_not_hold_the_others(seed: int) -> None:
    world = World(seed, count=4, death=0.0, slow=0.1)
    world.round(1, timeout_s=60.0)
    for number in range(25):
        world.round(1000, timeout_s=300.0)
        # A runner is idle only until another one counts as slow: after three times what it should take.
        assert world.wasted_s < 3 * 1000 * STEP_S * 1.3 + 1.0, (seed, number)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_ends_at_its_timeout(seed: int) -> None:
    world = World(seed, count=2, death=0.0, slow=1.0)
    for _ in range(5):
        began = world.now
        work = world.round(10**6, timeout_s=3.0)
        assert work.missing > 0
        assert world.now - began == pytest.approx(3.0, abs=0.01)


# ------------------------------------------------------------ the machine by hand


def up(runners: Runners, *numbers: int) -> None:
    for number in numbers:
        assert runners.up(number, runners.members[number].attempt, 0.0)


def test_a_death_is_followed_by_a_new_actor_and_old_calls_say_nothing_of_it() -> None:
    runners = Runners(restart=True, ignore_failures=False, most_restarts=5)
    runners.add(2)
    up(runners, 1, 2)
    assert runners.died(1, 0, 1.0) is Verdict.REPLACE
    assert runners.died(1, 0, 1.0) is Verdict.NOTHING
    assert runners.ready == [2]
    assert not runners.up(1, 0, 2.0)
    assert runners.up(1, 1, 2.0)
    assert runners.ready == [1, 2]
    assert runners.restarts == 1


def test_a_runner_that_never_was_up_is_given_up_at_once() -> None:
    runners = Runners(restart=True, ignore_failures=False, most_restarts=5)
    runners.add(1)
    assert runners.died(1, 0, 0.0) is Verdict.FAIL
    assert runners.members[1].state is RunnerState.REMOVED


def test_starts_that_fail_in_a_row_end_the_replacing() -> None:
    runners = Runners(restart=True, ignore_failures=True, most_restarts=50)
    runners.add(2)
    up(runners, 1, 2)
    verdicts = [runners.died(1, attempt, 0.0) for attempt in range(FAILED_STARTS + 1)]
    assert verdicts == [Verdict.REPLACE] * FAILED_STARTS + [Verdict.DROP]
    assert runners.removed == 1


@pytest.mark.parametrize(
    ("restart", "ignore", "verdict"), [(False, False, Verdict.FAIL), (False, True, Verdict.DROP)]
)
def test_without_restarts_the_group_goes_on_or_fails(restart: bool, ignore: bool, verdict: Verdict) -> None:
    runners = Runners(restart=restart, ignore_failures=ignore, most_restarts=50)
    runners.add(2)
    up(runners, 1, 2)
    assert runners.died(1, 0, 0.0) is verdict
    assert runners.died(2, 0, 0.0) is Verdict.FAIL  # none is left


def test_calls_that_fail_in_a_row_end_the_replacing() -> None:
    runners = Runners(restart=True, ignore_failures=False, most_restarts=50)
    runners.add(1)
    for attempt in range(4):
        up(runners, 1)
        assert runners.died(1, attempt, 0.0, by_error=True) is Verdict.REPLACE
        if attempt == 1:
            runners.worked(1)
    up(runners, 1)
    assert runners.died(1, 4, 0.0, by_error=True) is Verdict.FAIL


def test_restarts_are_limited() -> None:
    runners = Runners(restart=True, ignore_failures=False, most_restarts=1)
    runners.add(1)
    up(runners, 1)
    assert runners.died(1, 0, 0.0) is Verdict.REPLACE
    up(runners, 1)
    assert runners.died(1, 1, 0.0) is Verdict.FAIL


def test_shares_are_even_and_the_share_of_a_lost_runner_goes_to_the_others() -> None:
    work = Round(10, 0.0, 5.0)
    assert work.calls([1, 2, 3], 0.0) == [(1, 4), (2, 4), (3, 2)]
    assert work.calls([], 0.0) == []
    work.took(3, 2, 1.0)
    assert work.calls([3], 1.0) == []
    work.lost(1)
    assert work.calls([3], 1.0) == [(3, 4)]
    work.took(2, 4, 1.0)
    work.took(3, 4, 2.0)
    assert work.is_over(2.0)


def test_runners_return_what_they_have_before_the_timeout() -> None:
    work = Round(10, 100.0, 20.0)
    assert work.time_to_sample(100.0) == pytest.approx(18.0)
    assert work.time_to_sample(130.0) == 0.0
    assert Round(10, 0.0, None).time_to_sample(1.0) is None


def test_what_a_runner_gives_late_counts() -> None:
    work = Round(10, 0.0, 5.0)
    work.took(7, 10, 0.5)
    assert work.is_over(0.5)
