"""Samples from environments of several agents."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

from .._core import trees
from .._core.agents import AgentEpisode, Lane, RowTable, batch_of
from .._core.rollout import Rollout
from .._core.trees import unbatch
from .._core.types import AgentID, Config, ModuleID
from ..core.columns import Columns
from ..utils import metrics as names
from . import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ._agent_acting import Actors
from ._agent_episodes import EVENTS, AgentEpisodeLoop, agent_steps
from ._agent_metrics import AgentMetrics, FinishedEpisode, steps_by_agent
from ._connectors import has_own_pipelines
from ._sampling import SamplingRunner
from ._vector import env_creator
from .env_runner import Collected
from .multi_agent_episode import MultiAgentEpisode, completed
from .single_agent_episode import SingleAgentEpisode, to_rollout
from .vector.sync_vector_multi_agent_env import SyncVectorMultiAgentEnv

logger = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Running:
    """An episode that runs in an environment."""

    agents: AgentEpisode
    began_s: float


class MultiAgentEnvRunner(SamplingRunner):
    """Steps through N environments: one inference per module and step for all its agents in all environments.

    Rows go into a table per module (`_core.agents`), and from there into its rollout. `sample`, and every call if a
    callback looks at single steps, keeps a `MultiAgentEpisode` per environment instead.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        """
        Args:
            config: an `AlgorithmConfig` with several agents.
            kwargs: see `EnvRunner`, and "env_creator": what makes one environment of its `EnvContext`, for names that
                are not registered in this process.

        Raises:
            ValueError: the configuration has one agent.
        """
        super().__init__(config=config, **kwargs)
        if not self.config.is_multi_agent:
            raise ValueError(
                "MultiAgentEnvRunner needs a configuration with several agents: call "
                "config.multi_agent(policies=..., policy_mapping_fn=...)"
            )
        self.counted = AgentMetrics(self.metrics, self.config)
        self._tables: dict[ModuleID, RowTable] = {}
        self._running: list[_Running] = []  # per environment; empty before the first reset
        self._episode_loop = AgentEpisodeLoop(self)
        self._needs_episodes = (
            has_own_pipelines(self.config)
            or self.config.learner_connector is not None
            or any(map(self.callbacks.uses, (*EVENTS, "on_sample_end")))
        )
        self._unseeded: set[int] = set()  # environments that get a seed with their next reset, their first
        self._make()

    # ------------------------------------------------------------ making

    def make_env(self) -> None:
        """Makes the environments; closes those before. `config.env_config` may have changed."""
        self._close_env()
        context = self._new_context()
        creator = self._creator or env_creator(self.config)

        def make(index: int) -> Any:
            if creator is not None:
                return creator(context.copy_with_overrides(vector_index=index))
            import gymnasium

            return gymnasium.make(self.config.env, disable_env_checker=True, **context)

        makers = [(lambda index=index: make(index)) for index in range(self.config.num_envs_per_env_runner)]
        self.env = SyncVectorMultiAgentEnv(makers)
        self.num_envs = self.env.num_envs
        agents = self.env.possible_agents
        self._agent_spaces = (
            {agent_id: self.env.get_observation_space(agent_id) for agent_id in agents},
            {agent_id: self.env.get_action_space(agent_id) for agent_id in agents},
        )
        self.forget_episodes()
        self._unseeded = set(range(self.num_envs))
        self.callbacks.call(
            "on_environment_created",
            env_runner=self,
            metrics_logger=self.metrics,
            env=self.env,
            env_context=context,
        )

    def _make_pipelines(self) -> None:
        if has_own_pipelines(self.config):
            self.env_to_module = self.config.build_env_to_module_connector(
                env=self.env, spaces=self.get_spaces()
            )
            self.module_to_env = self.config.build_module_to_env_connector(
                env=self.env, spaces=self.get_spaces()
            )

    def make_module(self) -> None:
        """Makes the multi-module; None if the configuration has none, for random actions."""
        self._seed_torch()
        try:
            spec = self.config.get_multi_rl_module_spec(
                env=self.env, spaces=self.get_spaces(), inference_only=True
            )
            self.module = spec.build()
        except NotImplementedError:
            self.module = None
        if self.env is not None:
            self.actors = Actors(self.module, self._rng, self.config, self.env.get_action_space)

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """Pairs of observation and action space: under "__env__" and "__env_single__" dict spaces of all agents, and by
        module."""
        if self.env is None:
            return self.spaces
        everyone = (self.env.single_observation_space, self.env.single_action_space)
        spaces = {INPUT_ENV_SPACES: everyone, INPUT_ENV_SINGLE_SPACES: everyone}
        episode = self.new_episode()
        of_agents = {
            a: (self._agent_spaces[0][a], self._agent_spaces[1][a]) for a in self.env.possible_agents
        }
        for agent_id, pair in of_agents.items():
            spaces.setdefault(episode.module_for(agent_id), pair)
        pairs = [*of_agents.values()]
        if pairs and all(pair == pairs[0] for pair in pairs):  # then any module may act for any agent
            for module_id in self.config.policies:
                spaces.setdefault(module_id, pairs[0])
        if self.env_to_module is not None:  # the modules get what the pipeline makes of it
            behind, actions = self.env_to_module.observation_space, self.env_to_module.action_space
            spaces.update(
                {module_id: (space, actions[module_id]) for module_id, space in behind.spaces.items()}
            )
        return spaces

    def new_episode(self) -> MultiAgentEpisode:
        """An episode without steps, with the configuration's mapping of agents."""
        return MultiAgentEpisode(
            observation_space=self._agent_spaces[0],
            action_space=self._agent_spaces[1],
            agent_to_module_mapping_fn=self.config.policy_mapping_fn,
        )

    def _lane_for(self, slot: int, episode: MultiAgentEpisode, agent_id: AgentID, obs: Any) -> Lane:
        module_id = episode.module_for(agent_id)
        table = self._tables.get(module_id)
        if table is None:
            acting = self.actors.of(module_id, agent_id)
            table = RowTable(module_id, None if acting is None else acting.initial_state)
            self._tables[module_id] = table
        return Lane(agent_id, f"{episode.id_}_{agent_id}", table, obs, slot)

    # ------------------------------------------------------------ sampling

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
            env_steps: at least so many steps of environments (of agents if `config.count_steps_by` says so).
            episodes: exactly so many complete episodes; environments are reset before.
            random_actions: actions of the action spaces instead of the modules'.
            explore: by default `config.explore`.
            deadline_s: seconds after which to return what there is then. It is looked at between steps.
            keep_infos: whether the rollouts have the environments' infos.
            reduce_metrics: False leaves "metrics" empty: they stay in the runner until `get_metrics`.
        """
        if keep_infos or self._needs_episodes:
            sampled = self._sample(env_steps, episodes, explore, random_actions, deadline_s)
            rollouts = {m: self._rollout(m, parts) for m, parts in completed(sampled).items()}
            steps = sum(map(len, sampled))
            rows = sum(rollout.rows for rollout in rollouts.values())
            metrics = self.get_metrics() if reduce_metrics else {}
            wanted_too = sampled if self.config.learner_connector is not None else None
            return Collected(rollouts, steps, rows, metrics, self._weights_seq, wanted_too)
        began = self._begin()
        wanted, wanted_episodes = self._wanted(env_steps, episodes)
        if wanted_episodes is not None or not self._running:
            self._reset_all()
        deadline = None if deadline_s is None else began + deadline_s
        steps = self._loop(
            wanted,
            wanted_episodes,
            self.config.explore if explore is None else explore,
            random_actions,
            deadline,
        )
        rollouts = self._cut(keep=wanted_episodes is None)
        if wanted_episodes is not None:
            self._running = []
        self._count(steps, steps_by_agent(rollouts))
        self._end(began)
        rows = sum(rollout.rows for rollout in rollouts.values())
        metrics = self.get_metrics() if reduce_metrics else {}
        return Collected(rollouts, steps, rows, metrics, self._weights_seq)

    def _rollout(self, module_id: ModuleID, parts: list[SingleAgentEpisode]) -> Rollout:
        acting = self.actors.of(module_id, parts[0].agent_id)
        return to_rollout(parts, None if acting is None else acting.initial_state)

    def _reset_all(self) -> None:
        """Resets all environments; steps of their episodes are lost."""
        self.forget_episodes()
        for slot in range(self.num_envs):
            self._running.append(self._started(slot))

    def _started(self, slot: int) -> _Running:
        observations, _ = self.reset_env(slot)
        episode = self.new_episode()

        def lane_for(agent_id: AgentID, obs: Any) -> Lane:
            return self._lane_for(slot, episode, agent_id, obs)

        agents = AgentEpisode(episode.id_, lane_for)
        agents.reset(observations)
        return _Running(agents, time.perf_counter())

    def reset_env(self, slot: int) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """Resets an environment, with a seed for the first time; gives observations and infos."""
        while True:
            seed = self._seed + slot if slot in self._unseeded and self._seed is not None else None
            try:
                observations, infos = self.env.envs[slot].reset(seed=seed)
            except Exception as error:
                self.remake_env(slot, error)
                continue
            if not isinstance(observations, Mapping):
                raise TypeError(
                    f"{self.env.envs[slot]!r}.reset() must return two dicts by agent, not observations of "
                    f"type {type(observations).__name__}"
                )
            self._unseeded.discard(slot)
            return observations, infos or {}

    def remake_env(self, slot: int, error: Exception) -> None:
        """Makes an environment anew that failed.

        Raises:
            Exception: the error, if failed environments are not to be made anew, or too many failed in a row.
        """
        self._count_failure(error, f"Environment {slot}")
        self.env.remake(slot)

    def stepped(self) -> None:
        """An environment made a step: failures before it were not in a row with those to come."""
        self._failures = 0

    def _loop(
        self,
        wanted: int | None,
        episodes: int | None,
        explore: bool,
        random_actions: bool,
        deadline: float | None,
    ) -> int:
        """Steps until there are enough; returns the number of steps of environments."""
        envs, running = self.env.envs, self._running
        by_agents = self.config.count_steps_by == "agent_steps"
        runners, lifetime = self.config.num_env_runners or 1, self.num_env_steps_sampled_lifetime
        env_steps = acted = ended = 0
        while (
            (acted if by_agents else env_steps) < wanted if wanted is not None else ended < episodes  # type: ignore[operator]
        ):
            groups: dict[RowTable, list[Lane]] = {}
            for slot in running:
                for lane in slot.agents.acting:
                    group = groups.get(lane.table)
                    if group is None:
                        groups[lane.table] = [lane]
                    else:
                        group.append(lane)
            actions: list[dict[AgentID, Any]] = [{} for _ in envs]
            for table, lanes in groups.items():
                acted += len(lanes)
                self._act(table, lanes, actions, explore, random_actions, lifetime + env_steps * runners)
            for index, env in enumerate(envs):
                try:
                    observations, rewards, terminateds, truncateds, _ = env.step(actions[index])
                except Exception as error:
                    self.remake_env(index, error)
                    running[index] = self._started(index)
                    continue
                self.stepped()
                env_steps += 1
                if running[index].agents.step(observations, rewards, terminateds, truncateds):
                    ended += 1
                    seconds = time.perf_counter() - running[index].began_s
                    self.counted.finished(FinishedEpisode.of(running[index].agents, seconds))
                    running[index] = self._started(index)
                    if episodes is not None and ended == episodes:
                        break
            if deadline is not None and time.perf_counter() >= deadline:
                break
        return env_steps

    def _act(
        self,
        table: RowTable,
        lanes: list[Lane],
        actions: list[dict[AgentID, Any]],
        explore: bool,
        random_actions: bool,
        timestep: int,
    ) -> None:
        """One inference: gives each lane a row and its environment an action."""
        observations = batch_of([lane.obs for lane in lanes])
        columns, for_env = self.actors.act(
            table.module_id,
            [lane.agent_id for lane in lanes],
            observations,
            [lane.state for lane in lanes],
            explore=explore,
            random_actions=random_actions,
            timestep=timestep,
        )
        states = columns.get(Columns.STATE_OUT)
        columns[Columns.OBS] = observations
        row = table.append(columns, len(lanes))
        for lane, action in zip(lanes, unbatch(for_env), strict=True):
            lane.act(row, None if states is None else trees.take(states, row - len(table) + len(lanes)))
            row += 1
            actions[lane.slot][lane.agent_id] = action

    def _cut(self, *, keep: bool) -> dict[ModuleID, Rollout]:
        """The rollouts so far; with `keep`, episodes go on in the next call."""
        lanes: dict[RowTable, list[Lane]] = {table: [] for table in self._tables.values()}
        for running in self._running:
            for lane in running.agents.lanes.values():
                lanes[lane.table].append(lane)
        cut = {table.module_id: table.cut(mine, keep=keep) for table, mine in lanes.items()}
        return {module_id: rollout for module_id, rollout in cut.items() if rollout is not None}

    def _count(self, env_steps: int, agent_steps: Mapping[ModuleID, Mapping[AgentID, int]]) -> None:
        self.counted.sampled(env_steps, agent_steps)
        self.num_env_steps_sampled_lifetime += env_steps * (self.config.num_env_runners or 1)

    # ------------------------------------------------------------ sampling episodes

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[MultiAgentEpisode]:
        """Steps through the environments; by default as far as the configuration says.

        Episodes that `collect` began are lost, and the other way round.

        Args:
            num_timesteps, num_episodes, explore, random_actions: see `collect`.
            force_reset: resets the environments before.

        Returns:
            Episodes and chunks of those that go on, with arrays if `config.episodes_to_numpy` says so.
        """
        if force_reset:
            self.forget_episodes()
        return self._sample(num_timesteps, num_episodes, explore, random_actions)

    def _sample(
        self,
        steps: int | None,
        episodes: int | None,
        explore: bool | None,
        random_actions: bool,
        deadline_s: float | None = None,
    ) -> list[MultiAgentEpisode]:
        began = self._begin()
        steps, episodes = self._wanted(steps, episodes)
        self._running, self._tables = [], {}
        deadline = None if deadline_s is None else began + deadline_s
        explore = self.config.explore if explore is None else explore
        result, env_steps = self._episode_loop.run(steps, episodes, explore, random_actions, deadline)
        self.callbacks.call("on_sample_end", env_runner=self, metrics_logger=self.metrics, samples=result)
        self._count(env_steps, agent_steps(result))
        self._end(began)
        return result

    def forget_episodes(self) -> None:
        """Has the next sample begin new episodes."""
        self._running, self._tables = [], {}
        self._episode_loop.forget()

    # ------------------------------------------------------------ metrics

    def get_metrics(self) -> dict[str, Any]:
        """The metrics since the last call, for `MetricsLogger.aggregate`."""
        self.metrics.log_value(names.WEIGHTS_SEQ_NO, self._weights_seq, window=1)
        self.counted.flush()
        return self.metrics.reduce()
