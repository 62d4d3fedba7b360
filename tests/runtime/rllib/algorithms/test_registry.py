"""Algorithms and environments by name."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import tune
from runtime.rllib.algorithms.ppo.ppo import PPO, PPOConfig
from runtime.rllib.algorithms.registry import ALGORITHMS, get_algorithm_class, get_algorithm_config
from runtime.tune.registry import env_creator_of, get_trainable_cls


def test_algorithms_by_name() -> None:
    assert get_algorithm_class("PPO") is PPO
    assert get_trainable_cls("PPO") is PPO
    assert isinstance(get_algorithm_config("PPO"), PPOConfig)
    with pytest.raises(ValueError, match="Did you mean 'PPO'"):
        get_algorithm_class("PP0")
    with pytest.raises(ValueError, match=f"There are {', '.join(ALGORITHMS)}"):
        get_algorithm_class("xyzzy")


def test_trainables_that_nobody_registered() -> None:
    with pytest.raises(ValueError, match="algorithms are: APPO"):
        tune.Tuner("PPPO")


def test_environments_by_name() -> None:
    def creator(config: Any) -> Any:
        return config

    tune.register_env("by-name", creator)
    assert env_creator_of("by-name") is creator
    with pytest.raises(ValueError, match="register_env"):
        env_creator_of("nobody-has-it")
    with pytest.raises(TypeError, match="function"):
        tune.register_env("x", 3)  # type: ignore[arg-type]
