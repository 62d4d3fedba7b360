"""What algorithms share that learn from recorded experience."""

from __future__ import annotations

from typing import Any

from runtime.rllib._core.types import Config
from runtime.rllib.utils.metrics import (
    EVALUATION_RESULTS,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    OFFLINE_EVAL_RUNNER_RESULTS,
    OFFLINE_EVALUATION_ITERATION_TIMER,
    OFFLINE_SAMPLING_TIMER,
    TIMERS,
)

_ROWS_PER_UPDATE = 1 << 17  # that one update call gets at most, to bound memory


class OfflineTraining:
    """A base to put before `Algorithm`. The config's class has, besides the settings, these attributes.

    offline_columns: names of the columns that the data must have.
    trains_on_segments: whether learners get segments of episodes, as value targets need, or single rows in random
        order. Recurrent modules and learner connectors always get segments.
    needs_normalized_actions: whether actions outside of [-1, 1] are refused; False if it is not set.
    updates_batch_by_batch: whether each train batch has an update call of its own, after which targets move.
    """

    config: Any
    metrics: Any
    offline_data: Any
    learner_group: Any
    env_runner_group: Any
    eval_env_runner_group: Any

    offline_eval_runner_group: Any = None

    def _set_up_parts(self) -> None:
        from runtime.rllib.offline.offline_data import OfflineData

        super()._set_up_parts()  # type: ignore[misc]
        config = self.config
        data_class = config.offline_data_class or OfflineData
        self.offline_data = data_class(config)
        self.offline_data.module_spec = self._module_spec  # type: ignore[attr-defined]
        self.offline_data.spaces = self._spaces()
        stateful = self.learner_group.foreach_learner(_has_stateful_module)
        self._gets_segments = (
            config.trains_on_segments or any(stateful) or config.learner_connector is not None
        )

    def _stop_parts(self) -> None:
        super()._stop_parts()  # type: ignore[misc]
        if self.offline_eval_runner_group is not None:
            self.offline_eval_runner_group.stop()

    def _spaces(self) -> tuple[Any, Any]:
        """Of observations and actions of the first module."""
        specs = self._module_spec.rl_module_specs  # type: ignore[attr-defined]
        first = next(iter(specs.values()))
        return first.observation_space, first.action_space

    def training_step(self) -> None:
        """Draws train batches from the offline data and updates the learners with them.

        There are `dataset_num_iters_per_learner` batches of `train_batch_size_per_learner` rows for each learner, or
        as many as one epoch of the data has.
        """
        config, data, metrics = self.config, self.offline_data, self.metrics
        learners = max(1, config.num_learners)
        per_batch = config.train_batch_size_per_learner
        batches = config.dataset_num_iters_per_learner or max(
            1, -(-data.num_rows() // (per_batch * learners))
        )
        at_once = 1 if config.updates_batch_by_batch else max(1, _ROWS_PER_UPDATE // per_batch)
        for done in range(0, batches, at_once):
            rows = per_batch * min(at_once, batches - done) * learners
            with metrics.log_time((TIMERS, OFFLINE_SAMPLING_TIMER)):
                experience = (
                    {"rollouts": data.sample_rollouts(rows)}
                    if self._gets_segments
                    else {"batch": data.sample(rows)}
                )
            metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, rows, reduce="lifetime_sum")
            with metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
                results = self.learner_group.update(
                    **experience,
                    minibatch_size=per_batch,
                    timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: metrics.peek(NUM_ENV_STEPS_SAMPLED_LIFETIME)},
                )
            metrics.aggregate(results, key=LEARNER_RESULTS)
        acting = self.env_runner_group or self.eval_env_runner_group
        if acting is not None:
            acting.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)

    def step(self) -> dict[str, Any]:
        """One iteration, and an evaluation on offline data if it is due."""
        results: dict[str, Any] = super().step()  # type: ignore[misc]
        interval = self.config.offline_evaluation_interval
        if interval and (self._iteration + 1) % interval == 0:  # type: ignore[attr-defined]
            results.setdefault(EVALUATION_RESULTS, {}).update(self.evaluate_offline())
        return results

    def evaluate_offline(self) -> dict[str, Any]:
        """Evaluates the modules on offline data now; see `OfflineEvaluationRunner` and its group.

        Returns:
            {"offline_eval_runners": results}.
        """
        from runtime.rllib.offline.offline_evaluation_runner_group import OfflineEvaluationRunnerGroup

        metrics = self.metrics
        if self.offline_eval_runner_group is None:
            self.offline_eval_runner_group = OfflineEvaluationRunnerGroup(
                config=offline_evaluation_config(self.config),
                module_spec=self._module_spec,  # type: ignore[attr-defined]
                spaces=self._spaces(),
            )
        callbacks: Any = self._callbacks  # type: ignore[attr-defined]
        callbacks.call("on_evaluate_offline_start", algorithm=self, metrics_logger=metrics)
        state = {"rl_module": self.learner_group.get_weights(inference_only=False)}
        with metrics.log_time((TIMERS, OFFLINE_EVALUATION_ITERATION_TIMER)):
            found = self.offline_eval_runner_group.evaluate(state)
        key = (EVALUATION_RESULTS, OFFLINE_EVAL_RUNNER_RESULTS)
        metrics.aggregate(found, key=key)
        results = metrics.peek(key, default={})
        callbacks.call(
            "on_evaluate_offline_end", algorithm=self, metrics_logger=metrics, evaluation_metrics=results
        )
        return {OFFLINE_EVAL_RUNNER_RESULTS: results}


def offline_learner_connector(pipeline: Any, config: Config) -> Any:
    """The pipeline of `build_learner_connector` with next observations and, where these are trained, value targets."""
    from runtime.rllib.connectors.learner import (
        AddNextObservationsFromEpisodesToTrainBatch,
        AddObservationsFromEpisodesToBatch,
        AddOneTsToEpisodesAndTruncate,
        GeneralAdvantageEstimation,
    )

    if config.add_default_connectors_to_learner_pipeline:
        pipeline.insert_after(
            AddObservationsFromEpisodesToBatch, AddNextObservationsFromEpisodesToTrainBatch()
        )
        if config.trains_on_segments:
            pipeline.prepend(AddOneTsToEpisodesAndTruncate())
            pipeline.append(GeneralAdvantageEstimation(gamma=config.gamma, lambda_=config.lambda_))
    return pipeline


def _has_stateful_module(learner: Any) -> bool:
    return any(module.unwrapped().is_stateful() for _, module in learner.module.items())


def offline_evaluation_config(config: Config) -> Config:
    """The settings of evaluation on offline data: those of training with those of `evaluation_config`."""
    made = config.copy(copy_frozen=False)
    changes = config.evaluation_config
    if changes is not None:
        made.update_from_dict(dict(changes) if isinstance(changes, dict) else changes.to_dict())
    made.in_evaluation = True
    made.num_learners = 0
    made.freeze()
    return made


def validate_offline(config: Config) -> None:
    """Checks the settings of an algorithm that reads its experience.

    Raises:
        ValueError: there is no input, or a class is not one of its kind.
    """
    from runtime.rllib.offline.offline_data import OfflineData
    from runtime.rllib.offline.offline_prelearner import OfflinePreLearner

    if not config.is_offline and not config.in_evaluation:
        config._value_error(
            f"{type(config).__name__} learns from recorded data: set config.offline_data(input_=...) to a path, a glob "
            "expression or a list of paths."
        )
    if config.input_read_episodes and config.input_read_sample_batches:
        config._value_error(
            "Data has either episodes or sample batches: set only one of input_read_episodes and "
            "input_read_sample_batches."
        )
    for name, kind in (("offline_data_class", OfflineData), ("prelearner_class", OfflinePreLearner)):
        value = getattr(config, name)
        if value is not None and not issubclass(value, kind):
            config._value_error(f"{name} must be a subclass of {kind.__name__}, not {value!r}.")
