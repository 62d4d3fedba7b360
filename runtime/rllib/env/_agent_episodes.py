"""Sampling with a `MultiAgentEpisode` per environment, for callbacks and users that want episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .._core.agents import batch_of
from .._core.types import AgentID, ModuleID
from ..core.columns import Columns
from ._agent_acting import rows_of
from ._agent_metrics import FinishedEpisode
from .multi_agent_episode import MultiAgentEpisode, completed

# (module id, agents, observations [agents, ...], recurrent states) -> (columns, actions for the environments)
Act = Callable[[ModuleID, list[AgentID], Any, list[Any]], tuple[dict[str, Any], Any]]


@dataclasses.dataclass(slots=True)
class Stepped:
    """The actions of one agent: the module's, the environment's and the module's other outputs."""

    action: Any
    for_env: Any
    outputs: dict[str, Any]


def act(
    episodes: list[MultiAgentEpisode],
    initial_state: Callable[[ModuleID, AgentID], Any],
    compute: Act,
) -> list[dict[AgentID, Stepped]]:
    """Actions of all agents that are to act, per episode; one inference per module."""
    groups: dict[ModuleID, list[tuple[int, AgentID]]] = {}
    for slot, episode in enumerate(episodes):
        for agent_id in sorted(episode.get_agents_to_act(), key=str):  # sets have no fixed order
            groups.setdefault(episode.module_for(agent_id), []).append((slot, agent_id))
    result: list[dict[AgentID, Stepped]] = [{} for _ in episodes]
    for module_id, agents in groups.items():
        parts = [episodes[slot].agent_episodes[agent_id] for slot, agent_id in agents]
        observations = batch_of([part.get_observations(-1) for part in parts])
        states = []
        for (_, agent_id), part in zip(agents, parts, strict=True):
            given = part.extra_model_outputs.get(Columns.STATE_OUT)
            states.append(given.get(-1) if given is not None and given.len_incl_lookback() else None)
            if states[-1] is None:
                states[-1] = initial_state(module_id, agent_id)
        columns, actions = compute(module_id, [agent_id for _, agent_id in agents], observations, states)
        count = len(agents)
        mine = rows_of(columns.pop(Columns.ACTIONS), count)
        outputs: list[dict[str, Any]] = [{} for _ in agents]
        for name, column in columns.items():
            for output, value in zip(outputs, rows_of(column, count), strict=True):
                output[name] = value
        for (slot, agent_id), action, for_env, output in zip(
            agents, mine, rows_of(actions, count), outputs, strict=True
        ):
            result[slot][agent_id] = Stepped(action, for_env, output)
    return result


def add_step(episode: MultiAgentEpisode, stepped: Mapping[AgentID, Stepped], result: tuple[Any, ...]) -> None:
    """Adds what `env.step` gave for these actions."""
    observations, rewards, terminateds, truncateds, infos = result
    episode.add_env_step(
        observations,
        {agent_id: step.action for agent_id, step in stepped.items()},
        rewards,
        infos,
        terminateds=terminateds,
        truncateds=truncateds,
        extra_model_outputs={agent_id: step.outputs for agent_id, step in stepped.items()},
    )


def agent_steps(episodes: list[MultiAgentEpisode]) -> dict[ModuleID, dict[AgentID, int]]:
    """Module id -> agent id -> its steps."""
    result: dict[ModuleID, dict[AgentID, int]] = {}
    for module_id, parts in completed(episodes).items():
        mine = result[module_id] = {}
        for part in parts:
            mine[part.agent_id] = mine.get(part.agent_id, 0) + len(part)
    return result


def finished(chunks: list[MultiAgentEpisode]) -> FinishedEpisode:
    """What is reported of an episode, of all its chunks."""
    returns: dict[AgentID, float] = {}
    steps: dict[AgentID, int] = {}
    for chunk in chunks:
        for agent_id, value in chunk.agent_returns().items():
            returns[agent_id] = returns.get(agent_id, 0.0) + value
        for agent_id, part in chunk.agent_episodes.items():
            steps[agent_id] = steps.get(agent_id, 0) + len(part)
    last = chunks[-1]
    modules = {agent_id: last.module_for(agent_id) for agent_id in steps}
    seconds = sum(chunk.get_duration_s() for chunk in chunks)
    return FinishedEpisode(sum(map(len, chunks)), seconds, returns, steps, modules)
