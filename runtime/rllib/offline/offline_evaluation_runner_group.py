"""The runners that evaluate on offline data: one in this process, or actors."""

from __future__ import annotations

import logging
from typing import Any

import runtime
from runtime._extension.workers import preloaded
from runtime.exceptions import GetTimeoutError, RayActorError
from runtime.rllib._core.types import Config

from .offline_evaluation_runner import OfflineEvaluationRunner

__all__ = ["OfflineEvaluationRunnerGroup"]

log = logging.getLogger(__name__)

MODULES = ("torch", "pyarrow", "runtime.rllib.offline.offline_evaluation_runner")  # that actors have loaded


class OfflineEvaluationRunnerGroup:
    """`num_offline_eval_runners` actors, or with 0 a runner in this process.

    Each draws batches of its own from all data. A lost actor gives no result to the evaluation under way; it is
    replaced before the next one (`restart_failed_offline_eval_runners`), left out
    (`ignore_offline_eval_runner_failures`), or else its error is raised.

    Args:
        config: of the evaluation.
        module_spec: of the modules.
        spaces: of observations and actions.
    """

    def __init__(self, *, config: Config, module_spec: Any, spaces: Any) -> None:
        self.config = config
        self._class: type = config.offline_eval_runner_class or OfflineEvaluationRunner
        self._arguments = {"module_spec": module_spec, "spaces": spaces}
        self._restarts = 0
        self.local_runner: Any = None
        self._actors: dict[int, Any] = {}
        if config.num_offline_eval_runners == 0:
            self.local_runner = self._class(config=config, **self._arguments)
        for index in range(config.num_offline_eval_runners):
            self._actors[index] = self._made(index)

    def _made(self, index: int) -> Any:
        config = self.config.copy(copy_frozen=False)
        if config.seed is not None:
            config.seed += 1 + index  # runners draw different rows
        options = {
            "num_cpus": config.num_cpus_per_offline_eval_runner,
            "num_gpus": config.num_gpus_per_offline_eval_runner,
            "resources": config.custom_resources_per_offline_eval_runner or None,
            "runtime_env": preloaded(*MODULES),
        }
        config.freeze()
        return runtime.remote(self._class).options(**options).remote(config=config, **self._arguments)

    @property
    def num_healthy_remote_runners(self) -> int:
        """Actors that are not known to be lost."""
        return len(self._actors)

    def evaluate(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The reduced metrics of each runner that answered within `offline_evaluation_timeout_s`.

        Args:
            state: of the modules, for `OfflineEvaluationRunner.set_state`.

        Raises:
            RayActorError: an actor was lost, and it is neither replaced nor left out.
        """
        if self.local_runner is not None:
            self.local_runner.set_state(state)
            return [self.local_runner.run()]
        config = self.config
        missing = set(range(config.num_offline_eval_runners)) - self._actors.keys()
        for index in missing if config.restart_failed_offline_eval_runners else ():
            if self._restarts < config.max_num_offline_eval_runner_restarts * config.num_offline_eval_runners:
                self._restarts += 1
                self._actors[index] = self._made(index)
        shared = runtime.put(state)
        calls = {}
        for index, actor in self._actors.items():
            actor.set_state.remote(shared)
            calls[index] = actor.run.remote()
        if not calls:
            return []
        ready, late = runtime.wait(
            list(calls.values()), num_returns=len(calls), timeout=config.offline_evaluation_timeout_s
        )
        if late:
            log.warning("%d offline evaluation runners did not answer in time", len(late))
        return [
            found for index, call in calls.items() if call in ready and (found := self._result(index, call))
        ]

    def _result(self, index: int, call: Any) -> dict[str, Any] | None:
        try:
            return runtime.get(call, timeout=self.config.offline_evaluation_timeout_s)
        except GetTimeoutError:
            return None
        except RayActorError as error:
            config = self.config
            if (
                not config.restart_failed_offline_eval_runners
                and not config.ignore_offline_eval_runner_failures
            ):
                raise
            log.warning("Offline evaluation runner %d was lost: %s", index, error)
            del self._actors[index]
            return None

    def stop(self) -> None:
        """Ends the actors."""
        for actor in self._actors.values():
            runtime.kill(actor)
        self._actors.clear()
        if self.local_runner is not None:
            self.local_runner.stop()
