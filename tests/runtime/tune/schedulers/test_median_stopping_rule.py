"""The median stopping rule against a plain re-implementation, and its edges."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest

from runtime.tune.schedulers import MedianStoppingRule
from runtime.tune.schedulers._running_means import RunningMeans
from tests.runtime.tune.schedulers.study import SimulatedTrial, Study, configs, random_curve


class PlainMedianRule:
    """The rule with all results at hand."""

    def __init__(self, grace_period: float, min_samples: int, sign: int) -> None:
        self.grace_period = grace_period
        self.min_samples = min_samples
        self.sign = sign
        self.results: dict[str, list[tuple[float, float]]] = {}

    def is_worse(self, trial: str, time: float, score: float) -> bool:
        self.results.setdefault(trial, []).append((time, self.sign * score))
        if time < self.grace_period:
            return False
        means = []
        for other, results in self.results.items():
            known = [value for at, value in results if self.grace_period <= at <= time]
            if other != trial and results[-1][0] >= time and known:
                means.append(statistics.fmean(known))
        best = max(value for _, value in self.results[trial])
        return len(means) >= self.min_samples and best < statistics.median(means)


@pytest.mark.parametrize("time_attr", ["training_iteration", "time_total_s"])
@pytest.mark.parametrize("seed", range(8))
def test_decides_as_the_plain_rule(seed: int, time_attr: str) -> None:
    rng = random.Random(seed)
    mode = rng.choice(["min", "max"])
    grace, samples = rng.choice([0, 2, 5]), rng.randint(1, 5)
    times: dict[tuple[str, int], float] = {}

    class Watching(MedianStoppingRule):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            # The scheduler compares times to 1/1024 of a unit.
            times[trial.trial_id, result["training_iteration"]] = math.floor(result[time_attr] * 1024) / 1024
            return super().on_trial_result(controller, trial, result)

    scheduler = Watching(
        time_attr, "score", mode, grace_period=grace, min_samples_required=samples, min_time_slice=10**9
    )
    curve = random_curve(seed)
    scheduler._last_pause = dict.fromkeys((f"t{number}" for number in range(40)), 0.0)
    study = Study(scheduler, configs(40), curve, workers=5, iterations=10**6, seed=seed, failures=0.03).run()
    plain = PlainMedianRule(grace, samples, 1 if mode == "max" else -1)
    stops = 0
    for trial, step, decision in study.decisions:
        score = curve({"x": int(trial[1:])}, {"step": step})["score"]
        expected = plain.is_worse(trial, times[trial, step], score)
        assert (decision == "STOP") == expected, (seed, trial, step)
        stops += expected
    assert stops > 0


@pytest.mark.parametrize("whole", [True, False])
def test_running_means_against_all_curves(whole: bool) -> None:
    rng = random.Random(3)
    means = RunningMeans()
    curves: list[list[tuple[float, float]]] = [[] for _ in range(30)]
    for _ in range(1500):
        number = rng.randrange(30)
        curve = curves[number]
        gap = rng.choice([1, 1, 1, 3, 40]) if whole else rng.choice([0.25, 1.0, 2.125, 70.0])
        time = (curve[-1][0] if curve else 0) + gap
        curve.append((time, rng.random()))
        means.add(str(number), time, curve[-1][1])
        at = rng.randrange(int(time) + 5) if whole else rng.randrange(1024 * int(time + 5)) / 1024
        known = [
            statistics.fmean(value for t, value in other if t <= at)
            for other in curves
            if other and other[0][0] <= at <= other[-1][0]
        ]
        score = rng.random()
        count, is_above = means.compare(at, score)
        assert count == len(known)
        assert is_above == (bool(known) and statistics.median(known) > score)


def test_what_a_trial_repeats_after_a_failure_does_not_count() -> None:
    means = RunningMeans()
    for time, value in [(1, 1.0), (2, 3.0), (1, 100.0), (2, 100.0), (3, 5.0)]:
        means.add("a", time, value)
    for time, mean in [(1, 1.0), (2, 2.0), (3, 3.0)]:
        assert means.compare(time, mean) == (1, False)
        assert means.compare(time, mean - 0.1) == (1, True)


def report(
    scheduler: MedianStoppingRule, study: Study, trial: SimulatedTrial, time: int, score: float
) -> str:
    return scheduler.on_trial_result(study, trial, {"t": time, "score": score})


def rule(**arguments: Any) -> tuple[MedianStoppingRule, Study]:
    scheduler = MedianStoppingRule(
        "t", "score", "max", **{"grace_period": 0, "min_samples_required": 2, **arguments}
    )
    return scheduler, Study(scheduler, [], random_curve(0))


def test_the_best_value_counts_not_the_last() -> None:
    scheduler, study = rule()
    a, b, c = (SimulatedTrial(name, {}) for name in "abc")
    for trial in (a, b):
        assert report(scheduler, study, trial, 1, 2.0) == "CONTINUE"
        assert report(scheduler, study, trial, 2, 2.0) == "CONTINUE"
    assert report(scheduler, study, c, 1, 3.0) == "CONTINUE"
    assert report(scheduler, study, c, 2, 0.0) == "CONTINUE"


def test_a_soft_stop_pauses_and_then_lets_go_on() -> None:
    scheduler, study = rule(hard_stop=False)
    a, b, c = (SimulatedTrial(name, {}) for name in "abc")
    for trial in (a, b):
        report(scheduler, study, trial, 1, 2.0)
    assert report(scheduler, study, c, 1, 1.0) == "PAUSE"
    assert report(scheduler, study, c, 2, 1.0) == "CONTINUE"


def test_nan_counts_as_worst_and_is_not_averaged() -> None:
    scheduler, study = rule()
    trials = [SimulatedTrial(name, {}) for name in "abcd"]
    for trial, score in zip(trials, [math.nan, 1.0, 2.0], strict=False):
        assert report(scheduler, study, trial, 1, score) == "CONTINUE"
    assert report(scheduler, study, trials[3], 1, math.nan) == "STOP"


def test_too_few_samples_make_room_for_waiting_trials() -> None:
    scheduler = MedianStoppingRule("training_iteration", "score", "max", grace_period=0, min_time_slice=1)
    study = Study(scheduler, configs(6), random_curve(4), workers=1, iterations=8).run()
    first = [decision for trial, _, decision in study.decisions if trial == "t0"]
    assert first[0] == "PAUSE"
    alone = MedianStoppingRule("training_iteration", "score", "max", grace_period=0)
    study = Study(alone, configs(1), random_curve(4), workers=1, iterations=8).run()
    assert {decision for _, _, decision in study.decisions} == {"CONTINUE"}
