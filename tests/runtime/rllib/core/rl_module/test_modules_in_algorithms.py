"""Modules in PPO: masks, memory, images, own networks and weights from a checkpoint."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.rl_module.apis import ValueFunctionAPI
from runtime.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from runtime.rllib.core.rl_module.torch import TorchRLModule
from runtime.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class MaskedEnv(gym.Env):
    """Forbids an action in each step."""

    observation_space = gym.spaces.Dict(
        action_mask=gym.spaces.Box(0, 1, (3,), np.float32),
        observations=gym.spaces.Box(-1, 1, (2,), np.float32),
    )
    action_space = gym.spaces.Discrete(3)

    def __init__(self, config: Any = None) -> None:
        self.time = 0
        self.mask = np.ones(3, np.float32)

    def _observation(self) -> dict[str, np.ndarray]:
        self.mask = np.ones(3, np.float32)
        self.mask[self.np_random.integers(3)] = 0
        return {"action_mask": self.mask, "observations": self.np_random.uniform(-1, 1, 2).astype(np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.mask[action] == 0:
            raise ValueError(f"action {action} is forbidden")
        self.time += 1
        return self._observation(), 1.0, self.time >= 10, False, {}


class ImageEnv(gym.Env):
    """Random images; continuous actions."""

    observation_space = gym.spaces.Box(0, 255, (10, 10, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, config: Any = None) -> None:
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._image(), {}

    def _image(self) -> np.ndarray:
        return self.np_random.integers(0, 255, (10, 10, 3), dtype=np.uint8)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.time += 1
        return self._image(), float(action.sum()), False, self.time >= 10, {}


class Own(TorchRLModule, ValueFunctionAPI):
    """Layers of its own; the learner gets its embeddings."""

    def setup(self) -> None:
        size = self.model_config["size"]
        self.base = torch.nn.Sequential(torch.nn.Linear(4, size), torch.nn.ReLU())
        self.logits, self.values = torch.nn.Linear(size, 2), torch.nn.Linear(size, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        embeddings = self.base(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.logits(embeddings), Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        return self.values(self.base(batch[Columns.OBS]) if embeddings is None else embeddings).squeeze(-1)


def train(env: Any, **rl_module: Any) -> Any:
    """PPO after one iteration."""
    algo = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=1)
        .rl_module(**rl_module)
        .debugging(seed=1)
        .build_algo()
    )
    losses = algo.train()["learners"]["default_policy"]
    assert np.isfinite([float(losses["policy_loss"]), float(losses["vf_loss"])]).all()
    return algo


def test_forbidden_actions_are_never_taken_in_training() -> None:
    spec = RLModuleSpec(ActionMaskingTorchRLModule, model_config={"fcnet_hiddens": [8]})
    train(MaskedEnv, rl_module_spec=spec).stop()


@pytest.mark.parametrize("shared", [True, False])
def test_modules_with_memory_train(shared: bool) -> None:
    settings = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5, "fcnet_hiddens": [8]}
    train("CartPole-v1", model_config={**settings, "vf_share_layers": shared}).stop()


def test_images_and_free_standard_deviations_train() -> None:
    train(ImageEnv, model_config={"free_log_std": True}).stop()


def test_own_modules_train_and_come_back_from_the_algorithms_checkpoint(tmp_path: pathlib.Path) -> None:
    algo = train("CartPole-v1", rl_module_spec=RLModuleSpec(Own, model_config={"size": 5}))
    weights = algo.learner_group.get_weights()["default_policy"]
    algo.save_to_path(tmp_path)
    algo.stop()
    again = RLModule.from_checkpoint(tmp_path / "learner_group" / "learner" / "rl_module" / "default_policy")
    assert isinstance(again, Own)
    assert again.base[0].out_features == 5
    for name, array in again.get_state().items():
        np.testing.assert_array_equal(array, weights[name])


def test_a_specification_loads_weights_from_a_checkpoint(tmp_path: pathlib.Path) -> None:
    spaces = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)
    trained = RLModuleSpec(Own, *spaces, model_config={"size": 5}).build()
    trained.save_to_path(tmp_path)
    spec = RLModuleSpec(Own, model_config={"size": 5}, load_state_path=str(tmp_path))
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .rl_module(rl_module_spec=spec)
        .build_algo()
    )
    try:
        for state in (algo.learner_group.get_weights()["default_policy"], algo.get_module().get_state()):
            for name, array in trained.get_state().items():
                np.testing.assert_array_equal(state[name], array)
    finally:
        algo.stop()
