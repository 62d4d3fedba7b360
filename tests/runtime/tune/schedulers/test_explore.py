"""How hyperparameters are explored."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from runtime.tune.schedulers._explore import explore, mutated_part, perturbed_tag


class Uniform:
    def sample(self, *, random_state: random.Random) -> float:
        return random_state.uniform(100, 200)


def draw(config: dict[str, Any], mutations: dict[str, Any], resample: float, count: int = 400) -> list[Any]:
    rng = random.Random(1)
    return [explore(config, mutations, resample, (1.2, 0.8), None, rng) for _ in range(count)]


def test_numbers_are_scaled_or_drawn_anew() -> None:
    drawn = draw({"a": 10.0}, {"a": Uniform()}, 0.25, 4000)
    done = Counter(operations["a"] for _, operations in drawn)
    assert abs(done["resample"] / 4000 - 0.25) < 0.03
    assert abs(done["* 1.2"] / 4000 - 0.375) < 0.03
    assert abs(done["* 0.8"] / 4000 - 0.375) < 0.03
    for config, operations in drawn:
        value = config["a"]
        if operations["a"] == "resample":
            assert 100 <= value <= 200
        else:
            assert value == pytest.approx(10 * float(operations["a"][2:]))


def test_whole_numbers_stay_whole_and_booleans_stay_booleans() -> None:
    for config, _ in draw(
        {"a": 7, "b": True, "c": np.int64(5)}, {"a": Uniform(), "b": lambda: 0, "c": Uniform()}, 0.5
    ):
        assert isinstance(config["a"], int)
        assert isinstance(config["b"], bool)
        assert config["c"] == int(config["c"])


def test_a_list_is_walked() -> None:
    moves = {(config["a"], operations["a"]) for config, operations in draw({"a": 2}, {"a": [1, 2, 4]}, 0.0)}
    assert moves == {(1, "shift left"), (4, "shift right")}
    ends = {(config["a"], operations["a"]) for config, operations in draw({"a": 1}, {"a": [1, 2, 4]}, 0.0)}
    assert ends == {(1, "shift left (noop)"), (2, "shift right")}
    unknown = {config["a"] for config, _ in draw({"a": 3}, {"a": (1, 2, 4)}, 0.0)}
    assert unknown == {1, 2, 4}
    assert {operations["a"] for _, operations in draw({"a": 1}, {"a": [1, 2]}, 1.0)} == {"resample"}


def test_words_from_a_domain_are_drawn_anew() -> None:
    assert {config["a"] for config, _ in draw({"a": "adam"}, {"a": lambda: "sgd"}, 0.0)} == {"sgd"}


def test_nested_ones_and_the_custom_function() -> None:
    config = {"a": {"b": 1.0, "kept": [1]}, "other": 2}
    changed, done = explore(
        config, {"a": {"b": lambda: 1}}, 0, (3.0,), lambda found: {**found, "seen": True}, random.Random(0)
    )
    assert changed == {"a": {"b": 3.0, "kept": [1]}, "other": 2, "seen": True}
    assert done == {"a": {"b": "* 3.0"}}
    assert config["a"]["b"] == 1.0
    assert changed["a"]["kept"] is not config["a"]["kept"]
    with pytest.raises(ValueError, match="custom_explore_fn"):
        explore(config, {}, 0, (1,), lambda found: None, random.Random(0))


def test_the_mutated_part_and_the_tag() -> None:
    config = {"a": {"b": 0.25, "c": 1}, "d": "x/y", "e": 3}
    mutations: dict[str, Any] = {"a": {"b": [1]}, "d": ["x/y"]}
    assert mutated_part(config, mutations) == {"a/b": 0.25, "d": "x/y"}
    assert perturbed_tag("3_lr=1", config, mutations) == "3_lr=1@perturbed[b=0.2500,d=x_y]"
