"""Settings of Ray that are taken and change nothing here."""

from __future__ import annotations

import warnings
from typing import Any

_RUNNERS = "lost runners are noticed by the ends of their processes, and replaced at once"
_OFFLINE = "use offline_data(prelearner_class=...) with one of your own"
_IMPALA = "what has arrived is learned from at once, in the algorithm's process"
_MODEL = "use rl_module(model_config=...)"

WITHOUT_EFFECT = {
    "action_mask_key": "a module takes the mask from its observations",
    "actions_in_input_normalized": "record with normalized actions, or use offline_data(prelearner_class=...)",
    "broadcast_offline_eval_runner_states": "each offline evaluation sends the weights",
    "categorical_distribution_temperature": "use a module with its own _forward_exploration()",
    "clip_rewards": "wrap the environment, e.g. with gymnasium.wrappers.TransformReward",
    "compress_observations": "use offline_data(output_compress_columns=...)",
    "delay_between_env_runner_restarts_s": _RUNNERS,
    "env_runner_health_probe_timeout_s": _RUNNERS,
    "export_native_model_files": "a module's checkpoint has its arrays under their names in torch",
    "fake_sampler": "use a small environment",
    "hiddens": _MODEL,
    "input_compress_columns": "compressed columns are found by themselves",
    "input_spaces_jsonable": "spaces come from the environment or the settings of environment()",
    "keep_per_episode_custom_metrics": "log with reduce='item_series'",
    "learner_queue_size": _IMPALA,
    "max_requests_in_flight_per_aggregator_actor": _IMPALA,
    "max_requests_in_flight_per_offline_eval_runner": "each runner has one request at a time",
    "metrics_episode_collection_timeout_s": "metrics come with samples; see env_runners(sample_timeout_s=...)",
    "num_consecutive_env_runner_failures_tolerance": "use fault_tolerance(max_num_env_runner_restarts=...)",
    "num_gpu_loader_threads": _IMPALA,
    "offline_eval_rl_module_inference_only": "losses need the whole module",
    "offline_eval_runner_health_probe_timeout_s": _RUNNERS,
    "offline_eval_runner_restore_timeout_s": _RUNNERS,
    "offline_sampling": "offline data is always read",
    "offline_evaluation_duration": "use evaluation(dataset_num_iters_per_offline_eval_runner=...)",
    "offline_evaluation_parallel_to_training": "offline evaluation follows training",
    "ope_split_batch_by_episode": "offline estimates are always of whole episodes",
    "policy_map_capacity": "all modules stay in memory",
    "policy_model_config": _MODEL,
    "policy_states_are_swappable": "all modules stay in memory",
    "prelearner_buffer_class": _OFFLINE,
    "prelearner_buffer_kwargs": _OFFLINE,
    "prelearner_module_synch_period": _OFFLINE,
    "prelearner_use_recorded_module_states": _OFFLINE,
    "q_model_config": _MODEL,
    "render_env": "use environment(env_config={'render_mode': ...})",
    "shuffle_buffer_size": "use offline_data(iter_batches_kwargs={'local_shuffle_buffer_size': ...})",
    "sigma0": "use a module with its own _forward_exploration()",
    "simple_queue_size": _IMPALA,
    "timeout_s_aggregator_manager": _IMPALA,
    "timeout_s_sampler_manager": _IMPALA,
    "torch_compile_worker": "use learners(torch_compile_learner=True), or compile in the module's setup()",
    "torch_ddp_kwargs": "use a Learner with its own build()",
    "validate_offline_eval_runners_after_construction": "the first evaluation tells",
    "_torch_grad_scaler_class": "use a Learner with its own compute_gradients()",
    "_torch_lr_scheduler_classes": "use training(lr=[[0, ...], [100_000, ...]])",
}
"""Name -> why, or what to use in its place."""

OLD_EVENTS = {
    "on_create_policy": "on_algorithm_init()",
    "on_learn_on_batch": "learners(learner_connector=...)",
    "on_postprocess_trajectory": "learners(learner_connector=...), or on_episode_end()",
    "on_sub_environment_created": "on_environment_created()",
    "on_workers_recreated": "on_env_runners_recreated()",
}
"""Events of callbacks of the old API stack, and what to use in their place."""


def warn_of_events(callbacks_class: Any, stacklevel: int) -> None:
    """Warns if a class of callbacks has methods that nobody calls."""
    for name, other in OLD_EVENTS.items():
        if hasattr(callbacks_class, name):
            warnings.warn(
                f"{getattr(callbacks_class, '__name__', callbacks_class)}.{name}() is never called: it belongs to the "
                f"old API stack. Use {other}.",
                UserWarning,
                stacklevel=stacklevel + 1,
            )


def warn_of(name: str, value: Any, before: Any, stacklevel: int) -> None:
    """Warns if the setting is one of these and gets another value than it had."""
    if name not in WITHOUT_EFFECT or value is before or value == before:
        return
    warnings.warn(
        f"{name}={value!r} has no effect here: {WITHOUT_EFFECT[name]}.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
