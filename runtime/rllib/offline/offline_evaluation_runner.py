"""Evaluates modules on offline data: by a loss, or by what they would earn."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.rllib._core import off_policy_estimates
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import ALL_MODULES, Config, ModuleID
from runtime.rllib.core import COMPONENT_RL_MODULE
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.training_data import TrainingData, row_count
from runtime.rllib.utils.metrics import (
    DATASET_NUM_ITERS_EVALUATED,
    DATASET_NUM_ITERS_EVALUATED_LIFETIME,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    OFFLINE_SAMPLING_TIMER,
    WEIGHTS_SEQ_NO,
)
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger

from .offline_data import OfflineData

__all__ = ["TOTAL_EVAL_LOSS_KEY", "OfflineEvaluationRunner"]

TOTAL_EVAL_LOSS_KEY = "total_eval_loss"

_ESTIMATES = {"is": off_policy_estimates.importance_sampling, "pdis": off_policy_estimates.per_decision}

_Found = dict[tuple[str, ...], list[float]]  # name of a metric -> values of batches or episodes


class OfflineEvaluationRunner:
    """Draws batches of offline data and reports how well the modules do on them.

    With `offline_evaluation_type="eval_loss"` this is the mean of the learner's loss, or of
    `offline_loss_for_module_fn(runner, *, module_id, config, batch, fwd_out)`. With "is" (importance sampling) and
    "pdis" (its per-decision form) it is an estimate of the policy's return, which needs the column "action_logp" and
    whole episodes in a batch.

    Args:
        config: of the evaluation: its `input_` may be other data than that of training.
        module_spec: of the modules.
        kwargs: "spaces", of observations and actions.

    Raises:
        ValueError: `offline_evaluation_type` is unknown.
    """

    def __init__(self, config: Config, module_spec: Any = None, **kwargs: Any) -> None:
        if config.offline_evaluation_type not in {"eval_loss", *_ESTIMATES}:
            raise ValueError(
                f"offline_evaluation_type={config.offline_evaluation_type!r} must be 'eval_loss', 'is' or 'pdis'"
            )
        self.config = config
        self.metrics = MetricsLogger()
        # The learner's batches and losses are those of training; it has optimizers, but makes no step.
        self._learner = config.learner_class(config=config, module_spec=module_spec)
        self._learner.build()
        stateful = any(module.unwrapped().is_stateful() for _, module in self.module.items())
        self._gets_segments = config.trains_on_segments or stateful
        self._data = OfflineData(config)
        self._data.spaces = kwargs.get("spaces")
        self._weights_seq_no = 0
        self._loss = (
            types.MethodType(config.offline_loss_for_module_fn, self)
            if config.offline_loss_for_module_fn
            else None
        )

    @property
    def module(self) -> Any:
        """The MultiRLModule that is evaluated."""
        return self._learner.module

    def run(self, **kwargs: Any) -> dict[str, Any]:
        """Evaluates `dataset_num_iters_per_eval_runner` batches; the reduced metrics."""
        config = self.config
        evaluate = (
            self._evaluate_loss if config.offline_evaluation_type == "eval_loss" else self._evaluate_return
        )
        found: _Found = {}
        for _ in range(config.dataset_num_iters_per_eval_runner):
            evaluate(config.offline_eval_batch_size_per_runner, found)
        for path, values in found.items():
            self.metrics.log_value(path, float(np.mean(values)), window=1)
        count = config.dataset_num_iters_per_eval_runner
        self.metrics.log_value((ALL_MODULES, DATASET_NUM_ITERS_EVALUATED), count, reduce="sum")
        self.metrics.log_value(
            (ALL_MODULES, DATASET_NUM_ITERS_EVALUATED_LIFETIME), count, reduce="lifetime_sum"
        )
        self.metrics.log_value(WEIGHTS_SEQ_NO, self._weights_seq_no, window=1)
        return self.metrics.reduce()

    def _evaluate_loss(self, rows: int, found: _Found) -> None:
        import torch

        learner = self._learner
        with self.metrics.log_time(OFFLINE_SAMPLING_TIMER):
            if self._gets_segments:
                data = TrainingData(rollouts=self._data.sample_rollouts(rows))
            else:
                data = TrainingData(batch=self._data.sample(rows))
            batch = learner.batch_from_data(data)
        learner.logs_losses = False
        with torch.no_grad():
            outputs = learner.module.forward_train(batch)
            losses = (
                learner.compute_losses(fwd_out=outputs, batch=batch)
                if self._loss is None
                else {
                    module_id: self._loss(
                        module_id=module_id,
                        config=self.config.get_config_for_module(module_id),
                        batch=batch[module_id],
                        fwd_out=output,
                    )
                    for module_id, output in outputs.items()
                }
            )
        for module_id, loss in losses.items():
            found.setdefault((module_id, TOTAL_EVAL_LOSS_KEY), []).append(float(loss))
            self.metrics.log_value(
                (module_id, "num_module_steps_evaluated"), row_count(batch[module_id]), reduce="sum"
            )

    def _evaluate_return(self, rows: int, found: _Found) -> None:
        with self.metrics.log_time(OFFLINE_SAMPLING_TIMER):
            rollouts = self._data.sample_rollouts(rows)
        for module_id, drawn in rollouts.items():
            segments = drawn.segments
            whole = (segments.terminated | segments.truncated) & (segments.t_started == 0)
            rollout = drawn.take_segments(np.flatnonzero(whole))  # fragments would count as short episodes
            if not rollout.rows:
                continue
            log_ratios = self._logp(module_id, rollout) - self._recorded_logp(rollout)
            estimate = _ESTIMATES[self.config.offline_evaluation_type]
            returns = estimate(log_ratios, rollout.columns[Columns.REWARDS], rollout.segments)
            found.setdefault((EPISODE_RETURN_MEAN,), []).extend(returns.tolist())
            found.setdefault((EPISODE_LEN_MEAN,), []).extend(rollout.segments.lengths.tolist())

    def _logp(self, module_id: ModuleID, rollout: Rollout) -> np.ndarray:
        """float [rows], of the recorded actions under the module's policy."""
        import torch

        module = self.module[module_id].unwrapped()
        if module.is_stateful():
            raise ValueError("Importance sampling of recurrent modules is not supported: use 'eval_loss'")
        columns = {name: rollout.columns[name] for name in (Columns.OBS, Columns.ACTIONS)}
        batch = self._learner.batch_from_data(TrainingData(batch={module_id: columns}))[module_id]
        with torch.no_grad():
            inputs = module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
            logp = module.get_exploration_action_dist_cls().from_logits(inputs).logp(batch[Columns.ACTIONS])
        return logp.cpu().numpy()

    @staticmethod
    def _recorded_logp(rollout: Rollout) -> np.ndarray:
        if Columns.ACTION_LOGP not in rollout.columns:
            raise ValueError(
                "Importance sampling needs the column 'action_logp', the log-probability of each action when it was "
                "recorded; the data lacks it"
            )
        return rollout.columns[Columns.ACTION_LOGP]

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The modules' weights."""
        return {COMPONENT_RL_MODULE: self.module.get_state(), WEIGHTS_SEQ_NO: self._weights_seq_no}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes weights, unless they are older than those it has."""
        number = state.get(WEIGHTS_SEQ_NO, 0)
        if COMPONENT_RL_MODULE in state and (number == 0 or number > self._weights_seq_no):
            self.module.set_state(state[COMPONENT_RL_MODULE])
        self._weights_seq_no = max(number, self._weights_seq_no)

    def get_metrics(self) -> dict[str, Any]:
        """The metrics since the last call, for `MetricsLogger.aggregate`."""
        return self.metrics.reduce()

    def assert_healthy(self) -> None:
        """It is, once it was made."""

    def stop(self) -> None:
        """Releases nothing: it has no environment and no thread."""
