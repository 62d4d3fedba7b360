"""What runners that step through environments of their own have in common."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.rllib._core.types import DEFAULT_MODULE_ID, Config
from runtime.rllib.callbacks.utils import CallbackCaller
from runtime.rllib.core import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
    COMPONENT_RL_MODULE,
)
from runtime.rllib.env.env_context import EnvContext
from runtime.rllib.env.env_errors import StepFailedRecreateEnvError
from runtime.rllib.env.env_runner import EnvRunner
from runtime.rllib.utils import metrics as names

logger = logging.getLogger(__name__)

# So many failures of environments in a row, without a step between them, and the runner gives up.
MOST_FAILURES_IN_A_ROW = 10


class SamplingRunner(EnvRunner):
    """Environments, a module and connectors, with their states, failures and times.

    Attributes:
        num_envs: how many environments it steps.
        env_to_module, module_to_env: the connector pipelines, or None if the configuration has only default ones.
        callbacks: a `CallbackCaller`.
        num_env_steps_sampled_lifetime: of all runners together, about.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        """
        Args:
            config: an `AlgorithmConfig`.
            kwargs: see `EnvRunner`, and "env_creator": what makes one environment of its `EnvContext`, for names that
                are not registered in this process.
        """
        super().__init__(config=config, **kwargs)
        self.num_envs = 0
        self.callbacks = CallbackCaller(self.config)
        self.num_env_steps_sampled_lifetime = 0
        self.env_to_module: Any = None
        self.module_to_env: Any = None
        self._creator = kwargs.get("env_creator")
        self._seed: int | None = None
        if self.config.seed is not None:
            self._seed = int(self.config.seed) + 10_000 * self.worker_index
        self._rng = np.random.default_rng(self._seed)
        self._weights_seq = 0
        self._failures = 0  # in a row
        self._time_after_sampling: float | None = None
        # The local runner beside remote ones only has the module.
        self._samples = (
            kwargs.get("worker_index") != 0
            or self.config.num_env_runners == 0
            or self.config.create_env_on_local_worker
        )

    # ------------------------------------------------------------ making

    def _make(self) -> None:
        """Makes everything; closes the environments, which may have processes, if that fails."""
        try:
            if self._samples:
                self.make_env()
            self._make_pipelines()
            self.make_module()
        except BaseException:
            self.stop()
            raise

    @abc.abstractmethod
    def _make_pipelines(self) -> None:
        """Makes the connectors, if the configuration has own ones."""

    def _new_context(self) -> EnvContext:
        return EnvContext(
            self.config.env_config,
            worker_index=self.worker_index,
            num_workers=self.num_workers,
            recreated_worker=self.recreated_worker,
        )

    def _seed_torch(self) -> None:
        """So that the module's weights are the same each time."""
        if self._seed is not None:
            import torch

            torch.manual_seed(self._seed)

    def _count_failure(self, error: Exception, what: str) -> None:
        """An environment failed, and is to be made anew.

        Args:
            what: the environment, for the log.

        Raises:
            Exception: the error, if failed environments are not to be made anew, or too many failed in a row.
        """
        expected = isinstance(error, StepFailedRecreateEnvError)
        self._failures += 1
        may_go_on = expected or self.config.restart_failed_sub_environments
        if not may_go_on or self._failures > MOST_FAILURES_IN_A_ROW:
            raise error
        if not expected:
            logger.warning("%s of runner %d failed and is made anew", what, self.worker_index, exc_info=error)

    # ------------------------------------------------------------ sampling

    def _begin(self) -> float:
        """The time at which a sample begins.

        Raises:
            ValueError: there is no environment.
        """
        if self.env is None:
            raise ValueError(
                f"Environment runner {self.worker_index} has no environment to sample from: remote runners sample"
            )
        began = time.perf_counter()
        if self._time_after_sampling is not None:
            self.metrics.log_value(names.TIME_BETWEEN_SAMPLING, began - self._time_after_sampling)
        return began

    def _end(self, began: float) -> None:
        """Logs how long a sample took."""
        self._time_after_sampling = time.perf_counter()
        self.metrics.log_value(names.SAMPLE_TIMER, self._time_after_sampling - began)

    def _wanted(self, steps: int | None, episodes: int | None) -> tuple[int | None, int | None]:
        """How many steps, or how many episodes, to sample: by default as the configuration says."""
        if steps is not None and episodes is not None:
            raise ValueError("Give a number of steps or of episodes to sample, not both")
        if steps is not None or episodes is not None:
            return steps, episodes
        if self.config.batch_mode == "truncate_episodes":
            return self.config.get_rollout_fragment_length(self.worker_index) * self.num_envs, None
        return None, self.num_envs

    # ------------------------------------------------------------ state

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """By component: "rl_module", the connectors if there are own ones; and "num_env_steps_sampled_lifetime" and
        "weights_seq_no".

        Args:
            components: names, or one, such as "rl_module" or "rl_module/p0"; None: all.
            not_components: names, or one, to leave out.
            kwargs: for the module's `get_state`.
        """
        state: dict[str, Any] = {names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime}
        name = COMPONENT_RL_MODULE
        if self.module is not None and self._check_component(name, components, not_components):
            state[name] = self.module.get_state(
                components=self._get_subcomponents(name, components),
                not_components=self._get_subcomponents(name, not_components),
                **kwargs,
            )
            state[names.WEIGHTS_SEQ_NO] = self._weights_seq
        for name, pipeline in self.pipelines().items():
            if self._check_component(name, components, not_components):
                state[name] = pipeline.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` gives. A single module's state may be that of a multi-module with a default module.

        Weights whose "weights_seq_no" is not 0 and not newer than the runner's are left aside.
        """
        weights = state.get(COMPONENT_RL_MODULE)
        number = state.get(names.WEIGHTS_SEQ_NO, 0)
        if weights is not None and (number == 0 or number > self._weights_seq):
            if not self.config.is_multi_agent and DEFAULT_MODULE_ID in weights:
                weights = weights[DEFAULT_MODULE_ID]
            self.module.set_state(weights)
            self._weights_seq = number or self._weights_seq
        for name, pipeline in self.pipelines().items():
            if name in state:
                pipeline.set_state(state[name])
        if names.NUM_ENV_STEPS_SAMPLED_LIFETIME in state:
            self.num_env_steps_sampled_lifetime = state[names.NUM_ENV_STEPS_SAMPLED_LIFETIME]

    def pipelines(self) -> dict[str, Any]:
        """The connector pipelines by component; none if the configuration has only default ones."""
        if self.env_to_module is None:
            return {}
        return {
            COMPONENT_ENV_TO_MODULE_CONNECTOR: self.env_to_module,
            COMPONENT_MODULE_TO_ENV_CONNECTOR: self.module_to_env,
        }

    def stop(self) -> None:
        """Closes the environments; errors of theirs are logged."""
        self._close_env()

    def _close_env(self) -> None:
        if self.env is None:
            return
        env, self.env = self.env, None
        try:
            env.close()
        except Exception:
            logger.warning(
                "An environment of runner %d could not be closed", self.worker_index, exc_info=True
            )
