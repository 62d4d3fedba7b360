"""Sampling with an episode object per environment, for connectors and callbacks that need them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.lanes import Finished
from runtime.rllib.core.columns import Columns
from runtime.rllib.env._vector import info_list
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode
from runtime.rllib.utils import metrics as names

ENV_TO_MODULE, MODULE_TO_ENV = (names.ENV_TO_MODULE_CONNECTOR,), (names.MODULE_TO_ENV_CONNECTOR,)

if TYPE_CHECKING:
    from collections.abc import Callable


class EpisodeLoop:
    """The episodes of N environments, and the connectors between them and the module.

    Each observation passes the env-to-module pipeline exactly once, the last one of an episode included.
    """

    def __init__(self, runner: Any) -> None:
        """
        Args:
            runner: a `SingleAgentEnvRunner`; its environment, module, pipelines, callbacks and metrics are used.
        """
        self._runner = runner
        self._observations: Any = None  # for the next step, if there are only default connectors
        self._episodes: list[SingleAgentEpisode] = []
        self._batch: dict[str, Any] | None = None  # for the next step of the module
        self._batch_episodes: list[SingleAgentEpisode] = []  # that it was made of
        self._shared_data: dict[str, Any] = {}
        self._chunks: list[list[SingleAgentEpisode]] = []  # earlier parts of the episodes that run
        # Their returns: who got the parts may have changed rewards since.
        self._returns: list[float] = []
        self._started_s: list[float] = []
        self._resetting: np.ndarray | None = None  # environments whose next step is their reset

    def reset(self, reset_env: Callable[[], tuple[Any, Any]], explore: bool) -> None:
        """New episodes in all environments; those that run are lost.

        Args:
            reset_env: resets the environments; gives observations and infos.
        """
        count = self._runner.num_envs
        self._episodes = [self._new_episode() for _ in range(count)]
        self._chunks, self._returns, self._resetting = [[] for _ in range(count)], [0.0] * count, None
        for lane in range(count):
            self._call("on_episode_created", lane)
        observations, infos = reset_env()
        if self._runner.acting is not None:
            self._runner.acting.reset()
        self._started_s = [time.perf_counter()] * count
        self._add_resets(range(count), observations, info_list(infos, count))
        self._to_module(self._episodes, explore, {Columns.OBS: observations, Columns.INFOS: infos})
        for lane in range(count):
            self._call("on_episode_start", lane)

    def run(
        self,
        env_steps: int | None,
        episodes: int | None,
        explore: bool,
        random_actions: bool,
        deadline: float | None,
        step_env: Callable[[Any], tuple[Any, ...] | None],
    ) -> tuple[list[SingleAgentEpisode], Finished]:
        """Steps until there is enough.

        Args:
            env_steps: at least so many; or
            episodes: exactly so many complete ones.
            deadline: when to stop anyway.
            step_env: steps the environments; None if they failed, and all was reset.

        Returns:
            Episodes that ended, then the chunks of those that go on; and facts about the former.
        """
        done: list[SingleAgentEpisode] = []
        finished = Finished([], [], [], [])
        steps = 0
        while (steps < env_steps) if env_steps is not None else (len(done) < (episodes or 0)):
            actions, for_env, outputs = self._act(explore, random_actions, steps)
            result = step_env(for_env)
            if result is None:
                steps = sum(map(len, done))
                continue
            steps += self._record(result, actions, outputs, explore, done, finished, episodes)
            if deadline is not None and time.perf_counter() >= deadline:
                break
        going_on = [] if episodes is not None else self._cut()
        result_episodes = [*done, *going_on]
        if self._runner.config.episodes_to_numpy:
            for episode in result_episodes:
                episode.to_numpy()
        return result_episodes, finished

    # ------------------------------------------------------------ one step

    def _act(self, explore: bool, random_actions: bool, steps: int) -> tuple[Any, Any, dict[str, Any]]:
        """Actions as the module gives them and as the environment takes them, and the module's other outputs."""
        runner = self._runner
        if random_actions:
            for_env = runner.env.action_space.sample()
            return runner.as_module_actions(for_env), for_env, {}
        timestep = runner.num_env_steps_sampled_lifetime + steps * (runner.config.num_env_runners or 1)
        if runner.env_to_module is None:
            with runner.metrics.log_time(names.RLMODULE_INFERENCE_TIMER):
                columns, for_env = runner.acting.act(self._observations, explore, timestep)
            actions = columns.pop(Columns.ACTIONS)
            return actions, runner.bounded(actions) if for_env is None else for_env, columns
        import torch

        batch, self._batch = self._batch, None
        with torch.inference_mode(), runner.metrics.log_time(names.RLMODULE_INFERENCE_TIMER):
            if explore:
                outputs = runner.module.forward_exploration(batch, t=timestep)
            else:
                outputs = runner.module.forward_inference(batch)
            outputs = runner.module_to_env(
                rl_module=runner.module,
                batch=outputs,
                episodes=self._batch_episodes,
                explore=explore,
                shared_data=self._shared_data,
                metrics=runner.metrics,
                metrics_prefix_key=MODULE_TO_ENV,
            )
        actions = outputs.pop(Columns.ACTIONS)
        for_env = outputs.pop(Columns.ACTIONS_FOR_ENV, actions)
        return actions, runner.as_env_actions(for_env), outputs

    def _record(
        self,
        result: tuple[Any, ...],
        actions: Any,
        outputs: dict[str, Any],
        explore: bool,
        done: list[SingleAgentEpisode],
        finished: Finished,
        wanted: int | None,
    ) -> int:
        """Adds a step to the episodes, and begins new ones for those that end. Gives the number of steps."""
        runner = self._runner
        count = runner.num_envs
        observations, rewards, terminated, truncated, infos = result
        over = np.asarray(terminated) | np.asarray(truncated)
        by_lane = info_list(infos, count)
        next_step = runner.autoreset == "NEXT_STEP"
        last, observations, reset_infos = observations, observations, by_lane
        if over.any() and not next_step:
            observations, final = runner.finals(over, observations, infos)
            last, by_lane = _replaced(last, final, by_lane)
        resetting, self._resetting = self._resetting, over if over.any() and next_step else None
        steps = 0
        for lane in range(count):
            if resetting is not None and resetting[lane]:
                self._started_s[lane] = time.perf_counter()
                self._add_resets([lane], observations, by_lane)
                continue
            steps += 1
            self._episodes[lane].add_env_step(
                trees.tree_map(np.copy, trees.take(last, lane)),
                trees.take(actions, lane),
                float(rewards[lane]),
                by_lane[lane],
                terminated=bool(terminated[lane]),
                truncated=bool(truncated[lane]),
                extra_model_outputs={name: _item(values, lane) for name, values in outputs.items()},
            )
        columns = {
            Columns.OBS: observations,
            Columns.ACTIONS: actions,
            Columns.REWARDS: rewards,
            Columns.INFOS: infos,
            Columns.TERMINATEDS: terminated,
            Columns.TRUNCATEDS: truncated,
        }
        ended = np.flatnonzero(over).tolist()
        if next_step:
            self._to_module(self._episodes, explore, columns)
        elif ended:  # the last observations pass here, those of the resets below
            self._to_module([self._episodes[lane] for lane in ended], explore, {})
        if runner.acting is not None:
            reset = over if not next_step else resetting
            if reset is not None and reset.any():
                runner.acting.reset(reset)
        started = [] if resetting is None else np.flatnonzero(resetting).tolist()
        for lane in range(count):
            self._call("on_episode_start" if lane in started else "on_episode_step", lane)
            if not over[lane]:
                continue
            self._call("on_episode_end", lane, prev_episode_chunks=self._chunks[lane])
            self._finish(lane, done, finished)
            if len(done) == wanted:
                return steps  # all environments are reset before the next step
            self._episodes[lane], self._chunks[lane], self._returns[lane] = self._new_episode(), [], 0.0
            self._call("on_episode_created", lane)
        if not next_step:
            now_s = time.perf_counter()
            for lane in ended:
                self._started_s[lane] = now_s
            self._add_resets(ended, observations, reset_infos)
            self._to_module(self._episodes, explore, columns)
            for lane in ended:
                self._call("on_episode_start", lane)
        return steps

    def _finish(self, lane: int, done: list[SingleAgentEpisode], finished: Finished) -> None:
        episode = self._episodes[lane]
        done.append(episode)
        finished.ids.append(episode.id_)
        finished.returns.append(self._returns[lane] + episode.get_return())
        finished.lengths.append(episode.t)
        finished.durations_s.append(time.perf_counter() - self._started_s[lane])

    def _cut(self) -> list[SingleAgentEpisode]:
        """The chunks so far of the episodes that go on; new chunks continue them."""
        module = self._runner.module
        # The next chunk of a recurrent module's episode begins with the state after this one.
        least = int(module is not None and module.is_stateful())
        lookback = max(least, self._runner.config.episode_lookback_horizon)
        chunks = []
        for lane, episode in enumerate(self._episodes):
            if not len(episode):
                continue
            following = episode.cut(len_lookback_buffer=lookback)
            self._batch_episodes = [following if each is episode else each for each in self._batch_episodes]
            self._episodes[lane] = following
            self._chunks[lane].append(episode)
            self._returns[lane] += episode.get_return()
            chunks.append(episode)
        return chunks

    # ------------------------------------------------------------ inside

    def _new_episode(self) -> SingleAgentEpisode:
        env = self._runner.env
        return SingleAgentEpisode(
            observation_space=env.single_observation_space, action_space=env.single_action_space
        )

    def _add_resets(self, lanes: Any, observations: Any, infos: list[dict[str, Any]]) -> None:
        for lane in lanes:
            first = trees.tree_map(np.copy, trees.take(observations, lane))
            self._episodes[lane].add_env_reset(first, infos[lane])

    def _to_module(self, episodes: list[SingleAgentEpisode], explore: bool, columns: dict[str, Any]) -> None:
        """Has observations pass the pipeline; what comes out is for the next step."""
        runner = self._runner
        if runner.module is None:
            return
        if runner.env_to_module is None:
            if Columns.OBS in columns:
                self._observations = trees.tree_map(np.array, trees.narrowed(columns[Columns.OBS]))
            return
        self._batch_episodes = [*episodes]
        self._batch = runner.env_to_module(
            rl_module=runner.module,
            batch={},
            episodes=episodes,
            explore=explore,
            shared_data=self._shared_data,
            metrics=runner.metrics,
            metrics_prefix_key=ENV_TO_MODULE,
            **columns,
        )

    def _call(self, event: str, lane: int, **more: Any) -> None:
        runner = self._runner
        if runner.callbacks.uses(event):
            runner.callbacks.call(
                event,
                episode=self._episodes[lane],
                env_runner=runner,
                metrics_logger=runner.metrics,
                env=runner.env.unwrapped,
                rl_module=runner.module,
                env_index=lane,
                **more,
            )


def _item(values: Any, lane: int) -> Any:
    """One environment's part of a list or of a tree of arrays [N, ...]; a copy of the latter, as a recurrent module's
    state is written to when an episode ends."""
    return values[lane] if isinstance(values, list) else trees.tree_map(np.copy, trees.take(values, lane))


def _replaced(
    observations: Any, final: dict[int, Any], infos: list[dict[str, Any]]
) -> tuple[Any, list[dict[str, Any]]]:
    """The observations and infos of a step, with those of the ends of episodes instead of those of resets."""
    observations = trees.tree_map(np.copy, observations)
    infos = [*infos]
    for lane, last in final.items():
        for leaf, value in zip(trees.leaves(observations), trees.leaves(last), strict=True):
            leaf[lane] = value
        infos[lane] = infos[lane].get("final_info", infos[lane])
    return observations, infos
