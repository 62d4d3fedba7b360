"""Environments of PettingZoo as multi-agent environments."""

from __future__ import annotations

from typing import Any

import gymnasium

from ..._core.types import AgentID
from ..multi_agent_env import ALL_AGENTS, MultiAgentEnv


class _PettingZoo(MultiAgentEnv):
    """What environments of both APIs have in common."""

    def __init__(self, env: Any) -> None:
        self._wrapped = env
        env.reset()
        self.agents = list(env.agents)
        self.possible_agents = list(getattr(env, "possible_agents", None) or env.agents)
        super().__init__()
        self.observation_spaces = {a: env.observation_space(a) for a in self.possible_agents}
        self.action_spaces = {a: env.action_space(a) for a in self.possible_agents}
        self.observation_space = _dict_space(self.observation_spaces)
        self.action_space = _dict_space(self.action_spaces)

    def get_observation_space(self, agent_id: AgentID) -> gymnasium.Space[Any]:
        """The observation space of an agent, also of one that nobody announced."""
        space: gymnasium.Space[Any] = self._wrapped.observation_space(agent_id)
        return space

    def get_action_space(self, agent_id: AgentID) -> gymnasium.Space[Any]:
        """The action space of an agent, also of one that nobody announced."""
        space: gymnasium.Space[Any] = self._wrapped.action_space(agent_id)
        return space

    def render(self) -> Any:
        """Shows the environment as its render mode says."""
        return self._wrapped.render()

    def close(self) -> None:
        """Closes the environment."""
        self._wrapped.close()

    @property
    def get_sub_environments(self) -> Any:
        """The environment below all wrappers."""
        return self._wrapped.unwrapped


class PettingZooEnv(_PettingZoo):
    """A game of PettingZoo in which agents take turns (its AEC API).

    Each step has the observation of the agent whose turn comes next, and its rewards since its last turn. Agents that
    are done are taken out of the game with their last rewards and observations.
    """

    def __init__(self, env: Any) -> None:
        """Args:
        env: a `pettingzoo.AECEnv`.
        """
        super().__init__(env)
        self.env = env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, Any], dict[AgentID, Any]]:
        """See `MultiAgentEnv.reset`."""
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.env.agents)
        agent_id = self.env.agent_selection
        return {agent_id: self.env.observe(agent_id)}, {agent_id: self.env.infos[agent_id]}

    def step(self, action_dict: dict[AgentID, Any]) -> Any:
        """See `MultiAgentEnv.step`."""
        self.env.step(action_dict[self.env.agent_selection])
        obs: dict[AgentID, Any] = {}
        rewards: dict[AgentID, float] = {}
        terminateds: dict[AgentID, bool] = {}
        truncateds: dict[AgentID, bool] = {}
        infos: dict[AgentID, Any] = {}
        while self.env.agents:
            agent_id = self.env.agent_selection
            obs[agent_id], reward, terminated, truncated, infos[agent_id] = self.env.last()
            rewards[agent_id] = float(reward)
            terminateds[agent_id], truncateds[agent_id] = bool(terminated), bool(truncated)
            if not (terminated or truncated):
                break
            self.env.step(None)  # takes an agent that is done out of the game
        self.agents = list(self.env.agents)
        _end_when_empty(self.agents, terminateds, truncateds)
        return obs, rewards, terminateds, truncateds, infos


class ParallelPettingZooEnv(_PettingZoo):
    """An environment of PettingZoo in which all agents act at once (its parallel API)."""

    def __init__(self, env: Any) -> None:
        """Args:
        env: a `pettingzoo.ParallelEnv`.
        """
        super().__init__(env)
        self.par_env = env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, Any], dict[AgentID, Any]]:
        """See `MultiAgentEnv.reset`."""
        obs, infos = self.par_env.reset(seed=seed, options=options)
        self.agents = list(self.par_env.agents)
        return obs, infos or {}

    def step(self, action_dict: dict[AgentID, Any]) -> Any:
        """See `MultiAgentEnv.step`."""
        obs, rewards, terminateds, truncateds, infos = self.par_env.step(action_dict)
        self.agents = list(self.par_env.agents)
        terminateds, truncateds = dict(terminateds), dict(truncateds)
        _end_when_empty(self.agents, terminateds, truncateds)
        return obs, rewards, terminateds, truncateds, infos


def _dict_space(spaces: dict[AgentID, gymnasium.Space[Any]]) -> gymnasium.Space[Any]:
    return gymnasium.spaces.Dict({str(agent_id): space for agent_id, space in spaces.items()})


def _end_when_empty(
    agents: list[AgentID], terminateds: dict[AgentID, bool], truncateds: dict[AgentID, bool]
) -> None:
    """Sets "__all__": without agents the episode was truncated if all that left last were, else it terminated."""
    all_truncated = bool(truncateds) and all(truncateds.values()) and not any(terminateds.values())
    terminateds[ALL_AGENTS] = not agents and not all_truncated
    truncateds[ALL_AGENTS] = not agents and all_truncated
