"""ASHA against a plain re-implementation of its rule, and its edges."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from runtime.tune.schedulers import ASHAScheduler, AsyncHyperBandScheduler, TrialScheduler
from runtime.tune.schedulers.async_hyperband import Rung
from tests.runtime.tune.schedulers.study import SimulatedTrial, Study, configs, random_curve


class PlainASHA:
    """The rule with dicts: at each rung, stop below the quantile of what was recorded there before."""

    def __init__(self, grace_period: int, max_t: int, reduction_factor: float) -> None:
        self.max_t = max_t
        self.reduction_factor = reduction_factor
        self.rungs: dict[float, dict[str, float]] = {}
        milestone: float = grace_period
        while milestone <= max_t:
            self.rungs[milestone] = {}
            milestone *= reduction_factor

    def decide(self, trial: str, time: int, score: float) -> str:
        if time >= self.max_t:
            return "STOP"
        reached = [milestone for milestone in self.rungs if time >= milestone]
        if not reached or trial in self.rungs[max(reached)]:
            return "CONTINUE"
        recorded = self.rungs[max(reached)]
        others = list(recorded.values())
        recorded[trial] = score
        if others and score < np.percentile(others, 100 * (1 - 1 / self.reduction_factor)):
            return "STOP"
        return "CONTINUE"


@pytest.mark.parametrize("seed", range(12))
def test_decides_as_the_plain_rule(seed: int) -> None:
    rng = random.Random(seed)
    mode = rng.choice(["min", "max"])
    grace, max_t, eta = rng.randint(1, 4), rng.randint(10, 60), rng.choice([2, 3, 4, 2.5])
    scheduler = ASHAScheduler(
        metric="score", mode=mode, max_t=max_t, grace_period=grace, reduction_factor=eta
    )
    curve = random_curve(seed)
    study = Study(scheduler, configs(60), curve, workers=rng.randint(1, 9), iterations=1000, seed=seed).run()
    plain = PlainASHA(grace, max_t, eta)
    sign = 1 if mode == "max" else -1
    for trial, step, decision in study.decisions:
        score = sign * curve({"x": int(trial[1:])}, {"step": step})["score"]
        assert decision == plain.decide(trial, step, score), (seed, trial, step)
    stops = Counter(decision for _, _, decision in study.decisions)
    assert stops["STOP"] == 60


def report(scheduler: TrialScheduler, trial: SimulatedTrial, time: float, score: Any) -> str:
    return scheduler.on_trial_result(None, trial, {"training_iteration": time, "score": score})  # type: ignore[arg-type]


def two_trials(scheduler: TrialScheduler) -> tuple[SimulatedTrial, SimulatedTrial]:
    first, second = SimulatedTrial("first", {}), SimulatedTrial("second", {})
    for trial in (first, second):
        scheduler.on_trial_add(None, trial)  # type: ignore[arg-type]
    return first, second


def test_a_result_that_passes_several_rungs_counts_for_the_highest() -> None:
    scheduler = ASHAScheduler(metric="score", mode="max", max_t=100, grace_period=1, reduction_factor=2)
    first, second = two_trials(scheduler)
    assert report(scheduler, first, 9, 1.0) == "CONTINUE"
    assert report(scheduler, first, 10, 1.0) == "CONTINUE"
    # Nothing was recorded below the rung at 8, so that a worse trial gets as far as there.
    assert [report(scheduler, second, time, 0.5) for time in (1, 2, 4, 7, 8)] == ["CONTINUE"] * 4 + ["STOP"]


def test_nan_stops_once_there_is_something_to_compare_with() -> None:
    scheduler = ASHAScheduler(metric="score", mode="min", grace_period=1)
    first, second = two_trials(scheduler)
    assert report(scheduler, second, 1, float("nan")) == "CONTINUE"
    assert report(scheduler, first, 1, 1e9) == "CONTINUE"
    assert report(scheduler, second, 4, float("nan")) == "CONTINUE"
    assert report(scheduler, first, 4, 1e9) == "CONTINUE"
    assert report(scheduler, second, 16, 5.0) == "CONTINUE"
    assert report(scheduler, first, 16, float("nan")) == "STOP"


def test_nan_does_not_move_a_cutoff() -> None:
    rung = Rung(1, 2)
    assert rung.record(-math.inf)
    assert rung.cutoff() is None
    assert rung.record(4.0)
    assert not rung.record(-math.inf)
    assert rung.cutoff() == 4.0


def test_without_stop_last_trials_survivors_run_on() -> None:
    scheduler = ASHAScheduler(metric="score", mode="max", max_t=4, stop_last_trials=False)
    first, _ = two_trials(scheduler)
    assert [report(scheduler, first, time, 1.0) for time in (1, 4, 5, 500)] == ["CONTINUE"] * 4


def test_the_last_result_of_a_trial_that_ends_is_recorded() -> None:
    scheduler = ASHAScheduler(metric="score", mode="max")
    first, second = two_trials(scheduler)
    scheduler.on_trial_complete(None, first, {"training_iteration": 1, "score": 2.0})  # type: ignore[arg-type]
    assert report(scheduler, second, 1, 1.0) == "STOP"


def test_brackets_are_drawn_by_their_rungs() -> None:
    scheduler = ASHAScheduler(metric="score", mode="max", max_t=16, reduction_factor=4, brackets=3, seed=1)
    assert [len(bracket.rungs) for bracket in scheduler._brackets] == [3, 2, 1]
    for number in range(3000):
        scheduler.on_trial_add(None, SimulatedTrial(f"t{number}", {}))  # type: ignore[arg-type]
    drawn = Counter(len(bracket.rungs) for bracket in scheduler._bracket_of.values())
    weights = {rungs: np.exp(rungs) / sum(np.exp([1, 2, 3])) for rungs in (1, 2, 3)}
    for rungs, weight in weights.items():
        assert abs(drawn[rungs] / 3000 - weight) < 0.04


def test_the_same_seed_draws_the_same_brackets() -> None:
    drawn = []
    for _ in range(2):
        random.seed(7)
        scheduler = ASHAScheduler(metric="score", mode="max", brackets=3)
        drawn.append([scheduler._brackets.index(scheduler._draw_bracket()) for _ in range(50)])
    assert drawn[0] == drawn[1]


def test_a_rung_at_a_power_that_logarithms_round_down() -> None:
    scheduler = ASHAScheduler(metric="score", mode="max", max_t=1000, reduction_factor=10)
    assert [rung.milestone for rung in scheduler._brackets[0].rungs] == [1, 10, 100, 1000]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"max_t": 0}, "max_t"),
        ({"grace_period": 0}, "grace_period"),
        ({"grace_period": 101}, "grace_period"),
        ({"reduction_factor": 1}, "reduction_factor"),
        ({"brackets": 0}, "brackets"),
        ({"mode": "best"}, "mode"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        AsyncHyperBandScheduler(**arguments)


def test_save_and_restore(tmp_path: Any) -> None:
    scheduler = ASHAScheduler(metric="score", mode="max")
    first, second = two_trials(scheduler)
    report(scheduler, first, 1, 2.0)
    scheduler.save(str(tmp_path / "state"))
    restored = ASHAScheduler()
    restored.restore(str(tmp_path / "state"))
    assert report(restored, second, 1, 1.0) == "STOP"
