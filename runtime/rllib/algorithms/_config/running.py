"""Settings of how an algorithm runs: resources, callbacks, reports, checkpoints, seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, Settings, setter
from runtime.rllib.algorithms._config.without_effect import warn_of_events
from runtime.rllib.callbacks.callbacks import RLlibCallback

_LOG_LEVELS = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL")

Functions = Callable[..., Any] | Sequence[Callable[..., Any]] | None


class RunningSettings(Settings):
    """`resources()`, `python_environment()`, `api_stack()`, `callbacks()`, `reporting()`, `checkpointing()`,
    `debugging()` and `experimental()`."""

    def _init_running(self) -> None:
        self.num_cpus_for_main_process: float = 1
        self.custom_resources_for_main_process: dict[str, float] = {}
        self.placement_strategy = "PACK"
        self.extra_python_environs_for_driver: dict[str, str] = {}
        self.extra_python_environs_for_worker: dict[str, str] = {}
        self.enable_rl_module_and_learner = True
        self.enable_env_runner_and_connector_v2 = True

        self.callbacks_class: Any = RLlibCallback
        self.callbacks_on_algorithm_init: Functions = None
        self.callbacks_on_train_result: Functions = None
        self.callbacks_on_evaluate_start: Functions = None
        self.callbacks_on_evaluate_end: Functions = None
        self.callbacks_on_evaluate_offline_start: Functions = None
        self.callbacks_on_evaluate_offline_end: Functions = None
        self.callbacks_on_env_runners_recreated: Functions = None
        self.callbacks_on_offline_eval_runners_recreated: Functions = None
        self.callbacks_on_checkpoint_loaded: Functions = None
        self.callbacks_on_environment_created: Functions = None
        self.callbacks_on_episode_created: Functions = None
        self.callbacks_on_episode_start: Functions = None
        self.callbacks_on_episode_step: Functions = None
        self.callbacks_on_episode_end: Functions = None
        self.callbacks_on_sample_end: Functions = None

        self.keep_per_episode_custom_metrics = False
        self.metrics_episode_collection_timeout_s = 60.0
        self.metrics_num_episodes_for_smoothing = 100
        self.min_time_s_per_iteration: float | None = None
        self.min_train_timesteps_per_iteration = 0
        self.min_sample_timesteps_per_iteration = 0
        self.log_gradients = False
        self.custom_stats_cls_lookup: dict[str, type] = {}
        self.export_native_model_files = False
        self.checkpoint_trainable_policies_only = False
        self.log_level = "WARN"
        self.log_sys_usage = True
        self.fake_sampler = False
        self.seed: int | None = None

        self._validate_config = True
        self._use_msgpack_checkpoints = False
        self._torch_grad_scaler_class: Any = None
        self._torch_lr_scheduler_classes: Any = None

    @setter
    def resources(
        self,
        *,
        num_cpus_for_main_process: float = NotProvided,
        custom_resources_for_main_process: dict[str, float] = NotProvided,
        placement_strategy: str = NotProvided,
    ) -> Self:
        """What the algorithm's own process needs.

        Args:
            num_cpus_for_main_process: CPUs. Torch uses as many threads there during `train()`, unless OMP_NUM_THREADS
                is set.
            custom_resources_for_main_process: other resources.
            placement_strategy: of the placement group of all actors: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        """
        return self.apply(
            num_cpus_for_main_process=num_cpus_for_main_process,
            custom_resources_for_main_process=custom_resources_for_main_process,
            placement_strategy=placement_strategy,
        )

    @setter
    def python_environment(
        self,
        *,
        extra_python_environs_for_driver: dict[str, str] = NotProvided,
        extra_python_environs_for_worker: dict[str, str] = NotProvided,
    ) -> Self:
        """Environment variables.

        Args:
            extra_python_environs_for_driver: of the algorithm's process.
            extra_python_environs_for_worker: of the actors.
        """
        return self.apply(
            extra_python_environs_for_driver=extra_python_environs_for_driver,
            extra_python_environs_for_worker=extra_python_environs_for_worker,
        )

    @setter
    def api_stack(
        self,
        enable_rl_module_and_learner: bool = NotProvided,
        enable_env_runner_and_connector_v2: bool = NotProvided,
    ) -> Self:
        """Only the new API stack exists; True is accepted.

        Raises:
            ValueError: the old stack is asked for.
        """
        for name, value in (
            ("enable_rl_module_and_learner", enable_rl_module_and_learner),
            ("enable_env_runner_and_connector_v2", enable_env_runner_and_connector_v2),
        ):
            if value is not NotProvided and not value:
                raise ValueError(
                    f"{name}=False asks for the old API stack, which does not exist here. Use RLModules, Learners, "
                    "EnvRunners and ConnectorV2 (both settings True)."
                )
        return self

    @setter
    def callbacks(
        self,
        callbacks_class: type | list[type] = NotProvided,
        *,
        on_algorithm_init: Functions = NotProvided,
        on_train_result: Functions = NotProvided,
        on_evaluate_start: Functions = NotProvided,
        on_evaluate_end: Functions = NotProvided,
        on_evaluate_offline_start: Functions = NotProvided,
        on_evaluate_offline_end: Functions = NotProvided,
        on_env_runners_recreated: Functions = NotProvided,
        on_offline_eval_runners_recreated: Functions = NotProvided,
        on_checkpoint_loaded: Functions = NotProvided,
        on_environment_created: Functions = NotProvided,
        on_episode_created: Functions = NotProvided,
        on_episode_start: Functions = NotProvided,
        on_episode_step: Functions = NotProvided,
        on_episode_end: Functions = NotProvided,
        on_sample_end: Functions = NotProvided,
    ) -> Self:
        """Code that is called at events. See `RLlibCallback` for the events and their arguments.

        Args:
            callbacks_class: a subclass of `RLlibCallback`, or a list of them.
            on_algorithm_init: a function or a list of functions with the event's keyword arguments; called after the
                methods of the classes. The other arguments are the same for their events.
            on_train_result: see above.
            on_evaluate_start: see above.
            on_evaluate_end: see above.
            on_evaluate_offline_start: see above.
            on_evaluate_offline_end: see above.
            on_env_runners_recreated: see above.
            on_offline_eval_runners_recreated: see above.
            on_checkpoint_loaded: see above.
            on_environment_created: see above.
            on_episode_created: see above.
            on_episode_start: see above.
            on_episode_step: see above.
            on_episode_end: see above.
            on_sample_end: see above.

        Raises:
            TypeError: neither a class nor a function where one is needed.
        """
        functions = {
            "on_algorithm_init": on_algorithm_init,
            "on_train_result": on_train_result,
            "on_evaluate_start": on_evaluate_start,
            "on_evaluate_end": on_evaluate_end,
            "on_evaluate_offline_start": on_evaluate_offline_start,
            "on_evaluate_offline_end": on_evaluate_offline_end,
            "on_env_runners_recreated": on_env_runners_recreated,
            "on_offline_eval_runners_recreated": on_offline_eval_runners_recreated,
            "on_checkpoint_loaded": on_checkpoint_loaded,
            "on_environment_created": on_environment_created,
            "on_episode_created": on_episode_created,
            "on_episode_start": on_episode_start,
            "on_episode_step": on_episode_step,
            "on_episode_end": on_episode_end,
            "on_sample_end": on_sample_end,
        }
        if callbacks_class is None:
            callbacks_class = RLlibCallback
        if callbacks_class is not NotProvided:
            for each in callbacks_class if isinstance(callbacks_class, list | tuple) else [callbacks_class]:
                if not callable(each):
                    raise TypeError(f"callbacks_class must be a subclass of RLlibCallback, not {each!r}.")
                warn_of_events(each, stacklevel=3)
            self.callbacks_class = callbacks_class
        for name, function in functions.items():
            if function is NotProvided:
                continue
            listed = function if isinstance(function, list | tuple) else [function]
            if function is not None and not all(callable(each) for each in listed):
                raise TypeError(
                    f"callbacks({name}=...) must be a function or a list of functions, not {function!r}."
                )
            setattr(self, f"callbacks_{name}", function)
        return self

    @setter
    def reporting(
        self,
        *,
        keep_per_episode_custom_metrics: bool = NotProvided,
        metrics_episode_collection_timeout_s: float = NotProvided,
        metrics_num_episodes_for_smoothing: int = NotProvided,
        min_time_s_per_iteration: float | None = NotProvided,
        min_train_timesteps_per_iteration: int = NotProvided,
        min_sample_timesteps_per_iteration: int = NotProvided,
        log_gradients: bool = NotProvided,
        custom_stats_cls_lookup: dict[str, type] = NotProvided,
    ) -> Self:
        """What one `train()` does and reports.

        Args:
            keep_per_episode_custom_metrics: accepted; log lists with `MetricsLogger` and reduce="item_series".
            metrics_episode_collection_timeout_s: the longest wait for metrics of runners.
            metrics_num_episodes_for_smoothing: episodes over which returns and lengths are averaged.
            min_time_s_per_iteration: training steps are repeated for at least so long.
            min_train_timesteps_per_iteration: the same, until so many time steps were trained.
            min_sample_timesteps_per_iteration: the same, until so many time steps were sampled.
            log_gradients: whether learners report the norms of gradients.
            custom_stats_cls_lookup: names for `reduce=` of `MetricsLogger` -> classes of statistics.
        """
        return self.apply(
            keep_per_episode_custom_metrics=keep_per_episode_custom_metrics,
            metrics_episode_collection_timeout_s=metrics_episode_collection_timeout_s,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
            min_time_s_per_iteration=min_time_s_per_iteration,
            min_train_timesteps_per_iteration=min_train_timesteps_per_iteration,
            min_sample_timesteps_per_iteration=min_sample_timesteps_per_iteration,
            log_gradients=log_gradients,
            custom_stats_cls_lookup=custom_stats_cls_lookup,
        )

    @setter
    def checkpointing(
        self,
        export_native_model_files: bool = NotProvided,
        checkpoint_trainable_policies_only: bool = NotProvided,
    ) -> Self:
        """What a checkpoint holds.

        Args:
            export_native_model_files: accepted: a module's state holds its arrays under the names of torch already.
            checkpoint_trainable_policies_only: whether modules that are not trained are left out.
        """
        return self.apply(
            export_native_model_files=export_native_model_files,
            checkpoint_trainable_policies_only=checkpoint_trainable_policies_only,
        )

    @setter
    def debugging(
        self,
        *,
        log_level: str = NotProvided,
        log_sys_usage: bool = NotProvided,
        fake_sampler: bool = NotProvided,
        seed: int | None = NotProvided,
    ) -> Self:
        """Logs and seeds.

        Args:
            log_level: DEBUG, INFO, WARN or ERROR.
            log_sys_usage: whether results have the use of CPU and memory ("perf").
            fake_sampler: accepted as Ray's.
            seed: of environments, modules and sampling; runners and learners derive their own from it. None: random.

        Raises:
            ValueError: there is no such level.
        """
        if log_level is not NotProvided and log_level not in _LOG_LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(_LOG_LEVELS)}, not {log_level!r}.")
        return self.apply(
            log_level=log_level, log_sys_usage=log_sys_usage, fake_sampler=fake_sampler, seed=seed
        )

    @setter
    def experimental(
        self,
        *,
        _validate_config: bool = NotProvided,
        _use_msgpack_checkpoints: bool = NotProvided,
        _torch_grad_scaler_class: Any = NotProvided,
        _torch_lr_scheduler_classes: Any = NotProvided,
    ) -> Self:
        """Settings that may change.

        Args:
            _validate_config: whether `build_algo` checks the settings.
            _use_msgpack_checkpoints: whether states are saved with msgpack where they can be.
            _torch_grad_scaler_class: of learners, for mixed precision.
            _torch_lr_scheduler_classes: classes of schedulers of learners' optimizers, in order.
        """
        return self.apply(
            _validate_config=_validate_config,
            _use_msgpack_checkpoints=_use_msgpack_checkpoints,
            _torch_grad_scaler_class=_torch_grad_scaler_class,
            _torch_lr_scheduler_classes=_torch_lr_scheduler_classes,
        )
