"""Studies on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import tune
from runtime.tune import schedulers


def nothing(config: dict[str, Any]) -> None:
    pass


def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    return None if iteration > 10 else {"loss": config["x"] / iteration}


def tuner(scheduler: Any = None, samples: int = 40, **more: Any) -> tune.Tuner:
    config = tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler, num_samples=samples, **more)
    return tune.Tuner(nothing, param_space={"x": tune.uniform(0, 1)}, tune_config=config)


def test_the_time_is_that_of_the_curves() -> None:
    grid = tune.simulate(tuner(), curve, workers=4)
    assert (len(grid), grid.seconds) == (40, 100.0)
    assert grid.busy == pytest.approx(1.0)
    assert all(result.metrics["training_iteration"] == 10 for result in grid)
    slow = tune.simulate(
        tuner(samples=4), lambda config, i: None if i > 2 else {"time_this_iter_s": 60}, workers=4, start_s=5
    )
    assert slow.seconds == 125.0


def test_schedulers_are_compared() -> None:
    halving = tune.simulate(tuner(schedulers.ASHAScheduler(max_t=10, reduction_factor=3)), curve, workers=4)
    assert halving.seconds < 50
    assert halving.get_best_result().metrics["training_iteration"] == 10


def test_a_budget_and_a_limit_of_trials_hold() -> None:
    grid = tune.simulate(tuner(samples=-1, time_budget_s=95), curve, workers=4)
    assert (
        sum(bool(result.metrics) for result in grid) == 40
    )  # the others wait for a worker when the time is over
    assert tune.simulate(tuner(samples=8, max_concurrent_trials=2), curve, workers=4).seconds == 40


def test_what_is_taken_over_goes_on_from_there() -> None:
    def sum_of_rates(config: dict[str, Any], iteration: int, previous: dict[str, Any] | None) -> Any:
        total = previous["total"] if previous else 0.0
        return None if iteration > 20 else {"total": total + config["rate"], "loss": -config["rate"]}

    scheduler = schedulers.PopulationBasedTraining(
        perturbation_interval=5, hyperparam_mutations={"rate": [1.0]}, resample_probability=1.0, synch=True
    )
    config = tune.TuneConfig(metric="total", mode="max", scheduler=scheduler)
    grid = tune.simulate(
        tune.Tuner(nothing, param_space={"rate": tune.grid_search([0.0, 0.1, 0.2, 1.0])}, tune_config=config),
        sum_of_rates,
        workers=4,
    )
    # Each was at the bottom once at least, and has the total of the best member since.
    assert min(result.metrics["total"] for result in grid) > 4.0


def test_a_curve_that_raises_fails_its_trial() -> None:
    def bad(config: dict[str, Any], iteration: int) -> dict[str, Any]:
        raise ValueError("no such curve")

    grid = tune.simulate(tuner(samples=3), bad)
    assert [str(error) for error in grid.errors] == ["no such curve"] * 3
    with pytest.raises(ValueError, match="workers must be at least 1"):
        tune.simulate(tuner(), curve, workers=0)
