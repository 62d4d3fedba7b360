"""Settings of environments and of the runners that sample in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, Settings, setter


class SamplingSettings(Settings):
    """`environment()`, `env_runners()` and `fault_tolerance()`."""

    def _init_sampling(self) -> None:
        self.env: Any = None
        self.env_config: dict[str, Any] = {}
        self.observation_space: Any = None
        self.action_space: Any = None
        self.clip_rewards: bool | float | None = None
        self.normalize_actions = True
        self.clip_actions = False
        self._is_atari: bool | None = None
        self.disable_env_checking = False
        self.render_env = False
        self.action_mask_key = "action_mask"

        self.env_runner_cls: type | None = None
        self.num_env_runners = 0
        self.create_local_env_runner = True
        self.create_env_on_local_worker = False
        self.num_envs_per_env_runner = 1
        self.gym_env_vectorize_mode: Any = None
        self.num_cpus_per_env_runner: float = 1
        self.num_gpus_per_env_runner: float = 0
        self.custom_resources_per_env_runner: dict[str, float] = {}
        self.validate_env_runners_after_construction = True
        self.episodes_to_numpy = True
        self.max_requests_in_flight_per_env_runner = 1
        self.sample_timeout_s: float | None = 60.0
        self._env_to_module_connector: Callable[..., Any] | None = None
        self.add_default_connectors_to_env_to_module_pipeline = True
        self._module_to_env_connector: Callable[..., Any] | None = None
        self.add_default_connectors_to_module_to_env_pipeline = True
        self.merge_env_runner_states: bool | str = "training_only"
        self.broadcast_env_runner_states = True
        self.episode_lookback_horizon = 1
        self.rollout_fragment_length: int | str = 200
        self.batch_mode = "truncate_episodes"
        self.compress_observations = False
        self.explore = True

        self.restart_failed_env_runners = True
        self.ignore_env_runner_failures = False
        self.max_num_env_runner_restarts = 1000
        self.delay_between_env_runner_restarts_s = 60.0
        self.restart_failed_sub_environments = False
        self.num_consecutive_env_runner_failures_tolerance = 100
        self.env_runner_health_probe_timeout_s = 30.0
        self.env_runner_restore_timeout_s = 1800.0

    @setter
    def environment(
        self,
        env: Any = NotProvided,
        *,
        env_config: dict[str, Any] = NotProvided,
        observation_space: Any = NotProvided,
        action_space: Any = NotProvided,
        render_env: bool = NotProvided,
        clip_rewards: bool | float | None = NotProvided,
        normalize_actions: bool = NotProvided,
        clip_actions: bool = NotProvided,
        disable_env_checking: bool = NotProvided,
        is_atari: bool | None = NotProvided,
        action_mask_key: str = NotProvided,
    ) -> Self:
        """Which environment, and how actions reach it.

        Args:
            env: a name that Gymnasium or `tune.register_env` knows, "ale_py:ALE/Pong-v5", or a class or function that
                gets an `EnvContext` and returns the environment.
            env_config: the context's entries; merged with those of earlier calls.
            observation_space: of the environment, if it cannot be asked for.
            action_space: the same.
            render_env: whether the environments render.
            clip_rewards: True: their signs; a number: to plus or minus it.
            normalize_actions: whether modules give actions in [-1, 1], which are scaled to the bounds of the space.
            clip_actions: whether actions are clipped to the bounds of the space.
            disable_env_checking: whether environments are not checked when they are made.
            is_atari: whether it is an Atari game; None: judged by the name.
            action_mask_key: of a dict of observations, where the mask of allowed actions is.
        """
        if env_config is not NotProvided:
            self.env_config = {**self.env_config, **env_config}
        return self.apply(
            env=env,
            observation_space=observation_space,
            action_space=action_space,
            render_env=render_env,
            clip_rewards=clip_rewards,
            normalize_actions=normalize_actions,
            clip_actions=clip_actions,
            disable_env_checking=disable_env_checking,
            _is_atari=is_atari,
            action_mask_key=action_mask_key,
        )

    @setter
    def env_runners(
        self,
        *,
        env_runner_cls: type | None = NotProvided,
        num_env_runners: int = NotProvided,
        create_local_env_runner: bool = NotProvided,
        create_env_on_local_worker: bool = NotProvided,
        num_envs_per_env_runner: int = NotProvided,
        gym_env_vectorize_mode: Any = NotProvided,
        num_cpus_per_env_runner: float = NotProvided,
        num_gpus_per_env_runner: float = NotProvided,
        custom_resources_per_env_runner: dict[str, float] = NotProvided,
        validate_env_runners_after_construction: bool = NotProvided,
        sample_timeout_s: float | None = NotProvided,
        max_requests_in_flight_per_env_runner: int = NotProvided,
        env_to_module_connector: Callable[..., Any] | None = NotProvided,
        module_to_env_connector: Callable[..., Any] | None = NotProvided,
        add_default_connectors_to_env_to_module_pipeline: bool = NotProvided,
        add_default_connectors_to_module_to_env_pipeline: bool = NotProvided,
        episode_lookback_horizon: int = NotProvided,
        merge_env_runner_states: bool | str = NotProvided,
        broadcast_env_runner_states: bool = NotProvided,
        use_env_runner_state_server: bool = NotProvided,
        env_runner_state_server_max_concurrency: int = NotProvided,
        compress_observations: bool = NotProvided,
        rollout_fragment_length: int | str = NotProvided,
        batch_mode: str = NotProvided,
        explore: bool = NotProvided,
        episodes_to_numpy: bool = NotProvided,
    ) -> Self:
        """How experience is sampled.

        Args:
            env_runner_cls: None: the one for single or for several agents.
            num_env_runners: actors that sample; 0: the algorithm's own process samples.
            create_local_env_runner: whether the algorithm's process has a runner in any case, to evaluate and to know
                the spaces.
            create_env_on_local_worker: whether that one has environments although others sample.
            num_envs_per_env_runner: environments that one runner steps together.
            gym_env_vectorize_mode: of `gymnasium.make_vec`: "sync", "async", "vector_entry_point"; None: the
                environment's own vector form if it has one, else "sync".
            num_cpus_per_env_runner: CPUs of an actor.
            num_gpus_per_env_runner: GPUs of an actor, also a fraction.
            custom_resources_per_env_runner: other resources of an actor.
            validate_env_runners_after_construction: whether `build_algo` raises the errors of actors that cannot start,
                such as those of an environment's constructor; else `train` does.
            sample_timeout_s: the longest wait for one sample; what comes later is used by the next call.
            max_requests_in_flight_per_env_runner: calls that an actor may have waiting (asynchronous algorithms).
            env_to_module_connector: function of (env, spaces, device) that returns a connector or a list of them.
            module_to_env_connector: the same for the way back.
            add_default_connectors_to_env_to_module_pipeline: whether the default pieces follow the given ones.
            add_default_connectors_to_module_to_env_pipeline: the same for the way back.
            episode_lookback_horizon: time steps of the past that a part of an episode keeps.
            merge_env_runner_states: whether connectors' states of all runners are merged: True, False or
                "training_only".
            broadcast_env_runner_states: whether all runners get the merged states.
            use_env_runner_state_server: accepted: states always go through the object store, once for all runners.
            env_runner_state_server_max_concurrency: accepted, without effect.
            compress_observations: whether episodes hold compressed observations.
            rollout_fragment_length: time steps per environment and sample; "auto": so that a sample of all runners is
                one train batch.
            batch_mode: "truncate_episodes", or "complete_episodes": samples are whole episodes.
            explore: whether actions are drawn with `forward_exploration`, not `forward_inference`.
            episodes_to_numpy: accepted: episodes are always NumPy arrays.
        """
        self._check_accepted(use_env_runner_state_server, env_runner_state_server_max_concurrency)
        return self.apply(
            env_runner_cls=env_runner_cls,
            num_env_runners=num_env_runners,
            create_local_env_runner=create_local_env_runner,
            create_env_on_local_worker=create_env_on_local_worker,
            num_envs_per_env_runner=num_envs_per_env_runner,
            gym_env_vectorize_mode=gym_env_vectorize_mode,
            num_cpus_per_env_runner=num_cpus_per_env_runner,
            num_gpus_per_env_runner=num_gpus_per_env_runner,
            custom_resources_per_env_runner=custom_resources_per_env_runner,
            validate_env_runners_after_construction=validate_env_runners_after_construction,
            sample_timeout_s=sample_timeout_s,
            max_requests_in_flight_per_env_runner=max_requests_in_flight_per_env_runner,
            _env_to_module_connector=env_to_module_connector,
            _module_to_env_connector=module_to_env_connector,
            add_default_connectors_to_env_to_module_pipeline=add_default_connectors_to_env_to_module_pipeline,
            add_default_connectors_to_module_to_env_pipeline=add_default_connectors_to_module_to_env_pipeline,
            episode_lookback_horizon=episode_lookback_horizon,
            merge_env_runner_states=merge_env_runner_states,
            broadcast_env_runner_states=broadcast_env_runner_states,
            compress_observations=compress_observations,
            rollout_fragment_length=rollout_fragment_length,
            batch_mode=batch_mode,
            explore=explore,
            episodes_to_numpy=episodes_to_numpy,
        )

    @staticmethod
    def _check_accepted(server: Any, concurrency: Any) -> None:
        if server is not NotProvided and not isinstance(server, bool):
            raise TypeError(f"use_env_runner_state_server must be True or False, not {server!r}.")
        if concurrency is not NotProvided and not isinstance(concurrency, int):
            raise TypeError(
                f"env_runner_state_server_max_concurrency must be an integer, not {concurrency!r}."
            )

    @setter
    def fault_tolerance(
        self,
        *,
        restart_failed_env_runners: bool = NotProvided,
        ignore_env_runner_failures: bool = NotProvided,
        max_num_env_runner_restarts: int = NotProvided,
        delay_between_env_runner_restarts_s: float = NotProvided,
        restart_failed_sub_environments: bool = NotProvided,
        num_consecutive_env_runner_failures_tolerance: int = NotProvided,
        env_runner_health_probe_timeout_s: float = NotProvided,
        env_runner_restore_timeout_s: float = NotProvided,
    ) -> Self:
        """What happens when environments or runners fail.

        Args:
            restart_failed_env_runners: whether lost runners are replaced; training goes on meanwhile.
            ignore_env_runner_failures: whether lost runners are left out.
            max_num_env_runner_restarts: replacements per runner.
            delay_between_env_runner_restarts_s: accepted as Ray's; a first replacement starts at once.
            restart_failed_sub_environments: whether an environment that raised is made again, in the same runner.
            num_consecutive_env_runner_failures_tolerance: failures in a row, after which training raises.
            env_runner_health_probe_timeout_s: the longest wait for an answer to a health check.
            env_runner_restore_timeout_s: the longest wait for a replacement's state.
        """
        return self.apply(
            restart_failed_env_runners=restart_failed_env_runners,
            ignore_env_runner_failures=ignore_env_runner_failures,
            max_num_env_runner_restarts=max_num_env_runner_restarts,
            delay_between_env_runner_restarts_s=delay_between_env_runner_restarts_s,
            restart_failed_sub_environments=restart_failed_sub_environments,
            num_consecutive_env_runner_failures_tolerance=num_consecutive_env_runner_failures_tolerance,
            env_runner_health_probe_timeout_s=env_runner_health_probe_timeout_s,
            env_runner_restore_timeout_s=env_runner_restore_timeout_s,
        )
