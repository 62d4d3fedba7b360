"""PB2: its process finds what pays, and its bounds hold."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from runtime.tune.schedulers import _bandit
from runtime.tune.schedulers.pb2 import PB2
from tests.runtime.tune.schedulers.study import SimulatedTrial, Study


def hill(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Progress per step is best at a rate of 0.3."""
    state["value"] = state.get("value", 0.0) + 1 - 4 * (config["rate"] - 0.3) ** 2
    return {"score": state["value"]}


def test_the_process_finds_the_best_point() -> None:
    rng = np.random.default_rng(0)
    points = rng.random((60, 2))
    known = np.hstack([np.sort(rng.random((60, 1)), axis=0) * 20, rng.random((60, 1)), points])
    gains = 1 - ((points - [0.3, 0.8]) ** 2).sum(axis=1)
    chosen = _bandit.choose(known, gains, (20.0, 0.5), np.empty((0, 2)), random.Random(1))
    assert np.abs(chosen - [0.3, 0.8]).max() < 0.15


def test_points_that_are_being_tried_push_others_away() -> None:
    # The gain is known and wavy in one half, so that the unknown half is the better bet.
    at = np.linspace(0, 0.5, 40)
    known = np.column_stack([np.full(40, 1.0), np.zeros(40), at])
    gains = np.sin(25 * at)
    first = _bandit.choose(known, gains, (1.0, 0.0), np.empty((0, 1)), random.Random(1))
    second = _bandit.choose(known, gains, (1.0, 0.0), first[None, :], random.Random(1))
    assert first[0] > 0.6
    assert abs(first[0] - second[0]) > 0.1


def test_without_observations_points_are_drawn() -> None:
    drawn = {
        float(
            _bandit.choose(np.empty((0, 3)), np.empty(0), (0.0, 0.0), np.empty((0, 1)), random.Random(seed))[
                0
            ]
        )
        for seed in range(20)
    }
    assert len(drawn) == 20
    assert all(0 <= value <= 1 for value in drawn)


@pytest.mark.parametrize("synch", [False, True])
def test_a_population_learns_the_best_rate(synch: bool) -> None:
    scheduler = PB2(
        "training_iteration", "score", "max", 2, hyperparam_bounds={"rate": [0.0, 2.0]}, synch=synch, seed=2
    )
    study = Study(scheduler, [{} for _ in range(6)], hill, workers=6, iterations=40).run()
    chosen = [config["rate"] for _, _, config in study.exploits]
    assert len(chosen) > 10
    assert all(0 <= rate <= 2 for rate in chosen)
    late = [abs(rate - 0.3) for rate in chosen[len(chosen) // 2 :]]
    assert np.median(late) < 0.25
    assert np.mean([trial.config["rate"] for trial in study.trials]) < 0.8


def test_nested_and_whole_hyperparameters() -> None:
    scheduler = PB2(
        "training_iteration",
        "score",
        "max",
        2,
        hyperparam_bounds={"model": {"width": [4, 64]}, "rate": (0.0, 1.0)},
        custom_explore_fn=lambda config: {**config, "seen": True},
        seed=1,
    )
    study = Study(
        scheduler, [{"model": {"width": 8}} for _ in range(4)], hill, workers=4, iterations=20
    ).run()
    assert study.exploits
    for _, _, config in study.exploits:
        assert isinstance(config["model"]["width"], int)
        assert 4 <= config["model"]["width"] <= 64
        assert config["seen"]
    assert all(0 <= trial.evaluated_params["rate"] <= 1 for trial in study.trials)


def test_configs_are_filled_from_the_bounds() -> None:
    scheduler = PB2(metric="score", mode="max", hyperparam_bounds={"a": {"b": [2, 3]}, "c": [0, 1]}, seed=1)
    trial = SimulatedTrial("t", {"c": 0.5})
    scheduler.on_trial_add(Study(scheduler, [], hill), trial)
    assert 2 <= trial.config["a"]["b"] <= 3
    assert trial.config["c"] == 0.5


@pytest.mark.parametrize("bounds", [{}, {"a": [1]}, {"a": [2, 1]}, {"a": 3}, {"a": {"b": "x"}}])
def test_bounds_out_of_range(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="hyperparam_bounds"):
        PB2(hyperparam_bounds=bounds)
