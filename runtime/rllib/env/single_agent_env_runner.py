"""Samples from the environments of one agent."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.lanes import Finished, Lanes
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import DEFAULT_MODULE_ID, Config
from runtime.rllib.core.columns import Columns
from runtime.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from runtime.rllib.env._acting import Acting, action_converter, module_actions, start_adder
from runtime.rllib.env._agent_metrics import DEFAULT_AGENT_ID, log_episode, log_steps, smoothing_window
from runtime.rllib.env._connectors import ObservationPieces, has_own_pipelines
from runtime.rllib.env._episode_loop import EpisodeLoop
from runtime.rllib.env._sampling import SamplingRunner
from runtime.rllib.env._vector import env_creator, info_list, make_vector_env
from runtime.rllib.env.env_runner import Collected
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode, to_rollout
from runtime.rllib.utils import metrics as names

logger = logging.getLogger(__name__)


class SingleAgentEnvRunner(SamplingRunner):
    """Steps through N environments at once: one inference per step, arrays instead of episodes.

    Rows go from time-major arrays straight into a rollout (`_core.lanes`); episodes are views of it. Only if a
    connector or a callback needs episode objects while they grow, they are kept (`_episode_loop`), and the rollout is
    made of them.

    Attributes, besides those of `SamplingRunner`:
        autoreset: when environments reset themselves: "NEXT_STEP", "SAME_STEP", or "DISABLED".
        acting: the module as it acts with default connectors; None without a module or an environment.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        """
        Args:
            config: an `AlgorithmConfig`.
            kwargs: see `EnvRunner`, and "env_creator": what makes one environment of its `EnvContext`, for names that
                are not registered in this process.
        """
        super().__init__(config=config, **kwargs)
        self.autoreset = "NEXT_STEP"
        self._is_seeded = False  # environments get the seed with their first reset only
        self._needs_reset = True
        self._resetting: np.ndarray | None = None  # lanes whose next step is their environment's reset
        # Return, length and seconds of the episodes that are not logged yet.
        self._finished: deque[tuple[float, int, float]] = deque(maxlen=smoothing_window(self.config))
        self.acting: Acting | None = None
        self._lanes: Lanes | None = None
        self._episode_loop: EpisodeLoop | None = None
        self._pieces: ObservationPieces | None = None
        self._for_env: Callable[[Any], Any] | None = None
        self._make()

    # ------------------------------------------------------------ making

    def make_env(self) -> None:
        """Makes the vector environment; closes the one before. `config.env_config` may have changed."""
        self._close_env()
        context = self._new_context()
        creator = self._creator or env_creator(self.config)
        self.env = make_vector_env(self.config, context, creator)
        if self.num_envs != self.env.num_envs:
            self.num_envs = self.env.num_envs
            self._lanes = Lanes(self.num_envs)
        self.autoreset = getattr(self.env.metadata.get("autoreset_mode"), "name", "NEXT_STEP")
        self._shift = start_adder(self.env.single_action_space)
        self._needs_reset = True
        self.callbacks.call(
            "on_environment_created",
            env_runner=self,
            metrics_logger=self.metrics,
            env=self.env.unwrapped,
            env_context=context,
        )

    def _make_pipelines(self) -> None:
        """Makes the connectors, and decides whether sampling needs episode objects."""
        episodes = any(
            self.callbacks.uses(event)
            for event in ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")
        )
        config = self.config
        if not has_own_pipelines(config):
            _, space = self._env_spaces()[INPUT_ENV_SINGLE_SPACES]
            self._for_env = action_converter(
                space, unsquash=config.normalize_actions, clip=config.clip_actions
            )
            self._episode_loop = EpisodeLoop(self) if episodes else None
            return
        self.env_to_module = config.build_env_to_module_connector(env=self.env, spaces=self._env_spaces())
        self.module_to_env = config.build_module_to_env_connector(env=self.env, spaces=self._env_spaces())
        of_observations, of_actions = self.env_to_module.vectorized(), self.module_to_env.vectorized()
        if episodes or of_observations is None or of_actions is None:
            self._episode_loop = EpisodeLoop(self)
            return
        if of_observations:
            self._pieces = ObservationPieces(of_observations, self.num_envs)
        self._for_env = _chained([*[piece.on_vector_actions for piece in of_actions], self.as_env_actions])

    def make_module(self) -> None:
        """Makes the module; None if the configuration has none, for random actions."""
        env = None if self.env is None else self.env.unwrapped
        self._seed_torch()
        try:
            spec = self.config.get_rl_module_spec(env=env, spaces=self.get_spaces(), inference_only=True)
            self.module = spec.build()
        except NotImplementedError:
            self.module = None
            return
        if self.env is not None:
            self.acting = Acting(self.module, self.num_envs, self._rng)

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        spaces = self._env_spaces()
        if self.env_to_module is None or self.env is None:
            return spaces
        _, action = spaces[INPUT_ENV_SINGLE_SPACES]
        return {**spaces, DEFAULT_MODULE_ID: (self.env_to_module.observation_space, action)}

    def _env_spaces(self) -> dict[str, tuple[Any, Any]]:
        if self.env is None:
            return self.spaces
        single = (self.env.single_observation_space, self.env.single_action_space)
        return {
            INPUT_ENV_SPACES: (self.env.observation_space, self.env.action_space),
            INPUT_ENV_SINGLE_SPACES: single,
            DEFAULT_MODULE_ID: single,
        }

    # ------------------------------------------------------------ sampling

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        """Steps through the environments; by default as far as the configuration says.

        Args:
            num_timesteps: at least so many steps; up to N - 1 more. Episodes go on in the next call.
            num_episodes: exactly so many complete episodes; environments are reset before.
            explore: by default `config.explore`.
            random_actions: actions of the action space instead of the module's.
            force_reset: resets the environments before.

        Returns:
            Episodes and chunks of those that go on. Their arrays are views.
        """
        rollout, episodes = self._steps(
            num_timesteps, num_episodes, explore, random_actions, force_reset=force_reset, keep_infos=True
        )
        if episodes is None:
            episodes = self._views(rollout)
        self._sampled(episodes)
        return episodes

    def _views(self, rollout: Rollout | None) -> list[SingleAgentEpisode]:
        if rollout is None:
            return []
        observation_space, action_space = self.get_spaces()[DEFAULT_MODULE_ID]
        return SingleAgentEpisode.views_of(
            rollout, observation_space=observation_space, action_space=action_space
        )

    def _sampled(self, episodes: list[SingleAgentEpisode]) -> None:
        self.callbacks.call("on_sample_end", env_runner=self, metrics_logger=self.metrics, samples=episodes)

    def collect(
        self,
        *,
        env_steps: int | None = None,
        episodes: int | None = None,
        random_actions: bool = False,
        explore: bool | None = None,
        deadline_s: float | None = None,
        keep_infos: bool = False,
        reduce_metrics: bool = True,
    ) -> Collected:
        """Steps through the environments; by default as far as the configuration says.

        Args:
            env_steps, episodes, random_actions, explore: see `sample`.
            deadline_s: seconds after which to return what there is then. It is looked at between steps.
            keep_infos: whether the rollout has the environments' infos.
            reduce_metrics: False leaves "metrics" empty: they stay in the runner until `get_metrics`.
        """
        rollout, kept = self._steps(
            env_steps, episodes, explore, random_actions, deadline_s=deadline_s, keep_infos=keep_infos
        )
        if self.callbacks.uses("on_sample_end"):
            kept = self._views(rollout) if kept is None else kept
            self._sampled(kept)
        if kept is not None:
            steps = [episode for episode in kept if len(episode)]
            initial = None if self.acting is None else self.acting.initial_state
            rollout = to_rollout(steps, initial) if steps else None
        rows = 0 if rollout is None else rollout.rows
        rollouts = {} if rollout is None else {DEFAULT_MODULE_ID: rollout}
        metrics = self.get_metrics() if reduce_metrics else {}
        return Collected(rollouts, rows, rows, metrics, self._weights_seq, kept)

    def _steps(
        self,
        env_steps: int | None,
        episodes: int | None,
        explore: bool | None,
        random_actions: bool,
        *,
        force_reset: bool = False,
        deadline_s: float | None = None,
        keep_infos: bool = False,
    ) -> tuple[Rollout | None, list[SingleAgentEpisode] | None]:
        """Samples: gives a rollout, or episodes if they are kept while they grow."""
        began = self._begin()
        env_steps, episodes = self._wanted(env_steps, episodes)
        if self.module is None and not random_actions:
            raise ValueError(
                f"Environment runner {self.worker_index} has no module: it can only act randomly"
            )
        if explore is None:
            explore = self.config.explore
        if force_reset or self._needs_reset or episodes is not None:
            self._reset(explore)
        deadline = None if deadline_s is None else began + deadline_s
        rollout, kept = None, None
        if self._episode_loop is not None:
            kept, finished = self._episode_loop.run(
                env_steps, episodes, explore, random_actions, deadline, lambda a: self._try_step(a, explore)
            )
            rows = sum(map(len, kept))
        else:
            rollout, finished = self._loop(env_steps, episodes, explore, random_actions, deadline, keep_infos)
            rows = 0 if rollout is None else rollout.rows
        self._needs_reset = episodes is not None
        self._log(rows, finished)
        self._end(began)
        return rollout, kept

    def _loop(
        self,
        env_steps: int | None,
        episodes: int | None,
        explore: bool,
        random_actions: bool,
        deadline: float | None,
        keep_infos: bool,
    ) -> tuple[Rollout | None, Finished]:
        """The loop that everything else is made fast for: no objects per step or environment, only arrays."""
        lanes, acting, for_env, pieces = self._lanes, self.acting, self._for_env, self._pieces
        assert lanes is not None
        clock, next_step = time.perf_counter, self.autoreset == "NEXT_STEP"
        runners = self.config.num_env_runners or 1
        lifetime = self.num_env_steps_sampled_lifetime
        if env_steps is not None:  # with some room for steps that only reset
            steps = math.ceil(env_steps / self.num_envs)
            lanes.expect(steps + steps // 8 + 2 if next_step else steps)
        ended = 0
        while (lanes.rows < env_steps) if env_steps is not None else (ended < (episodes or 0)):
            if random_actions:
                actions = self.env.action_space.sample()
                columns = {Columns.ACTIONS: self.as_module_actions(actions)}
            else:
                assert acting is not None
                columns, actions = acting.act(lanes.observations, explore, lifetime + lanes.rows * runners)
                if actions is None:
                    actions = columns[Columns.ACTIONS]
                    if for_env is not None:
                        actions = for_env(actions)
            result = self._try_step(actions, explore)
            if result is None:
                continue
            observations, rewards, terminated, truncated, infos = result
            over = terminated | truncated
            is_over = bool(over.any())
            final_obs = None
            if is_over and not next_step:
                observations, final_obs, _ = self.finals(over, observations, infos)
            columns[Columns.REWARDS] = rewards = np.asarray(rewards, np.float32)
            if pieces is not None:
                observations, final_obs = pieces.of_step(
                    observations, self._resetting, final_obs, columns[Columns.ACTIONS], rewards
                )
            lanes.add(
                columns,
                observations,
                terminated,
                truncated,
                now_s := clock(),
                self._resetting,
                final_obs,
                self._infos_of_step(infos) if keep_infos and infos else None,
            )
            if acting is not None and acting.state is not None:
                if self._resetting is not None:
                    acting.reset(self._resetting)
                if is_over and not next_step:
                    acting.reset(over)
            self._resetting = over if is_over and next_step else None
            if is_over:
                ended += int(over.sum())
            if deadline is not None and now_s >= deadline:
                break
        return lanes.cut(episodes=episodes, state=None if acting is None else acting.state)

    def finals(
        self, over: np.ndarray, observations: Any, infos: Mapping[str, Any]
    ) -> tuple[Any, dict[int, Any], Mapping[str, Any]]:
        """The observations to go on with, the last ones of the episodes that ended, by lane, and the infos of the
        resets."""
        lanes = np.flatnonzero(over).tolist()
        if self.autoreset == "SAME_STEP":
            return observations, {lane: infos["final_obs"][lane] for lane in lanes}, infos
        last = {lane: trees.tree_map(np.copy, trees.take(observations, lane)) for lane in lanes}
        observations, infos = self.env.reset(options={"reset_mask": over})
        return observations, last, infos

    def _infos_of_step(self, infos: Mapping[str, Any]) -> list[dict[str, Any]]:
        """By lane; of the ends of episodes, not of the resets that followed in the same step."""
        return [info.get("final_info", info) for info in info_list(infos, self.num_envs)]

    def as_module_actions(self, actions: Any) -> Any:
        """What the module would have given for actions [N, ...] of the environments."""
        return module_actions(self.env.single_action_space, actions, unsquash=self.config.normalize_actions)

    def bounded(self, actions: Any) -> Any:
        """Actions [N, ...] for the environments of the module's, with default connectors."""
        return actions if self._for_env is None else self._for_env(actions)

    def as_env_actions(self, actions: Any) -> Any:
        """The opposite, for actions within the bounds: discrete ones begin with the first number of their space."""
        return actions if self._shift is None else self._shift(actions, 1)

    def _reset(self, explore: bool) -> None:
        """Resets all environments; steps of their episodes are lost."""
        if self._episode_loop is not None:
            self._episode_loop.reset(self._reset_env, explore)
            return
        assert self._lanes is not None
        initial = None if self.acting is None else self.acting.initial_state
        self._lanes.start(self._first_observations(), time.perf_counter(), initial)

    def _first_observations(self) -> Any:
        """Resets environments and module; gives what the module sees first."""
        observations, _ = self._reset_env()
        if self.acting is not None:
            self.acting.reset()
        return observations if self._pieces is None else self._pieces.of_reset(observations)

    def _reset_env(self) -> tuple[Any, Any]:
        while True:
            try:
                observations, infos = self.env.reset(seed=None if self._is_seeded else self._seed)
            except Exception as error:
                self._remake(error)
                continue
            self._needs_reset, self._resetting, self._is_seeded = False, None, True
            return observations, infos

    def _try_step(self, actions: Any, explore: bool) -> tuple[Any, ...] | None:
        """What the step of the environments gives; None if it failed. Then the environments are new, the episodes that
        ran are lost, and earlier ones stay.

        Raises:
            Exception: of the step, if failed environments are not to be made anew, or too many failed in a row.
        """
        try:
            result: tuple[Any, ...] = self.env.step(actions)
        except Exception as error:
            self._remake(error)
        else:
            self._failures = 0
            return result
        if self._episode_loop is not None:
            self._episode_loop.reset(self._reset_env, explore)
        elif self._lanes is not None:
            self._lanes.drop_open(self._first_observations(), time.perf_counter())
        return None

    def _remake(self, error: Exception) -> None:
        self._count_failure(error, "An environment")
        self.make_env()

    # ------------------------------------------------------------ metrics

    def _log(self, steps: int, finished: Finished) -> None:
        self.num_env_steps_sampled_lifetime += steps * (self.config.num_env_runners or 1)
        log_steps(self.metrics, steps, len(finished.lengths), {DEFAULT_MODULE_ID: {DEFAULT_AGENT_ID: steps}})
        self._finished.extend(zip(finished.returns, finished.lengths, finished.durations_s, strict=True))

    def get_metrics(self) -> dict[str, Any]:
        """The metrics since the last call, for `MetricsLogger.aggregate`."""
        log, window = self.metrics.log_value, smoothing_window(self.config)
        log(names.WEIGHTS_SEQ_NO, self._weights_seq, reduce="mean", window=1)
        for total, length, seconds in self._finished:
            log_episode(self.metrics, window, total, length, seconds)
            log((names.SINGLE_AGENT_RETURN_MEAN, DEFAULT_AGENT_ID), total, window=window)
            log((names.SINGLE_AGENT_MODULE_RETURN_MEAN, DEFAULT_MODULE_ID), total, window=window)
        self._finished.clear()
        return self.metrics.reduce()

    def forget_episodes(self) -> None:
        self._needs_reset = True


def _chained(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """One function of actions: the pieces of a module-to-env pipeline, among which is the default conversion."""

    def converted(actions: Any) -> Any:
        for function in functions:
            actions = function(actions)
        return actions

    return converted
