"""What all groups of settings share: values that were not given, refused names, freezing."""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _NotProvided:
    """The default of setters' parameters: leave the setting as it is. None is a value."""

    def __repr__(self) -> str:
        return "NotProvided"

    def __copy__(self) -> _NotProvided:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> _NotProvided:
        return self

    def __reduce__(self) -> str:
        return "NotProvided"


NotProvided: Any = _NotProvided()

REPLACED = {
    "num_rollout_workers": "env_runners(num_env_runners=...)",
    "num_workers": "env_runners(num_env_runners=...)",
    "num_envs_per_worker": "env_runners(num_envs_per_env_runner=...)",
    "validate_workers_after_construction": "env_runners(validate_env_runners_after_construction=...)",
    "num_cpus_per_worker": "env_runners(num_cpus_per_env_runner=...)",
    "num_gpus_per_worker": "env_runners(num_gpus_per_env_runner=...)",
    "custom_resources_per_worker": "env_runners(custom_resources_per_env_runner=...)",
    "remote_worker_envs": "env_runners(gym_env_vectorize_mode='async')",
    "remote_env_batch_wait_ms": "env_runners(gym_env_vectorize_mode='async')",
    "observation_filter": "env_runners(env_to_module_connector=...) with a MeanStdFilter",
    "synchronize_filter": "env_runners(merge_env_runner_states=..., broadcast_env_runner_states=...)",
    "use_worker_filter_stats": "env_runners(merge_env_runner_states=...)",
    "update_worker_filter_stats": "env_runners(broadcast_env_runner_states=...)",
    "preprocessor_pref": "env_runners(env_to_module_connector=...)",
    "enable_connectors": "env_runners(env_to_module_connector=...)",
    "sample_collector": "env_runners(env_to_module_connector=...)",
    "exploration_config": "an RLModule with its own _forward_exploration()",
    "num_learner_workers": "learners(num_learners=...)",
    "num_cpus_per_learner_worker": "learners(num_cpus_per_learner=...)",
    "num_gpus_per_learner_worker": "learners(num_gpus_per_learner=...)",
    "num_cpus_for_local_worker": "resources(num_cpus_for_main_process=...)",
    "num_gpus": "learners(num_gpus_per_learner=...)",
    "_fake_gpus": "learners(num_gpus_per_learner=0)",
    "num_sgd_iter": "training(num_epochs=...)",
    "sgd_minibatch_size": "training(minibatch_size=...)",
    "model": "rl_module(model_config=...)",
    "optimizer": "a Learner with its own configure_optimizers_for_module()",
    "model_config_dict": "rl_module(model_config=...)",
    "_enable_rl_module_api": "rl_module(rl_module_spec=...)",
    "evaluation_num_workers": "evaluation(evaluation_num_env_runners=...)",
    "evaluation_num_episodes": "evaluation(evaluation_duration=...)",
    "always_attach_evaluation_results": "evaluation(evaluation_interval=1)",
    "ignore_worker_failures": "fault_tolerance(ignore_env_runner_failures=...)",
    "recreate_failed_workers": "fault_tolerance(restart_failed_env_runners=...)",
    "recreate_failed_env_runners": "fault_tolerance(restart_failed_env_runners=...)",
    "max_num_worker_restarts": "fault_tolerance(max_num_env_runner_restarts=...)",
    "delay_between_worker_restarts_s": "fault_tolerance(delay_between_env_runner_restarts_s=...)",
    "num_consecutive_worker_failures_tolerance": "fault_tolerance(num_consecutive_env_runner_failures_tolerance=...)",
    "worker_health_probe_timeout_s": "fault_tolerance(env_runner_health_probe_timeout_s=...)",
    "worker_restore_timeout_s": "fault_tolerance(env_runner_restore_timeout_s=...)",
    "policy_map_cache": "multi_agent(policy_map_capacity=...)",
    "replay_mode": "training(replay_buffer_config=...)",
    "env_task_fn": "callbacks(on_train_result=...), which calls the environments' methods",
    "metrics_smoothing_episodes": "reporting(metrics_num_episodes_for_smoothing=...)",
    "min_iter_time_s": "reporting(min_time_s_per_iteration=...)",
    "timesteps_per_iteration": "reporting(min_sample_timesteps_per_iteration=...)",
}
"""Settings of Ray's old API stack, and what to use in their place."""


def setter(method: Callable[P, R]) -> Callable[P, R]:
    """Marks a method of settings: unknown keywords raise a TypeError with the nearest names, those of the old API stack
    a ValueError with what took their place."""
    parameters = inspect.signature(method).parameters
    takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not takes_more and not kwargs.keys() <= parameters.keys():
            config: Any = args[0]
            config.refuse_settings(method.__name__, [name for name in kwargs if name not in parameters])
        return method(*args, **kwargs)

    return checked


class Settings:
    """Attributes that setters change until the object is frozen."""

    _is_frozen = False

    def warn_without_effect(self, why: str, **settings: Any) -> None:
        """Warns of settings that are accepted for compatibility only, if they were given another value than they have.

        Args:
            why: what is done instead, or what to set instead.
            settings: names with the values that were given, or `NotProvided`.
        """
        for name, value in settings.items():
            if value is not NotProvided and value != getattr(self, name):
                warnings.warn(f"{name}={value!r} has no effect: {why}", UserWarning, stacklevel=4)

    def apply(self, **settings: Any) -> Self:
        """Sets the attributes whose value was given, that is, is not `NotProvided`."""
        for name, value in settings.items():
            if value is not NotProvided:
                setattr(self, name, value)
        return self

    def refuse_settings(self, method: str, names: Iterable[str]) -> None:
        """Raises the error for keywords that a setter does not have.

        Raises:
            ValueError: the setting belongs to the old API stack; says what took its place.
            TypeError: there is no such setting; names the nearest ones.
        """
        known: dict[str, str] = {}
        for owner in type(self).__mro__:
            for name, function in vars(owner).items():
                if not inspect.isfunction(function) or not hasattr(function, "__wrapped__"):
                    continue
                for parameter in list(inspect.signature(function).parameters)[1:]:
                    known.setdefault(parameter, name)
        for name in names:
            if name in REPLACED:
                raise ValueError(f"{method}({name}=...) belongs to the old API stack. Use {REPLACED[name]}.")
            if name in known and known[name] != method:
                raise TypeError(
                    f"{type(self).__name__}.{method}() has no setting {name!r}; {known[name]}() has it."
                )
            near = [
                f"{known[each]}({each}=...)"
                for each in difflib.get_close_matches(name, known, n=3, cutoff=0.6)
            ]
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise TypeError(f"{type(self).__name__}.{method}() has no setting {name!r}.{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_frozen:
            raise AttributeError(
                f"This {type(self).__name__} is frozen (an algorithm uses it): {name!r} cannot be set. Change a copy: "
                "config.copy(copy_frozen=False)."
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in REPLACED:
            raise AttributeError(f"{name!r} belongs to the old API stack. Use {REPLACED[name]}.")
        raise AttributeError(f"{type(self).__name__} has no setting {name!r}")
