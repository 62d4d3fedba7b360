"""What learners with target networks and temporal-difference errors share, and the names of their results."""

from __future__ import annotations

from typing import Any

from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    ATOMS as ATOMS,
)
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_LOGITS as QF_LOGITS,
)
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_NEXT_PREDS as QF_NEXT_PREDS,
)
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_PREDS as QF_PREDS,
)
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_PROBS as QF_PROBS,
)
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_TARGET_NEXT_PREDS as QF_TARGET_NEXT_PREDS,
)
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_TARGET_NEXT_PROBS as QF_TARGET_NEXT_PROBS,
)
from runtime.rllib.core.learner.learner import Learner
from runtime.rllib.core.learner.steps import log_steps_trained
from runtime.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from runtime.rllib.utils.metrics import (
    LAST_TARGET_UPDATE_TS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_TARGET_UPDATES,
)
from runtime.rllib.utils.metrics import TD_ERROR_KEY as TD_ERROR_KEY

QF_LOSS_KEY = "qf_loss"
QF_MEAN_KEY = "qf_mean"
QF_MAX_KEY = "qf_max"
QF_MIN_KEY = "qf_min"
TD_ERROR_MEAN_KEY = "td_error_mean"


class DQNLearner(Learner):
    """Makes target networks, moves them every `target_network_update_freq` env steps, and keeps errors of rows.

    `td_errors` has, after an update, each module's absolute temporal-difference errors [B], in the order of its batch.
    Priorities of replay buffers are made of them.
    """

    def build(self) -> None:
        """Builds the module, its target networks, its optimizers and, if the config has one, the learner connector."""
        self.td_errors: dict[ModuleID, Any] = {}
        self.last_update_ts_by_mid: dict[ModuleID, int] = {}
        self._target_pairs: dict[ModuleID, tuple[list[Any], list[Any]]] = {}
        self._latest: dict[ModuleID, dict[str, Any]] = {}  # tensors of the last loss, to report from
        self._losses: dict[
            ModuleID, Any
        ] = {}  # of the last `update_once`, and the steps of all: not logged yet
        self._steps: dict[ModuleID, list[int]] = {}
        super().build()

    def _add_default_connectors(self, pipeline: Any) -> None:
        from ...connectors.learner import (
            AddNextObservationsFromEpisodesToTrainBatch,
            AddObservationsFromEpisodesToBatch,
        )

        pipeline.insert_after(
            AddObservationsFromEpisodesToBatch, AddNextObservationsFromEpisodesToTrainBatch()
        )

    def _make_module(self) -> Any:
        module = super()._make_module()
        for _, each in module.items():
            self._make_target_networks(each)
        return module

    def _make_target_networks(self, module: Any) -> None:
        if isinstance(module.unwrapped(), TargetNetworkAPI):
            module.unwrapped().make_target_networks()

    def add_module(self, *, module_id: ModuleID, module_spec: Any, **kwargs: Any) -> Any:
        """Adds a module with its target networks and optimizers."""
        spec = super().add_module(module_id=module_id, module_spec=module_spec, **kwargs)
        self._make_target_networks(self.module[module_id])
        return spec

    def remove_module(self, module_id: ModuleID, **kwargs: Any) -> Any:
        """Removes a module and what is known about it."""
        for known in (
            self.td_errors,
            self.last_update_ts_by_mid,
            self._target_pairs,
            self._latest,
            self._losses,
            self._steps,
        ):
            known.pop(module_id, None)
        return super().remove_module(module_id, **kwargs)

    def update(self, *args: Any, _no_metrics_reduce: bool = False, **kwargs: Any) -> Any:
        """As `Learner.update`. Results of learners in actors have the errors of their rows."""
        super().update(*args, _no_metrics_reduce=True, **kwargs)
        return None if _no_metrics_reduce else self.reduce_metrics()

    def update_once(self, batch: Any, timesteps: dict[str, Any]) -> None:
        """One gradient step on a replayed batch: `update` without what only other forms of data need.

        Args:
            batch: module id -> column -> array [B, ...].
            timesteps: as for `update`.
        """
        self.before_gradient_based_update(timesteps=timesteps)
        self._weights_seq_no += 1
        tensors = self._only_updated(batch)
        if tensors:
            self._losses = self._update(tensors)[1]
            for module_id, columns in tensors.items():
                self._steps.setdefault(module_id, []).append(self._steps_in(columns))
        self.after_gradient_based_update(timesteps=timesteps)

    def reduce_metrics(self) -> Any:
        """The reduced metrics since the last call: module id -> name -> value. Losses are those of the last update."""
        for module_id, loss in self._losses.items():
            self.metrics.log_value((module_id, self.TOTAL_LOSS_KEY), loss.detach(), window=1)
        if self._steps:
            log_steps_trained(self.metrics, self._steps, self._weights_seq_no, is_stream=False)
        self._losses, self._steps = {}, {}
        for module_id, tensors in self._latest.items():
            report = self._report(module_id, self.config.get_config_for_module(module_id), tensors)
            self.metrics.log_dict(report, key=module_id, window=1)
            if self.config.num_learners > 0:
                self.metrics.log_value(
                    (module_id, TD_ERROR_KEY), self.td_errors[module_id], reduce="item_series"
                )
        self._latest.clear()
        return self.metrics.reduce()

    def _report(self, module_id: ModuleID, config: Config, tensors: dict[str, Any]) -> dict[str, Any]:
        """Name -> scalar, from what the loss kept in `_latest`."""
        raise NotImplementedError

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves target networks that are due."""
        super().after_gradient_based_update(timesteps=timesteps)
        now = timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0)
        for module_id in self.td_errors:
            config = self.config.get_config_for_module(module_id)
            if now - self.last_update_ts_by_mid.get(module_id, 0) < config.target_network_update_freq:
                continue
            self._move_targets(module_id, config)
            self.last_update_ts_by_mid[module_id] = now
            self.metrics.log_value((module_id, NUM_TARGET_UPDATES), 1, reduce="lifetime_sum")
            self.metrics.log_value((module_id, LAST_TARGET_UPDATE_TS), now, reduce="max")

    def _move_targets(self, module_id: ModuleID, config: Config) -> None:
        raise NotImplementedError

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """Modules have Q values and target networks."""
        return [QNetAPI, TargetNetworkAPI]

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `Learner.get_state`, and when target networks were moved."""
        return {**super().get_state(*args, **kwargs), LAST_TARGET_UPDATE_TS: dict(self.last_update_ts_by_mid)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        self.last_update_ts_by_mid.update(state.get(LAST_TARGET_UPDATE_TS, {}))
