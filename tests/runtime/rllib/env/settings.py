"""A configuration for tests of environment runners, with small modules."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig


class Constant:
    """A module that scores actions by fixed logits, or gives fixed actions."""

    def __init__(self, logits: Any = (0.0, 0.0), actions: Any = None) -> None:
        self.logits, self.actions = np.asarray(logits, np.float32), actions
        self.timesteps: list[int] = []

    def is_stateful(self) -> bool:
        return False

    def _outputs(self, batch: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(batch["obs"], dict):
            assert batch["obs"].dtype != torch.float64
        count = len(next(iter(batch["obs"].values())) if isinstance(batch["obs"], dict) else batch["obs"])
        if self.actions is not None:
            return {"actions": np.repeat(np.asarray(self.actions)[None], count, 0)}
        return {"action_dist_inputs": torch.from_numpy(np.repeat(self.logits[None], count, 0))}

    def forward_exploration(self, batch: dict[str, Any], t: int = 0) -> dict[str, Any]:
        self.timesteps.append(t)
        return self._outputs(batch)

    def forward_inference(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self._outputs(batch)

    def get_exploration_action_dist_cls(self) -> Any:
        from runtime.rllib.core.distribution.torch.torch_distribution import TorchCategorical

        return TorchCategorical

    get_inference_action_dist_cls = get_exploration_action_dist_cls

    def get_state(self, **kwargs: Any) -> dict[str, Any]:
        return {"logits": self.logits.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.logits = np.asarray(state["logits"])


class Counting(Constant):
    """A recurrent module whose state counts the steps of an episode."""

    def is_stateful(self) -> bool:
        return True

    def get_initial_state(self) -> dict[str, Any]:
        return {"h": np.zeros(1, np.float32)}

    def _outputs(self, batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["obs"].shape[1] == 1
        outputs = {name: torch.as_tensor(value)[:, None] for name, value in super()._outputs(batch).items()}
        return {**outputs, "state_out": {"h": batch["state_in"]["h"] + 1}}


class Spec:
    def __init__(self, module: Any) -> None:
        self.module = module

    def build(self) -> Any:
        return copy.deepcopy(self.module)


class Settings(AlgorithmConfig):
    """A configuration with a module of this file."""

    def __init__(self, env: Any = "CartPole-v1", module: Any = None, **changes: Any) -> None:
        super().__init__()
        self.env, self.seed = env, 1
        self.test_module = Constant() if module is None else module
        self.num_envs_per_env_runner, self.rollout_fragment_length = 2, 16
        for name, value in changes.items():
            setattr(self, name, value)

    def get_rl_module_spec(self, *args: Any, **kwargs: Any) -> Any:
        if self.test_module == "none":
            raise NotImplementedError
        return Spec(self.test_module)
