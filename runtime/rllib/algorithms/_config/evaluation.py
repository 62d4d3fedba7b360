"""Settings of evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, Settings, setter


class EvaluationSettings(Settings):
    """`evaluation()`."""

    def _init_evaluation(self) -> None:
        self.evaluation_interval: int | None = None
        self.evaluation_duration: int | str = 10
        self.evaluation_duration_unit = "episodes"
        self.evaluation_sample_timeout_s: float | None = 120.0
        self.evaluation_auto_duration_min_env_steps_per_sample = 100
        self.evaluation_auto_duration_max_env_steps_per_sample = 2000
        self.evaluation_parallel_to_training = False
        self.evaluation_unhealthy_workers_timeout_s = 0.0
        self.evaluation_error_after_n_consecutive_skips: int | None = None
        self.evaluation_force_reset_envs_before_iteration = True
        self.evaluation_config: Any = None
        self.evaluation_num_env_runners = 0
        self.custom_evaluation_function: Callable[..., Any] | None = None
        self.in_evaluation = False
        self.off_policy_estimation_methods: dict[str, Any] = {}
        self.ope_split_batch_by_episode = True

        self.offline_evaluation_interval: int | None = None
        self.num_offline_eval_runners = 0
        self.offline_evaluation_type = "eval_loss"
        self.offline_eval_runner_class: type | None = None
        self.offline_loss_for_module_fn: Callable[..., Any] | None = None
        self.offline_evaluation_duration: int | str = 1
        self.offline_evaluation_parallel_to_training = False
        self.offline_evaluation_timeout_s = 120.0
        self.offline_eval_batch_size_per_runner = 256
        self.dataset_num_iters_per_eval_runner = 1
        self.offline_eval_rl_module_inference_only = False
        self.num_cpus_per_offline_eval_runner: float = 1
        self.num_gpus_per_offline_eval_runner: float = 0
        self.custom_resources_per_offline_eval_runner: dict[str, float] = {}
        self.max_requests_in_flight_per_offline_eval_runner = 1
        self.broadcast_offline_eval_runner_states = False
        self.validate_offline_eval_runners_after_construction = True
        self.restart_failed_offline_eval_runners = True
        self.ignore_offline_eval_runner_failures = False
        self.max_num_offline_eval_runner_restarts = 1000
        self.offline_eval_runner_health_probe_timeout_s = 30.0
        self.offline_eval_runner_restore_timeout_s = 1800.0

    @setter
    def evaluation(
        self,
        *,
        evaluation_interval: int | None = NotProvided,
        evaluation_duration: int | str = NotProvided,
        evaluation_duration_unit: str = NotProvided,
        evaluation_auto_duration_min_env_steps_per_sample: int = NotProvided,
        evaluation_auto_duration_max_env_steps_per_sample: int = NotProvided,
        evaluation_sample_timeout_s: float | None = NotProvided,
        evaluation_parallel_to_training: bool = NotProvided,
        evaluation_unhealthy_workers_timeout_s: float = NotProvided,
        evaluation_error_after_n_consecutive_skips: int | None = NotProvided,
        evaluation_force_reset_envs_before_iteration: bool = NotProvided,
        evaluation_config: Any = NotProvided,
        off_policy_estimation_methods: dict[str, Any] = NotProvided,
        ope_split_batch_by_episode: bool = NotProvided,
        evaluation_num_env_runners: int = NotProvided,
        custom_evaluation_function: Callable[..., Any] | None = NotProvided,
        offline_evaluation_interval: int | None = NotProvided,
        num_offline_eval_runners: int = NotProvided,
        offline_evaluation_type: str = NotProvided,
        offline_eval_runner_class: type | None = NotProvided,
        offline_loss_for_module_fn: Callable[..., Any] | None = NotProvided,
        offline_evaluation_duration: int | str = NotProvided,
        offline_evaluation_parallel_to_training: bool = NotProvided,
        offline_eval_batch_size_per_runner: int = NotProvided,
        dataset_num_iters_per_offline_eval_runner: int = NotProvided,
        offline_eval_rl_module_inference_only: bool = NotProvided,
        num_cpus_per_offline_eval_runner: float = NotProvided,
        num_gpus_per_offline_eval_runner: float = NotProvided,
        custom_resources_per_offline_eval_runner: dict[str, float] = NotProvided,
        offline_evaluation_timeout_s: float = NotProvided,
        max_requests_in_flight_per_offline_eval_runner: int = NotProvided,
        broadcast_offline_eval_runner_states: bool = NotProvided,
        validate_offline_eval_runners_after_construction: bool = NotProvided,
        restart_failed_offline_eval_runners: bool = NotProvided,
        ignore_offline_eval_runner_failures: bool = NotProvided,
        max_num_offline_eval_runner_restarts: int = NotProvided,
        offline_eval_runner_health_probe_timeout_s: float = NotProvided,
        offline_eval_runner_restore_timeout_s: float = NotProvided,
    ) -> Self:
        """How the policy is judged besides its training.

        Args:
            evaluation_interval: iterations of training between evaluations; None or 0: none.
            evaluation_duration: how much one evaluation samples; "auto", only in parallel to training: as long as the
                training step takes.
            evaluation_duration_unit: "episodes" or "timesteps".
            evaluation_auto_duration_min_env_steps_per_sample: with "auto", the least that one call samples.
            evaluation_auto_duration_max_env_steps_per_sample: the most that one call samples.
            evaluation_sample_timeout_s: the longest wait for the samples of one evaluation.
            evaluation_parallel_to_training: whether it runs while the next training step runs.
            evaluation_unhealthy_workers_timeout_s: how long it waits for lost runners to be replaced.
            evaluation_error_after_n_consecutive_skips: evaluations in a row without any result, after which an error is
                raised; None: never.
            evaluation_force_reset_envs_before_iteration: whether each evaluation starts new episodes.
            evaluation_config: settings that differ, as a dict or an AlgorithmConfig, such as {"explore": False}.
            off_policy_estimation_methods: of the old API stack; only {} is accepted.
            ope_split_batch_by_episode: accepted as Ray's.
            evaluation_num_env_runners: actors that evaluate; 0: the algorithm's own process does.
            custom_evaluation_function: function of (algorithm, eval_env_runner_group) that returns a dict of results,
                or a tuple (results, env steps, agent steps).
            offline_evaluation_interval: iterations between evaluations on offline data; None or 0: none.
            num_offline_eval_runners: actors for them; 0: the algorithm's own process.
            offline_evaluation_type: "eval_loss", "is" or "pdis".
            offline_eval_runner_class: a class of one's own.
            offline_loss_for_module_fn: the loss of a module on offline data; None: that of the learner.
            offline_evaluation_duration: passes over the data of one evaluation, or "auto".
            offline_evaluation_parallel_to_training: whether it runs while the next training step runs.
            offline_eval_batch_size_per_runner: rows of a batch.
            dataset_num_iters_per_offline_eval_runner: batches per evaluation and runner.
            offline_eval_rl_module_inference_only: whether modules are built for inference only.
            num_cpus_per_offline_eval_runner: CPUs of an actor.
            num_gpus_per_offline_eval_runner: GPUs of an actor, also a fraction.
            custom_resources_per_offline_eval_runner: other resources of an actor.
            offline_evaluation_timeout_s: the longest wait for one evaluation.
            max_requests_in_flight_per_offline_eval_runner: calls that an actor may have waiting.
            broadcast_offline_eval_runner_states: whether connectors' states go to the actors.
            validate_offline_eval_runners_after_construction: whether `build_algo` waits until they have answered.
            restart_failed_offline_eval_runners: whether lost ones are replaced.
            ignore_offline_eval_runner_failures: whether lost ones are left out.
            max_num_offline_eval_runner_restarts: replacements per runner.
            offline_eval_runner_health_probe_timeout_s: the longest wait for an answer to a health check.
            offline_eval_runner_restore_timeout_s: the longest wait for a replacement's state.

        Raises:
            ValueError: methods of the old API stack are asked for.
        """
        if off_policy_estimation_methods is not NotProvided and off_policy_estimation_methods:
            raise ValueError(
                "off_policy_estimation_methods belongs to the old API stack. Use evaluation(offline_evaluation_type="
                "'is' or 'pdis')."
            )
        return self.apply(
            evaluation_interval=evaluation_interval,
            evaluation_duration=evaluation_duration,
            evaluation_duration_unit=evaluation_duration_unit,
            evaluation_auto_duration_min_env_steps_per_sample=evaluation_auto_duration_min_env_steps_per_sample,
            evaluation_auto_duration_max_env_steps_per_sample=evaluation_auto_duration_max_env_steps_per_sample,
            evaluation_sample_timeout_s=evaluation_sample_timeout_s,
            evaluation_parallel_to_training=evaluation_parallel_to_training,
            evaluation_unhealthy_workers_timeout_s=evaluation_unhealthy_workers_timeout_s,
            evaluation_error_after_n_consecutive_skips=evaluation_error_after_n_consecutive_skips,
            evaluation_force_reset_envs_before_iteration=evaluation_force_reset_envs_before_iteration,
            evaluation_config=evaluation_config,
            off_policy_estimation_methods=off_policy_estimation_methods,
            ope_split_batch_by_episode=ope_split_batch_by_episode,
            evaluation_num_env_runners=evaluation_num_env_runners,
            custom_evaluation_function=custom_evaluation_function,
            offline_evaluation_interval=offline_evaluation_interval,
            num_offline_eval_runners=num_offline_eval_runners,
            offline_evaluation_type=offline_evaluation_type,
            offline_eval_runner_class=offline_eval_runner_class,
            offline_loss_for_module_fn=offline_loss_for_module_fn,
            offline_evaluation_duration=offline_evaluation_duration,
            offline_evaluation_parallel_to_training=offline_evaluation_parallel_to_training,
            offline_eval_batch_size_per_runner=offline_eval_batch_size_per_runner,
            dataset_num_iters_per_eval_runner=dataset_num_iters_per_offline_eval_runner,
            offline_eval_rl_module_inference_only=offline_eval_rl_module_inference_only,
            num_cpus_per_offline_eval_runner=num_cpus_per_offline_eval_runner,
            num_gpus_per_offline_eval_runner=num_gpus_per_offline_eval_runner,
            custom_resources_per_offline_eval_runner=custom_resources_per_offline_eval_runner,
            offline_evaluation_timeout_s=offline_evaluation_timeout_s,
            max_requests_in_flight_per_offline_eval_runner=max_requests_in_flight_per_offline_eval_runner,
            broadcast_offline_eval_runner_states=broadcast_offline_eval_runner_states,
            validate_offline_eval_runners_after_construction=validate_offline_eval_runners_after_construction,
            restart_failed_offline_eval_runners=restart_failed_offline_eval_runners,
            ignore_offline_eval_runner_failures=ignore_offline_eval_runner_failures,
            max_num_offline_eval_runner_restarts=max_num_offline_eval_runner_restarts,
            offline_eval_runner_health_probe_timeout_s=offline_eval_runner_health_probe_timeout_s,
            offline_eval_runner_restore_timeout_s=offline_eval_runner_restore_timeout_s,
        )
