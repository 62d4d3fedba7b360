"""HyperBand against a plain re-implementation of its rule, and its edges."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from runtime.tune.schedulers import HyperBandForBOHB, HyperBandScheduler
from tests.runtime.tune.schedulers.study import Study, configs, random_curve


def plain_hyperband(trials: int, max_t: int, eta: float, largest_first: bool, score: Any) -> dict[int, int]:
    """When each trial ends: bracket after bracket, rung after rung, as in the paper's listing."""
    kinds = round(math.log(max_t) / math.log(eta)) + 1
    ends: dict[int, int] = {}
    left = list(range(trials))
    order = list(range(kinds))
    if largest_first:
        order.reverse()
    while left:
        for s in order:
            r, n = int(max_t * eta**-s + 1e-9), math.ceil(kinds / (s + 1) * eta**s - 1e-9)
            if r == 0:
                continue
            bracket, left = left[:n], left[n:]
            for _ in range(s):
                n = math.ceil(n / eta)
                ranked = sorted(bracket, key=lambda trial: score(trial, r))
                for trial in ranked[:-n]:
                    ends[trial] = r
                bracket = ranked[-n:]
                r = int(min(r * eta, max_t))
            for trial in bracket:
                ends[trial] = r
    return ends


@pytest.mark.parametrize("seed", range(16))
def test_trials_end_as_in_the_paper(seed: int) -> None:
    rng = random.Random(seed)
    mode = rng.choice(["min", "max"])
    max_t, eta = rng.choice([(9, 3), (27, 3), (16, 2), (64, 4), (20, 2), (50, 3)])
    kind = HyperBandForBOHB if seed % 2 else HyperBandScheduler
    scheduler = kind(metric="score", mode=mode, max_t=max_t, reduction_factor=eta)
    curve = random_curve(seed)
    trials = rng.randint(1, 120)
    study = Study(
        scheduler,
        configs(trials),
        curve,
        workers=rng.randint(1, 9),
        iterations=10**6,
        seed=seed,
        ahead=rng.choice([1, 200]),
        queue=rng.choice([0, 0, 7]),
        slow_saves=rng.random() < 0.5,
        retries=True,
        failures=rng.choice([0, 0.01]),
    ).run()
    sign = 1 if mode == "max" else -1

    def score(trial: int, step: int) -> float:
        return sign * float(curve({"x": trial}, {"step": step})["score"])

    expected = plain_hyperband(trials, max_t, eta, kind is HyperBandForBOHB, score)
    assert {int(t.trial_id[1:]): t.last_result["training_iteration"] for t in study.trials} == expected
    assert study.listings == 0


@pytest.mark.parametrize("seed", range(8))
def test_failures_leave_no_trial_waiting(seed: int) -> None:
    scheduler = HyperBandScheduler(metric="score", mode="max", max_t=27)
    study = Study(
        scheduler, configs(90), random_curve(seed), workers=5, iterations=20, seed=seed, failures=0.03
    ).run()
    assert {trial.status for trial in study.trials} == {"TERMINATED", "ERROR"}


def test_trials_that_cannot_be_saved_start_over_and_still_end() -> None:
    scheduler = HyperBandScheduler(metric="score", mode="max", max_t=9)
    Study(scheduler, configs(40), random_curve(1), workers=3, iterations=10**6, saves_paused=False).run()


def test_a_reported_time_may_jump_over_rungs() -> None:
    def leaping(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        return {"score": config["x"], "epoch": state["step"] * 5}

    scheduler = HyperBandScheduler(time_attr="epoch", metric="score", mode="max", max_t=27)
    study = Study(scheduler, configs(60), leaping, workers=4, iterations=10**6).run()
    assert max(trial.last_result["epoch"] for trial in study.trials) == 30


def test_without_stop_last_trials_the_last_ones_run_on() -> None:
    scheduler = HyperBandScheduler(metric="score", mode="max", max_t=9, stop_last_trials=False)
    study = Study(scheduler, configs(5), random_curve(3), workers=2, iterations=30).run()
    ends = [trial.last_result["training_iteration"] for trial in study.trials]
    assert ends[:3] == [30] * 3  # the bracket without halvings


def test_paused_workers_are_free_for_others() -> None:
    scheduler = HyperBandScheduler(metric="score", mode="max", max_t=27)
    study = Study(scheduler, configs(50), random_curve(5), workers=6, iterations=10**6).run()
    assert study.most_running == 6
    assert any(decision == "PAUSE" for _, _, decision in study.decisions)


class Listener:
    """A searcher that is told of pauses."""

    def __init__(self) -> None:
        self.paused: list[str] = []
        self.resumed: list[str] = []

    def on_pause(self, trial_id: str) -> None:
        self.paused.append(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.resumed.append(trial_id)


def test_bohb_is_told_budgets_and_pauses() -> None:
    searcher = Listener()
    budgets: list[float] = []

    class Watching(HyperBandForBOHB):
        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            decision = super().on_trial_result(controller, trial, result)
            if "budget" in result["hyperband_info"]:
                budgets.append(result["hyperband_info"]["budget"])
                assert result["training_iteration"] == budgets[-1]
            else:
                assert decision == "CONTINUE"
            return decision

    scheduler = Watching(metric="score", mode="max", max_t=9)
    Study(scheduler, configs(9), random_curve(2), workers=3, iterations=10**6, search_alg=searcher).run()
    # Nine trials at 1, the best three at 3, the best at 9.
    assert sorted(budgets) == [1] * 9 + [3] * 3 + [9]
    assert len(searcher.paused) >= 10
    assert set(searcher.resumed) <= set(searcher.paused)


@pytest.mark.parametrize(
    ("arguments", "named"), [({"max_t": 0.5}, "max_t"), ({"reduction_factor": 1}, "reduction_factor")]
)
def test_arguments_out_of_range(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        HyperBandScheduler(**arguments)


def test_debug_string_counts_trials_by_status() -> None:
    scheduler = HyperBandScheduler(metric="score", mode="max", max_t=9)
    seen: list[str] = []
    Study(scheduler, configs(12), random_curve(2), workers=3, iterations=10**6).run(
        lambda study: seen.append(study.scheduler.debug_string())
    )
    assert "total_brackets=2" in seen[0]
    assert any("PAUSED: 2" in text for text in seen)
