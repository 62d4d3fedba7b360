"""What samples from environments: the base of its classes, and what it gives."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import runtime as ray
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.utils.checkpoints import Checkpointable
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger


@dataclasses.dataclass(slots=True)
class Collected:
    """What one call of `EnvRunner.collect` gave.

    Attributes:
        rollouts: by module; empty if there was no step.
        env_steps: of environments.
        agent_steps: of all agents.
        metrics: what `MetricsLogger.reduce` gave, for `MetricsLogger.aggregate`.
        weights_seq: the number of the weights that were used, see `EnvRunner.set_state`.
        episodes: the same steps as episodes, if a connector or a callback needed them; else None.
    """

    rollouts: dict[ModuleID, Rollout]
    env_steps: int
    agent_steps: int
    metrics: dict[str, Any]
    weights_seq: int = 0
    episodes: list[Any] | None = None


class EnvRunner(Checkpointable):
    """Steps through environments with a module, in the algorithm's process or as an actor.

    Attributes:
        config: an `AlgorithmConfig`.
        worker_index: 0 for the local runner, from 1 for the remote ones.
        num_workers: the number of remote runners.
        metrics: a `MetricsLogger`.
        env: a gymnasium vector environment, or None.
        module: an `RLModule`, or None.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        """
        Args:
            config: an `AlgorithmConfig`; the runner has a copy.
            kwargs: "worker_index", "num_workers", "recreated_worker", "tune_trial_id", "spaces".
        """
        self.config: Config = config.copy(copy_frozen=False)
        self.worker_index: int = kwargs.get("worker_index") or 0
        self.num_workers: int = kwargs.get("num_workers", self.config.num_env_runners)
        self.recreated_worker: bool = kwargs.get("recreated_worker", False)
        self.tune_trial_id: str | None = kwargs.get("tune_trial_id")
        self.spaces: dict[str, Any] = kwargs.get("spaces") or {}
        self.metrics = MetricsLogger()
        self.env: Any = None
        self.module: Any = None

    @abc.abstractmethod
    def make_env(self) -> None:
        """Makes `env` of the configuration; closes the one before."""

    @abc.abstractmethod
    def make_module(self) -> None:
        """Makes `module` of the configuration."""

    @abc.abstractmethod
    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        """Steps through the environments; gives episodes."""

    @abc.abstractmethod
    def collect(
        self,
        *,
        env_steps: int | None = None,
        episodes: int | None = None,
        random_actions: bool = False,
        explore: bool | None = None,
        deadline_s: float | None = None,
    ) -> Collected:
        """Steps through the environments; gives rollouts."""

    @abc.abstractmethod
    def get_metrics(self) -> dict[str, Any]:
        """The metrics since the last call, for `MetricsLogger.aggregate`."""

    @abc.abstractmethod
    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """Pairs of observation and action space: under "__env__" of the vector environment, under "__env_single__" of
        one environment, and by module."""

    @abc.abstractmethod
    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Its state by component, such as "rl_module"."""

    @abc.abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes components of a state."""

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """See `Checkpointable.get_ctor_args_and_kwargs`."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The module, and the pipelines of connectors if there are own ones."""
        module = [] if self.module is None else [("rl_module", self.module)]
        return [*module, *self.pipelines().items()]

    def sample_get_state_and_metrics(self) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Samples as the configuration says, in one call with what asynchronous algorithms need besides.

        Returns:
            A reference to the list of episodes, which need not pass the caller; the state without the module's
            weights; and what `get_metrics` gives.
        """
        episodes = self.sample()
        state = self.get_state(not_components="rl_module")
        return ray.put(episodes), state, self.get_metrics()

    def pipelines(self) -> dict[str, Any]:
        """The connector pipelines by component; none if the configuration has only default ones."""
        return {}

    @abc.abstractmethod
    def forget_episodes(self) -> None:
        """Has the next sample begin new episodes."""

    def assert_healthy(self) -> None:
        """Checks that there are an environment and a module.

        Raises:
            AssertionError: there are not.
        """
        if self.env is None or self.module is None:
            missing = "environment" if self.env is None else "module"
            raise AssertionError(f"Environment runner {self.worker_index} has no {missing}")

    def ping(self) -> str:
        """Shows that the runner answers."""
        return "pong"

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    def stop(self) -> None:
        """Closes the environments."""
        if self.env is not None:
            self.env.close()
            self.env = None
