"""Importances of parameters."""

from __future__ import annotations

import random

import pytest

from runtime.tune._core.importance import importances


def test_a_parameter_that_orders_the_trials_explains_all() -> None:
    configs = [{"kind": kind, "same": 1} for kind in ("a", "b") for _ in range(20)]
    values = [1.0] * 20 + [2.0] * 20
    assert importances(configs, values) == {"kind": pytest.approx(1.0)}


def test_the_measure_does_not_depend_on_the_scale_of_the_metric() -> None:
    chance = random.Random(3)
    configs = [{"x": chance.random(), "y": chance.random()} for _ in range(50)]
    values = [config["x"] + 0.3 * config["y"] for config in configs]
    assert importances(configs, values) == importances(configs, [10.0 ** (5 * value) for value in values])


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_not_important_however_many_groups_it_has(seed: int) -> None:
    chance = random.Random(seed)
    configs = [{"x": chance.random(), "kind": chance.choice("abcdefgh")} for _ in range(400)]
    found = importances(configs, [chance.random() for _ in configs])
    assert max(found.values()) < 0.05


def test_an_effect_that_rises_and_falls_is_seen() -> None:
    configs = [{"x": index / 100} for index in range(100)]
    found = importances(configs, [abs(config["x"] - 0.5) for config in configs])
    assert found["x"] > 0.8


def test_trials_without_the_parameter_do_not_count() -> None:
    configs: list[dict[str, int]] = [{"x": index % 2} if index < 20 else {} for index in range(40)]
    found = importances(configs, [float(config.get("x", 9)) for config in configs])
    assert found == {"x": pytest.approx(1.0)}


def test_few_trials_say_nothing() -> None:
    assert importances([{"x": 1}, {"x": 2}, {"x": 3}], [1.0, 2.0, 3.0]) == {"x": 0.0}
