"""Sampling with a `MultiAgentEpisode` per environment, for connectors, callbacks and users that want episodes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from .._core import trees
from .._core.agents import batch_of
from .._core.trees import unbatch
from .._core.types import AgentID, ModuleID
from ..core.columns import Columns
from ..utils import metrics as names
from ._agent_metrics import FinishedEpisode
from .multi_agent_episode import MultiAgentEpisode, completed

EVENTS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


@dataclasses.dataclass(slots=True)
class Stepped:
    """What an agent does: the module's action, the environment's, and the module's other outputs."""

    action: Any
    for_env: Any
    outputs: dict[str, Any]


class AgentEpisodeLoop:
    """The episodes of the environments of a runner, and the connectors between them and the modules if there are own
    ones. Each observation passes the env-to-module pipeline exactly once, the last ones of an episode included.
    """

    def __init__(self, runner: Any) -> None:
        """
        Args:
            runner: a `MultiAgentEnvRunner`; its environments, modules, pipelines, callbacks and metrics are used.
        """
        self._runner = runner
        self._episodes: list[MultiAgentEpisode] = []
        self._chunks: dict[str, list[MultiAgentEpisode]] = {}  # earlier parts of the episodes that run
        # What is reported of them: who got the parts may have changed rewards since.
        self._reports: dict[str, FinishedEpisode] = {}
        self._batch: dict[str, Any] = {}  # for the next step of the modules
        self._shared_data: dict[str, Any] = {}
        self._explore = True

    def forget(self) -> None:
        """The episodes that run are lost; the next call resets the environments."""
        self._episodes, self._chunks, self._reports = [], {}, {}

    def run(
        self,
        steps: int | None,
        episodes: int | None,
        explore: bool,
        random_actions: bool,
        deadline: float | None,
    ) -> tuple[list[MultiAgentEpisode], int]:
        """Steps until there is enough.

        Args:
            steps: at least so many; or
            episodes: exactly so many complete ones, begun now.
            deadline: when to stop anyway.

        Returns:
            Episodes that ended, then the chunks of those that go on; and the number of steps of environments.
        """
        runner = self._runner
        self._explore = explore
        if episodes is not None or not self._episodes:
            self.forget()
            self._episodes = [self._started(slot) for slot in range(runner.num_envs)]
            self._to_module(self._episodes)
            for slot in range(runner.num_envs):
                self._call("on_episode_start", slot)
        by_agents = runner.config.count_steps_by == "agent_steps"
        env_steps = acted = 0
        done: list[MultiAgentEpisode] = []
        while (
            (acted if by_agents else env_steps) < steps if steps is not None else len(done) < (episodes or 0)
        ):
            timestep = runner.num_env_steps_sampled_lifetime + env_steps * (
                runner.config.num_env_runners or 1
            )
            actions = self._act(random_actions, timestep)
            ended: list[int] = []
            begun: list[int] = []
            for slot, stepped in enumerate(actions):
                if not self._step(slot, stepped):
                    begun.append(slot)
                    continue
                env_steps += 1
                acted += len(stepped)
                self._call("on_episode_step", slot)
                if self._episodes[slot].is_done:
                    ended.append(slot)
                    if episodes is not None and len(done) + len(ended) == episodes:
                        break
            if ended:  # their last observations pass the connectors here, those of the resets below
                self._to_module([self._episodes[slot] for slot in ended])
            for slot in ended:
                done.append(self._finish(slot))
            self._to_module(self._episodes)
            for slot in (*begun, *ended):
                self._call("on_episode_start", slot)
            if deadline is not None and time.perf_counter() >= deadline:
                break
        if episodes is not None:
            self.forget()
        result = [*done, *self._cut()]
        if runner.config.episodes_to_numpy:
            for episode in result:
                episode.to_numpy()
        return result, env_steps

    def _started(self, slot: int) -> MultiAgentEpisode:
        episode: MultiAgentEpisode = self._runner.new_episode()
        self._call("on_episode_created", slot, episode)
        observations, infos = self._runner.reset_env(slot)
        episode.add_env_reset(observations=trees.copied(dict(observations)), infos=_copied(infos))
        return episode

    def _step(self, slot: int, stepped: dict[AgentID, Stepped]) -> bool:
        """One step of an environment. If it failed, the environment and its episode are made anew: False."""
        actions = {agent_id: step.for_env for agent_id, step in stepped.items()}
        try:
            observations, rewards, terminateds, truncateds, infos = self._runner.env.envs[slot].step(actions)
        except Exception as error:
            self._runner.remake_env(slot, error)
            lost = self._episodes[slot].id_
            self._chunks.pop(lost, None)
            self._reports.pop(lost, None)
            self._episodes[slot] = self._started(slot)
            return False
        self._runner.stepped()
        self._episodes[slot].add_env_step(
            trees.copied(dict(observations)),  # the environment may write its next ones into the same arrays
            {agent_id: step.action for agent_id, step in stepped.items()},
            rewards,
            _copied(infos),
            terminateds=terminateds,
            truncateds=truncateds,
            extra_model_outputs={agent_id: step.outputs for agent_id, step in stepped.items()},
        )
        return True

    def _finish(self, slot: int) -> MultiAgentEpisode:
        episode = self._episodes[slot]
        before = self._chunks.pop(episode.id_, [])
        self._call("on_episode_end", slot, prev_episode_chunks=before)
        self._runner.counted.finished(reported(episode, self._reports.pop(episode.id_, None)))
        self._episodes[slot] = self._started(slot)
        return episode

    def _cut(self) -> list[MultiAgentEpisode]:
        """The chunks so far of the episodes that go on; new chunks continue them."""
        chunks = [episode for episode in self._episodes if len(episode)]
        modules = {} if self._runner.module is None else self._runner.module
        # The next chunk of a recurrent module's episode begins with the state after this one.
        own = int(any(module.is_stateful() for _, module in modules.items()))
        lookback = self._runner.config.episode_lookback_horizon
        self._episodes = [
            episode.cut(lookback, own_steps=own) if len(episode) else episode for episode in self._episodes
        ]
        for chunk in chunks:
            if self._runner.callbacks.uses("on_episode_end"):  # they may be many
                self._chunks.setdefault(chunk.id_, []).append(chunk)
            self._reports[chunk.id_] = reported(chunk, self._reports.get(chunk.id_))
        return chunks

    # ------------------------------------------------------------ acting

    def _act(self, random_actions: bool, timestep: int) -> list[dict[AgentID, Stepped]]:
        """What all agents do that are to act, per episode."""
        if self._runner.env_to_module is not None and not random_actions:
            return self._act_through_connectors(timestep)
        groups: dict[ModuleID, list[tuple[int, AgentID]]] = {}
        for slot, episode in enumerate(self._episodes):
            for agent_id in sorted(episode.get_agents_to_act(), key=str):  # sets have no fixed order
                groups.setdefault(episode.module_for(agent_id), []).append((slot, agent_id))
        result: list[dict[AgentID, Stepped]] = [{} for _ in self._episodes]
        for module_id, agents in groups.items():
            parts = [self._episodes[slot].agent_episodes[agent_id] for slot, agent_id in agents]
            columns, actions = self._runner.actors.act(
                module_id,
                [agent_id for _, agent_id in agents],
                batch_of([part.get_observations(-1) for part in parts]),
                [self._state_of(part) for part in parts],
                explore=self._explore,
                random_actions=random_actions,
                timestep=timestep,
            )
            mine, for_env = unbatch(columns.pop(Columns.ACTIONS)), unbatch(actions)
            for row, ((slot, agent_id), action, applied) in enumerate(
                zip(agents, mine, for_env, strict=True)
            ):
                outputs = {name: trees.take(column, row) for name, column in columns.items()}
                result[slot][agent_id] = Stepped(action, applied, outputs)
        return result

    def _state_of(self, part: Any) -> Any:
        """A recurrent module's state after an agent's last step, or at its start."""
        outs = part.extra_model_outputs.get(Columns.STATE_OUT)
        if outs is not None and outs.len_incl_lookback():
            return outs.get(-1)
        acting = self._runner.actors.of(part.module_id, part.agent_id)
        return None if acting is None else acting.initial_state

    def _act_through_connectors(self, timestep: int) -> list[dict[AgentID, Stepped]]:
        import torch

        runner = self._runner
        result: list[dict[AgentID, Stepped]] = [{} for _ in self._episodes]
        batch, self._batch = self._batch, {}
        if not batch:  # nobody is to act
            return result
        with torch.inference_mode():
            with runner.metrics.log_time(names.RLMODULE_INFERENCE_TIMER):
                if self._explore:
                    outputs = runner.module.forward_exploration(batch, t=timestep)
                else:
                    outputs = runner.module.forward_inference(batch)
            outputs = runner.module_to_env(
                rl_module=runner.module,
                batch=outputs,
                episodes=self._episodes,
                explore=self._explore,
                shared_data=self._shared_data,
                metrics=runner.metrics,
                metrics_prefix_key=(names.MODULE_TO_ENV_CONNECTOR,),
            )
        actions = outputs.pop(Columns.ACTIONS)
        for_env = outputs.pop(Columns.ACTIONS_FOR_ENV, actions)
        for slot, by_agent in enumerate(actions):
            for agent_id, action in by_agent.items():
                applied = runner.actors.from_first(agent_id, for_env[slot][agent_id])
                mine = {
                    name: column[slot][agent_id]
                    for name, column in outputs.items()
                    if agent_id in column[slot]
                }
                result[slot][agent_id] = Stepped(action, applied, mine)
        return result

    def _to_module(self, episodes: list[MultiAgentEpisode]) -> None:
        """Has observations pass the pipeline; what comes out is for the next step."""
        runner = self._runner
        if runner.env_to_module is None or runner.module is None:
            return
        self._batch = runner.env_to_module(
            rl_module=runner.module,
            batch={},
            episodes=episodes,
            explore=self._explore,
            shared_data=self._shared_data,
            metrics=runner.metrics,
            metrics_prefix_key=(names.ENV_TO_MODULE_CONNECTOR,),
        )

    def _call(self, event: str, slot: int, episode: MultiAgentEpisode | None = None, **more: Any) -> None:
        runner = self._runner
        if runner.callbacks.uses(event):
            runner.callbacks.call(
                event,
                episode=self._episodes[slot] if episode is None else episode,
                env_runner=runner,
                metrics_logger=runner.metrics,
                env=runner.env,
                env_index=slot,
                rl_module=runner.module,
                **more,
            )


def _copied(infos: Mapping[AgentID, Any] | None) -> dict[AgentID, Any]:
    """Info dicts that stay as they are when the environment changes its own."""
    return {a: dict(info) if isinstance(info, Mapping) else info for a, info in (infos or {}).items()}


def agent_steps(episodes: list[MultiAgentEpisode]) -> dict[ModuleID, dict[AgentID, int]]:
    """Module id -> agent id -> its steps."""
    result: dict[ModuleID, dict[AgentID, int]] = {}
    for module_id, parts in completed(episodes).items():
        mine = result[module_id] = {}
        for part in parts:
            mine[part.agent_id] = mine.get(part.agent_id, 0) + len(part)
    return result


def reported(chunk: MultiAgentEpisode, before: FinishedEpisode | None) -> FinishedEpisode:
    """What is reported of an episode up to the end of this chunk.

    Args:
        before: the same of its earlier chunks.
    """
    returns = dict(before.agent_returns) if before else {}
    steps = dict(before.agent_steps) if before else {}
    for agent_id, value in chunk.agent_returns().items():
        returns[agent_id] = returns.get(agent_id, 0.0) + value
    for agent_id, part in chunk.agent_episodes.items():
        steps[agent_id] = steps.get(agent_id, 0) + len(part)
    length = len(chunk) + (before.length if before else 0)
    seconds = chunk.get_duration_s() + (before.duration_s if before else 0.0)
    return FinishedEpisode(
        length, seconds, returns, steps, {agent_id: chunk.module_for(agent_id) for agent_id in steps}
    )
