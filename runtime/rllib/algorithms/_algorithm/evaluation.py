"""Evaluation of an algorithm's modules by runners of their own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from runtime.rllib.algorithms._algorithm.results import state_of
from runtime.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EVALUATION_ITERATION_TIMER,
    EVALUATION_RESULTS,
    NUM_ENV_STEPS_SAMPLED_FOR_EVALUATION_THIS_ITER,
    TIMERS,
)

Samples = list[Any]  # of `Collected`


MOST_WAIT_S = 10.0
"""How long an error in training waits for the evaluation beside it, whose pieces take less unless runners hang."""


class EvaluationError(RuntimeError):
    """Evaluations in a row gave no result."""


class Evaluation:
    """Evaluates with the `eval_env_runner_group` of an algorithm.

    Args:
        algorithm: an `Algorithm` that is set up.
    """

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self._skips = 0
        self._latest: dict[str, Any] = {}

    def latest(self) -> dict[str, Any]:
        """What the last evaluation gave, which is part of all results until the next one; empty before the first."""
        return _copied(self._latest)

    def run(self) -> dict[str, Any]:
        """One evaluation in this thread. See `Algorithm.evaluate`."""
        algorithm = self._algorithm
        if algorithm.eval_env_runner_group is None:
            raise ValueError(
                "The algorithm has no runners for evaluation. Set config.evaluation(evaluation_interval=...) or "
                "evaluation(evaluation_num_env_runners=...) before build_algo()."
            )
        self._before()
        with algorithm.metrics.log_time((TIMERS, EVALUATION_ITERATION_TIMER)):
            sampled = self._sample(training_has_ended=None)
        return self._after(sampled)

    @contextlib.contextmanager
    def beside_training(self) -> Iterator[_Beside]:
        """Evaluates in another thread while the block runs. The object's `results` waits for the end.

        After an error in the block nobody asks for results; the thread ends all the same before the runners can be
        used again.
        """
        self._before()
        beside = _Beside(self)
        beside.start()
        try:
            yield beside
        except BaseException:
            beside.training_has_ended.set()
            beside.join(MOST_WAIT_S)
            raise
        beside.training_has_ended.set()

    def _before(self) -> None:
        algorithm = self._algorithm
        group = algorithm.eval_env_runner_group
        config = algorithm.config
        if config.evaluation_unhealthy_workers_timeout_s > 0:
            deadline = time.monotonic() + config.evaluation_unhealthy_workers_timeout_s
            while (
                group.num_healthy_remote_workers() < group.num_remote_workers()
                and time.monotonic() < deadline
            ):
                group.probe_unhealthy_env_runners()
                time.sleep(0.05)
        group.sync_weights(from_worker_or_learner_group=algorithm.learner_group, inference_only=True)
        if algorithm.env_runner is not None:
            group.sync_env_runner_states(config=algorithm.evaluation_config, from_worker=algorithm.env_runner)
        algorithm._callbacks.call("on_evaluate_start", algorithm=algorithm, metrics_logger=algorithm.metrics)

    def _sample(self, training_has_ended: threading.Event | None) -> Samples | dict[str, Any]:
        """What runners sampled, or the results of a custom function."""
        algorithm, config = self._algorithm, self._algorithm.config
        group = algorithm.eval_env_runner_group
        if config.custom_evaluation_function is not None:
            return self._custom(group)
        if config.evaluation_duration == "auto":
            return self._sample_while_training(group, training_has_ended)
        count = {"env_steps": None, "episodes": None}
        unit = "episodes" if config.evaluation_duration_unit == "episodes" else "env_steps"
        count[unit] = config.evaluation_duration
        self._reset(group)
        collected: Samples = group.collect(**count, timeout_s=config.evaluation_sample_timeout_s)
        return collected

    def _reset(self, group: Any) -> None:
        """Has runners begin new episodes. Whole episodes begin anew anyway."""
        config = self._algorithm.config
        if (
            config.evaluation_force_reset_envs_before_iteration
            and config.evaluation_duration_unit == "timesteps"
        ):
            group.foreach_env_runner(
                "forget_episodes",
                local_env_runner=group.num_remote_workers() == 0,
                remote_worker_ids=group.healthy_env_runner_ids(),  # those that start have no episodes
                timeout_seconds=config.evaluation_sample_timeout_s,
            )

    def _sample_while_training(self, group: Any, training_has_ended: threading.Event | None) -> Samples:
        """Samples piece by piece until the training step ends. Pieces get longer, to have few of them."""
        config = self._algorithm.config
        runners = max(1, config.evaluation_num_env_runners)
        steps = config.evaluation_auto_duration_min_env_steps_per_sample
        sampled: Samples = []
        self._reset(group)
        while True:
            sampled += group.collect(env_steps=steps * runners, timeout_s=config.evaluation_sample_timeout_s)
            if training_has_ended is None or training_has_ended.is_set():
                return sampled
            steps = min(2 * steps, config.evaluation_auto_duration_max_env_steps_per_sample)

    def _custom(self, group: Any) -> dict[str, Any]:
        found = self._algorithm.config.custom_evaluation_function(self._algorithm, group)
        env_steps = 0
        if isinstance(found, tuple):
            found, env_steps = found[0], found[1]
        if not isinstance(found, dict):
            raise TypeError(
                "custom_evaluation_function must return a dict of results, or a tuple (results, env steps, agent "
                f"steps), not {found!r}."
            )
        return {**found, NUM_ENV_STEPS_SAMPLED_FOR_EVALUATION_THIS_ITER: env_steps}

    def _after(self, sampled: Samples | dict[str, Any]) -> dict[str, Any]:
        algorithm = self._algorithm
        metrics = algorithm.metrics
        if isinstance(sampled, dict):
            results = sampled
        else:
            steps = sum(each.env_steps for each in sampled)
            self._count_skip(steps)
            if sampled:
                metrics.aggregate(
                    [each.metrics for each in sampled], key=(EVALUATION_RESULTS, ENV_RUNNER_RESULTS)
                )
            results = metrics.peek((EVALUATION_RESULTS,), default={})
            metrics.delete(EVALUATION_RESULTS, key_error=False)
            results.setdefault(ENV_RUNNER_RESULTS, {})
            results[NUM_ENV_STEPS_SAMPLED_FOR_EVALUATION_THIS_ITER] = steps
        group = algorithm.eval_env_runner_group
        algorithm._tell_of_new_runners(group, is_evaluation=True)
        results.update(state_of(group))
        algorithm._callbacks.call(
            "on_evaluate_end", algorithm=algorithm, metrics_logger=metrics, evaluation_metrics=results
        )
        self._latest = _copied(results)
        return results

    def _count_skip(self, steps: int) -> None:
        self._skips = 0 if steps else self._skips + 1
        limit = self._algorithm.config.evaluation_error_after_n_consecutive_skips
        if limit is not None and self._skips >= limit:
            raise EvaluationError(
                f"{self._skips} evaluations in a row gave no result within evaluation_sample_timeout_s="
                f"{self._algorithm.config.evaluation_sample_timeout_s}. Raise it, or lower evaluation_duration."
            )


def _copied(results: dict[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, dict) else value for key, value in results.items()}


class _Beside(threading.Thread):
    """One evaluation in a thread of its own. Only this thread uses the group meanwhile, and no metrics."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(name="evaluation", daemon=True)
        self.training_has_ended = threading.Event()
        self._evaluation = evaluation
        self._sampled: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._sampled = self._evaluation._sample(self.training_has_ended)
        except BaseException as error:  # raised where results are asked for
            self._error = error

    def results(self) -> dict[str, Any]:
        """The results. The wait ends: each sample has evaluation_sample_timeout_s.

        Raises:
            Exception: what a runner or the custom function raised.
        """
        self.join()
        if self._error is not None:
            raise self._error
        return self._evaluation._after(self._sampled)
