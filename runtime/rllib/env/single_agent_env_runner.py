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
from runtime.rllib.callbacks.utils import CallbackCaller
from runtime.rllib.core import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
    COMPONENT_RL_MODULE,
)
from runtime.rllib.core.columns import Columns
from runtime.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from runtime.rllib.env._acting import Acting, action_converter, module_actions, start_adder
from runtime.rllib.env._connectors import ObservationPieces, has_own_pipelines
from runtime.rllib.env._episode_loop import EpisodeLoop
from runtime.rllib.env._vector import env_creator, info_list, make_vector_env
from runtime.rllib.env.env_context import EnvContext
from runtime.rllib.env.env_errors import StepFailedRecreateEnvError
from runtime.rllib.env.env_runner import Collected, EnvRunner
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode, to_rollout
from runtime.rllib.utils import metrics as names

logger = logging.getLogger(__name__)

DEFAULT_AGENT_ID = "default_agent"

# So many failures of environments in a row, without a step between them, and the runner gives up.
MOST_FAILURES_IN_A_ROW = 10


class SingleAgentEnvRunner(EnvRunner):
    """Steps through N environments at once: one inference per step, arrays instead of episodes.

    Rows go from time-major arrays straight into a rollout (`_core.lanes`); episodes are views of it. Only if a
    connector or a callback needs episode objects while they grow, they are kept (`_episode_loop`), and the rollout is
    made of them.

    Attributes:
        num_envs: N.
        autoreset: when environments reset themselves: "NEXT_STEP", "SAME_STEP", or "DISABLED".
        env_to_module, module_to_env: the connector pipelines, or None if the configuration has only default ones.
        callbacks: a `CallbackCaller`.
        acting: the module as it acts with default connectors; None without a module or an environment.
        num_env_steps_sampled_lifetime: of all runners together, about.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        """
        Args:
            config: an `AlgorithmConfig`.
            kwargs: see `EnvRunner`, and "env_creator": what makes one environment of its `EnvContext`, for names that
                are not registered in this process.
        """
        super().__init__(config=config, **kwargs)
        self.num_envs = 0
        self.autoreset = "NEXT_STEP"
        self.callbacks = CallbackCaller(self.config)
        self.num_env_steps_sampled_lifetime = 0
        self.env_to_module: Any = None
        self.module_to_env: Any = None
        self._creator = kwargs.get("env_creator")
        self._seed: int | None = None
        if self.config.seed is not None:
            self._seed = int(self.config.seed) + 10_000 * self.worker_index
        self._is_seeded = False  # environments get the seed with their first reset only
        self._rng = np.random.default_rng(self._seed)
        self._weights_seq = 0
        self._needs_reset = True
        self._resetting: np.ndarray | None = None  # lanes whose next step is their environment's reset
        self._failures = 0  # in a row
        self._finished: deque[tuple[float, int, float]] = deque()  # return, length, seconds; not logged yet
        self._time_after_sampling: float | None = None
        self.acting: Acting | None = None
        self._lanes: Lanes | None = None
        self._episode_loop: EpisodeLoop | None = None
        self._pieces: ObservationPieces | None = None
        self._for_env: Callable[[Any], Any] | None = None
        is_local = kwargs.get("worker_index") == 0 and self.config.num_env_runners > 0
        try:
            if not is_local or self.config.create_env_on_local_worker:
                self.make_env()
            self._make_pipelines()
            self.make_module()
        except BaseException:
            self.stop()  # environments may have processes
            raise

    # ------------------------------------------------------------ making

    def make_env(self) -> None:
        """Makes the vector environment; closes the one before. `config.env_config` may have changed."""
        if self.env is not None:
            self._close_env()
        context = EnvContext(
            self.config.env_config,
            worker_index=self.worker_index,
            num_workers=self.num_workers,
            recreated_worker=self.recreated_worker,
        )
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
        if self._seed is not None:
            import torch

            torch.manual_seed(self._seed)
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
        if self.env is None:
            raise ValueError(
                f"Environment runner {self.worker_index} has no environment to sample from: remote runners sample"
            )
        if env_steps is not None and episodes is not None:
            raise ValueError("Give a number of steps or of episodes to sample, not both")
        if self.module is None and not random_actions:
            raise ValueError(
                f"Environment runner {self.worker_index} has no module: it can only act randomly"
            )
        began = time.perf_counter()
        if self._time_after_sampling is not None:
            self.metrics.log_value(names.TIME_BETWEEN_SAMPLING, began - self._time_after_sampling)
        if explore is None:
            explore = self.config.explore
        if env_steps is None and episodes is None:
            if self.config.batch_mode == "truncate_episodes":
                env_steps = self.config.get_rollout_fragment_length(self.worker_index) * self.num_envs
            else:
                episodes = self.num_envs
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
        self._time_after_sampling = time.perf_counter()
        self.metrics.log_value(names.SAMPLE_TIMER, self._time_after_sampling - began)
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
        first = self.num_env_steps_sampled_lifetime
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
                with self.metrics.log_time(names.RLMODULE_INFERENCE_TIMER):
                    columns, actions = acting.act(lanes.observations, explore, first + lanes.rows * runners)
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
                observations, final_obs = self.finals(over, observations, infos)
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
    ) -> tuple[Any, dict[int, Any]]:
        """The observations to go on with, and the last ones of the episodes that ended, by lane."""
        lanes = np.flatnonzero(over).tolist()
        if self.autoreset == "SAME_STEP":
            return observations, {lane: infos["final_obs"][lane] for lane in lanes}
        last = {lane: trees.tree_map(np.copy, trees.take(observations, lane)) for lane in lanes}
        observations, _ = self.env.reset(options={"reset_mask": over})
        return observations, last

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
        observations, _ = self._reset_env()
        if self._pieces is not None:
            observations = self._pieces.of_reset(observations)
        initial = None
        if self.acting is not None:
            self.acting.reset()
            initial = self.acting.initial_state
        self._lanes.start(observations, time.perf_counter(), initial)

    def _reset_env(self) -> tuple[Any, Any]:
        while True:
            try:
                with self.metrics.log_time(names.ENV_RESET_TIMER):
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
            with self.metrics.log_time(names.ENV_STEP_TIMER):
                result: tuple[Any, ...] = self.env.step(actions)
        except Exception as error:
            self._remake(error)
        else:
            self._failures = 0
            return result
        if self._episode_loop is not None:
            self._episode_loop.reset(self._reset_env, explore)
            return None
        assert self._lanes is not None
        observations, _ = self._reset_env()
        if self._pieces is not None:
            observations = self._pieces.of_reset(observations)
        if self.acting is not None:
            self.acting.reset()
        self._lanes.drop_open(observations, time.perf_counter())
        return None

    def _remake(self, error: Exception) -> None:
        expected = isinstance(error, StepFailedRecreateEnvError)
        self._failures += 1
        if (
            not (expected or self.config.restart_failed_sub_environments)
            or self._failures > MOST_FAILURES_IN_A_ROW
        ):
            raise error
        if not expected:
            logger.warning(
                "An environment of runner %d failed and is made anew", self.worker_index, exc_info=error
            )
        self.make_env()

    # ------------------------------------------------------------ metrics

    def _log(self, steps: int, finished: Finished) -> None:
        log = self.metrics.log_value
        episodes = len(finished.lengths)
        self.num_env_steps_sampled_lifetime += steps * (self.config.num_env_runners or 1)
        log(names.NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        log((names.NUM_AGENT_STEPS_SAMPLED, DEFAULT_AGENT_ID), steps, reduce="sum")
        log((names.NUM_MODULE_STEPS_SAMPLED, DEFAULT_MODULE_ID), steps, reduce="sum")
        log(names.NUM_EPISODES, episodes, reduce="sum")
        log(names.NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True)
        log((names.NUM_AGENT_STEPS_SAMPLED_LIFETIME, DEFAULT_AGENT_ID), steps, reduce="lifetime_sum")
        log((names.NUM_MODULE_STEPS_SAMPLED_LIFETIME, DEFAULT_MODULE_ID), steps, reduce="lifetime_sum")
        log(names.NUM_EPISODES_LIFETIME, episodes, reduce="lifetime_sum")
        self._finished.extend(zip(finished.returns, finished.lengths, finished.durations_s, strict=True))
        while len(self._finished) > self._window:  # only so many count
            self._finished.popleft()

    @property
    def _window(self) -> int:
        """How many of the last episodes this runner's means are of: all runners' together are of the number that the
        configuration says."""
        return max(
            1, math.ceil(self.config.metrics_num_episodes_for_smoothing / (self.config.num_env_runners or 1))
        )

    def get_metrics(self) -> dict[str, Any]:
        """The metrics since the last call, for `MetricsLogger.aggregate`."""
        log, window = self.metrics.log_value, self._window
        log(names.WEIGHTS_SEQ_NO, self._weights_seq, reduce="mean", window=1)
        for total, length, seconds in self._finished:
            log(names.EPISODE_LEN_MEAN, length, window=window)
            log(names.EPISODE_RETURN_MEAN, total, window=window)
            log(names.EPISODE_DURATION_SEC_MEAN, seconds, window=window)
            log((names.SINGLE_AGENT_RETURN_MEAN, DEFAULT_AGENT_ID), total, window=window)
            log((names.SINGLE_AGENT_MODULE_RETURN_MEAN, DEFAULT_MODULE_ID), total, window=window)
            log(names.EPISODE_LEN_MIN, length, reduce="min", window=window)
            log(names.EPISODE_LEN_MAX, length, reduce="max", window=window)
            log(names.EPISODE_RETURN_MIN, total, reduce="min", window=window)
            log(names.EPISODE_RETURN_MAX, total, reduce="max", window=window)
        self._finished.clear()
        return self.metrics.reduce()

    # ------------------------------------------------------------ state

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """By component: "rl_module", "env_to_module_connector", "module_to_env_connector"; and
        "num_env_steps_sampled_lifetime" and "weights_seq_no".

        Args:
            components: names, or one; None: all.
            not_components: names, or one, to leave out.
        """
        state: dict[str, Any] = {names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime}
        if self.module is not None and _is_wanted(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(**kwargs)
            state[names.WEIGHTS_SEQ_NO] = self._weights_seq
        for name, pipeline in self.pipelines().items():
            if _is_wanted(name, components, not_components):
                state[name] = pipeline.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` gives. The module's state may be that of a multi-module with a default module.

        Weights whose "weights_seq_no" is not 0 and not newer than the runner's are left aside.
        """
        weights = state.get(COMPONENT_RL_MODULE)
        if weights is not None:
            number = state.get(names.WEIGHTS_SEQ_NO, 0)
            if number == 0 or number > self._weights_seq:
                if DEFAULT_MODULE_ID in weights:
                    weights = weights[DEFAULT_MODULE_ID]
                self.module.set_state(weights)
            self._weights_seq = number or self._weights_seq
        for name, pipeline in self.pipelines().items():
            if name in state:
                pipeline.set_state(state[name])
        if names.NUM_ENV_STEPS_SAMPLED_LIFETIME in state:
            self.num_env_steps_sampled_lifetime = state[names.NUM_ENV_STEPS_SAMPLED_LIFETIME]

    def pipelines(self) -> dict[str, Any]:
        """The connector pipelines by component; none if the configuration has only default ones."""
        if self.env_to_module is None:
            return {}
        return {
            COMPONENT_ENV_TO_MODULE_CONNECTOR: self.env_to_module,
            COMPONENT_MODULE_TO_ENV_CONNECTOR: self.module_to_env,
        }

    def forget_episodes(self) -> None:
        self._needs_reset = True

    def stop(self) -> None:
        if self.env is not None:
            self._close_env()

    def _close_env(self) -> None:
        env, self.env = self.env, None
        try:
            env.close()
        except Exception:
            logger.warning(
                "An environment of runner %d could not be closed", self.worker_index, exc_info=True
            )


def _chained(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """One function of actions: the pieces of a module-to-env pipeline, among which is the default conversion."""

    def converted(actions: Any) -> Any:
        for function in functions:
            actions = function(actions)
        return actions

    return converted


def _is_wanted(name: str, components: Any, not_components: Any) -> bool:
    def among(given: Any) -> bool:
        return name in ([given] if isinstance(given, str) else given)

    if not_components is not None and among(not_components):
        return False
    return components is None or among(components)
