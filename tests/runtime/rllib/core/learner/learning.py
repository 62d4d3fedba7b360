"""Learners of small modules for tests."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

OBS = gym.spaces.Box(-10.0, 10.0, (4,), np.float32)
ACTIONS = gym.spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [8], "fcnet_activation": "tanh", "vf_share_layers": False}


def spec(module_class: Any = None, **model_config: Any) -> RLModuleSpec:
    """The specification of a small module; PPO's by default."""
    return RLModuleSpec(
        module_class=module_class or PPOConfig().get_default_rl_module_spec().module_class,
        observation_space=OBS,
        action_space=ACTIONS,
        model_config={**SMALL, **model_config},
    )


def specs(*module_ids: str) -> MultiRLModuleSpec:
    """One small module per id."""
    return MultiRLModuleSpec(rl_module_specs={module_id: spec() for module_id in module_ids})


def learner(config: Any = None, module_spec: Any = None, learner_class: Any = None) -> Any:
    """A learner that is built."""
    config = config or PPOConfig().debugging(seed=1)
    made = (learner_class or config.get_default_learner_class())(
        config=config, module_spec=module_spec or spec()
    )
    made.build()
    return made


def weights(made: Any, module_id: str = "default_policy") -> dict[str, np.ndarray]:
    """A module's weights, copied."""
    state: dict[str, np.ndarray] = made.module[module_id].get_state()
    return state


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether all weights are the same."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def values_of(results: Any) -> Any:
    """The values of what an update returned."""
    from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger

    return MetricsLogger.peek_results(results)
