"""Checks that settings fit together."""

from __future__ import annotations

from typing import Any

from runtime.rllib._core.types import Config


def validate(config: Config) -> None:
    """See `AlgorithmConfig.validate`."""
    if not config._validate_config:
        return
    for check in (_runners, _learners, _batches, _evaluation, _agents):
        check(config)


def _runners(config: Config) -> None:
    for name in ("num_env_runners", "evaluation_num_env_runners", "num_learners", "num_offline_eval_runners"):
        _check_count(config, name, 0)
    _check_count(config, "num_envs_per_env_runner", 1)
    _check_count(config, "metrics_num_episodes_for_smoothing", 1)
    if config.batch_mode not in ("truncate_episodes", "complete_episodes"):
        config._value_error(
            f"batch_mode must be 'truncate_episodes' or 'complete_episodes', not {config.batch_mode!r}."
        )
    length = config.rollout_fragment_length
    if length != "auto" and not (isinstance(length, int) and length > 0):
        config._value_error(f"rollout_fragment_length must be a positive integer or 'auto', not {length!r}.")
    if config.restart_failed_env_runners and config.ignore_env_runner_failures:
        config._value_error(
            "Lost runners cannot be both replaced and left out: set restart_failed_env_runners=False or "
            "ignore_env_runner_failures=False."
        )
    if config.num_env_runners == 0 and not config.create_local_env_runner and config.is_online:
        config._value_error("Nobody samples: set num_env_runners > 0 or create_local_env_runner=True.")


def _learners(config: Config) -> None:
    if config.grad_clip_by not in ("value", "norm", "global_norm"):
        config._value_error(
            f"grad_clip_by must be 'value', 'norm' or 'global_norm', not {config.grad_clip_by!r}."
        )
    if config.grad_clip is not None and config.grad_clip <= 0:
        config._value_error(f"grad_clip must be positive or None, not {config.grad_clip!r}.")
    if not 0 <= config.gamma <= 1:
        config._value_error(f"gamma must be between 0 and 1, not {config.gamma!r}.")
    if config.num_learners > 1 and 0 < config.num_gpus_per_learner < 1:
        config._value_error(
            "Several learners cannot share a GPU (NCCL refuses it): set num_gpus_per_learner to 0 or 1."
        )


def _batches(config: Config) -> None:
    _check_count(config, "train_batch_size_per_learner", 1)
    _check_count(config, "num_epochs", 1)
    size, minibatch = config.train_batch_size_per_learner, config.minibatch_size
    if minibatch is not None and minibatch <= 0:
        config._value_error(f"minibatch_size must be positive or None, not {minibatch!r}.")
    if minibatch is not None and minibatch > size:
        config._value_error(
            f"minibatch_size ({minibatch}) is larger than train_batch_size_per_learner ({size}). Make one of them fit "
            "with config.training(...)."
        )


def _evaluation(config: Config) -> None:
    unit, duration = config.evaluation_duration_unit, config.evaluation_duration
    if unit not in ("episodes", "timesteps"):
        config._value_error(f"evaluation_duration_unit must be 'episodes' or 'timesteps', not {unit!r}.")
    if duration == "auto":
        if not config.evaluation_parallel_to_training and config.evaluation_interval:
            config._value_error("evaluation_duration='auto' needs evaluation_parallel_to_training=True.")
    elif not (isinstance(duration, int) and duration > 0):
        config._value_error(f"evaluation_duration must be a positive integer or 'auto', not {duration!r}.")
    runners = config.evaluation_num_env_runners or config.num_offline_eval_runners
    if config.evaluation_parallel_to_training and not runners:
        config._value_error("evaluation_parallel_to_training=True needs evaluation_num_env_runners > 0.")
    if config.evaluation_interval is not None and config.evaluation_interval < 0:
        config._value_error(
            f"evaluation_interval must be positive or None, not {config.evaluation_interval!r}."
        )


def _agents(config: Config) -> None:
    trained: Any = config.policies_to_train
    if trained is not None and not callable(trained):
        specs = getattr(config._rl_module_spec, "rl_module_specs", None) or {}
        unknown = [each for each in trained if each not in config.policies and each not in specs]
        if unknown:
            config._value_error(
                f"policies_to_train has {', '.join(map(repr, unknown))}, but policies has only "
                f"{', '.join(map(repr, config.policies))}."
            )
    for module_id in config.algorithm_config_overrides_per_module:
        specs = getattr(config._rl_module_spec, "rl_module_specs", None) or {}
        if module_id not in config.policies and module_id not in specs:
            config._value_error(
                f"algorithm_config_overrides_per_module names the module {module_id!r}, which policies has not."
            )


def _check_count(config: Config, name: str, least: int) -> None:
    value = getattr(config, name)
    if not isinstance(value, int) or value < least:
        config._value_error(f"{name} must be an integer of at least {least}, not {value!r}.")
