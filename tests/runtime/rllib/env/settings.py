"""The settings of an `AlgorithmConfig` that environment runners read, with a small module of numpy and torch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from runtime.rllib.callbacks.callbacks import RLlibCallback


class Constant:
    """A module that scores actions by fixed logits, or gives fixed actions."""

    def __init__(self, logits: Any = (0.0, 0.0), actions: Any = None) -> None:
        self.logits, self.actions = np.asarray(logits, np.float32), actions
        self.timesteps: list[int] = []

    def is_stateful(self) -> bool:
        return False

    def _outputs(self, batch: dict[str, Any]) -> dict[str, Any]:
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


class Settings:
    """Attributes as `AlgorithmConfig` has them."""

    def __init__(self, env: Any = "CartPole-v1", module: Any = None, **changes: Any) -> None:
        self.env, self.env_config, self.seed = env, {}, 1
        self.module = Constant() if module is None else module
        self.num_env_runners, self.num_envs_per_env_runner = 0, 2
        self.rollout_fragment_length, self.batch_mode, self.explore = 16, "truncate_episodes", True
        self.normalize_actions, self.clip_actions = True, False
        self.gym_env_vectorize_mode: Any = None
        self.disable_env_checking, self.create_env_on_local_worker = False, False
        self.restart_failed_sub_environments = False
        self.metrics_num_episodes_for_smoothing = 100
        self.is_multi_agent, self.env_runner_cls = False, None
        self.restart_failed_env_runners, self.ignore_env_runner_failures = True, False
        self.max_num_env_runner_restarts, self.env_runner_restore_timeout_s = 1000, 60.0
        self.num_cpus_per_env_runner, self.num_gpus_per_env_runner = 1, 0
        self.custom_resources_per_env_runner: dict[str, float] = {}
        self.sample_timeout_s, self.max_requests_in_flight_per_env_runner = 30.0, 1
        self.episode_lookback_horizon = 1
        self.callbacks_class: Any = RLlibCallback
        self.episodes_to_numpy = True
        self._env_to_module_connector = self._module_to_env_connector = None
        self.add_default_connectors_to_env_to_module_pipeline = True
        self.add_default_connectors_to_module_to_env_pipeline = True
        self.__dict__.update(changes)

    def copy(self, copy_frozen: bool | None = None) -> Settings:
        return copy.copy(self)

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        return self.rollout_fragment_length

    def get_rl_module_spec(self, env: Any = None, spaces: Any = None, inference_only: bool = False) -> Spec:
        if self.module == "none":
            raise NotImplementedError
        return Spec(self.module)
