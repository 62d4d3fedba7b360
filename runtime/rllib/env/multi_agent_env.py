"""Environments in which several agents act."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from .._core.types import AgentID

if TYPE_CHECKING:
    from collections.abc import Mapping

# In a Dict observation space, the key of the state that all agents share.
ENV_STATE = "state"

# In the dicts of terminations and truncations, the key of the whole episode.
ALL_AGENTS = "__all__"


class MultiAgentEnv(gymnasium.Env[Any, Any]):
    """An environment of several agents. What it takes and gives are dicts: agent id -> value.

    Only agents with an observation act next. An agent may so come later, leave early, pause, or take turns with others.

    observation_spaces, action_spaces: agent id -> space, of all agents that may ever appear. Instead,
        `get_observation_space(agent_id)` and `get_action_space(agent_id)` can be overridden.
    agents: the agents that take part now.
    possible_agents: all agents that may ever take part.
    observation_space, action_space: of every agent, or Dict spaces of agents, if the dicts above are None.
    """

    observation_spaces: dict[AgentID, gymnasium.Space[Any]] | None = None
    action_spaces: dict[AgentID, gymnasium.Space[Any]] | None = None
    agents: list[AgentID] = []
    possible_agents: list[AgentID] = []
    observation_space: gymnasium.Space[Any] | None = None
    action_space: gymnasium.Space[Any] | None = None

    def __init__(self) -> None:
        super().__init__()
        # Each object has lists of its own, not the class's.
        self.agents = list(self.agents)
        self.possible_agents = list(self.possible_agents or self.agents)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, Any], dict[AgentID, Any]]:
        """Starts an episode.

        Returns:
            (observations, infos) of the agents that act first. This method of the base class seeds `np_random` and
            gives two empty dicts; a subclass calls it and returns its own.
        """
        super().reset(seed=seed, options=options)
        return {}, {}

    def step(
        self, action_dict: dict[AgentID, Any]
    ) -> tuple[
        dict[AgentID, Any],
        dict[AgentID, float],
        dict[AgentID, bool],
        dict[AgentID, bool],
        dict[AgentID, dict[str, Any]],
    ]:
        """Moves on by one step.

        Args:
            action_dict: an action of each agent that had an observation in the step before.

        Returns:
            (observations, rewards, terminateds, truncateds, infos). Agents with an observation act next. An agent may
            have a reward without an observation. The key "__all__" of `terminateds` and `truncateds` ends the episode.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step(action_dict)")

    def render(self) -> Any:
        """Shows the environment; None if it cannot be shown."""
        return None

    def get_observation_space(self, agent_id: AgentID) -> gymnasium.Space[Any]:
        """The observation space of an agent.

        Raises:
            ValueError: the environment does not define it.
        """
        return self._space("observation", agent_id, self.observation_spaces, self.observation_space)

    def get_action_space(self, agent_id: AgentID) -> gymnasium.Space[Any]:
        """The action space of an agent.

        Raises:
            ValueError: the environment does not define it.
        """
        return self._space("action", agent_id, self.action_spaces, self.action_space)

    def _space(
        self,
        kind: str,
        agent_id: AgentID,
        spaces: Mapping[AgentID, gymnasium.Space[Any]] | None,
        common: gymnasium.Space[Any] | None,
    ) -> gymnasium.Space[Any]:
        if spaces is not None and agent_id in spaces.keys():  # noqa: SIM118  # a Dict space's `in` looks for values
            return spaces[agent_id]
        if isinstance(common, gymnasium.spaces.Dict) and agent_id in common.spaces:
            return common[agent_id]
        if common is None or spaces is not None:
            raise ValueError(
                f"{type(self).__name__} defines no {kind} space of agent {agent_id!r}. Add the agent to "
                f"self.{kind}_spaces, or override get_{kind}_space(agent_id)"
            )
        return common

    @property
    def num_agents(self) -> int:
        """How many agents take part now."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """How many agents may ever take part."""
        return len(self.possible_agents)

    def with_agent_groups(
        self,
        groups: dict[str, list[AgentID]],
        obs_space: gymnasium.Space[Any] | None = None,
        act_space: gymnasium.Space[Any] | None = None,
    ) -> MultiAgentEnv:
        """This environment with groups of agents as agents.

        A group observes and acts with tuples of what its members observe and do, and its reward is the sum of theirs.
        All members must act at the same time.

        Args:
            groups: group id -> its members. Agents of no group stay as they are.
            obs_space: Tuple space of a group; None makes it from the members' spaces.
            act_space: Tuple space of a group; None makes it from the members' spaces.
        """
        # The wrapper is a MultiAgentEnv, so its module imports this one.
        import importlib

        wrapper = importlib.import_module(
            "runtime.rllib.env.wrappers.group_agents_wrapper"
        ).GroupAgentsWrapper
        grouped: MultiAgentEnv = wrapper(self, groups, obs_space, act_space)
        return grouped


def make_multi_agent(
    env_name_or_creator: str | Callable[[dict[str, Any]], gymnasium.Env[Any, Any]],
) -> type[MultiAgentEnv]:
    """A class of multi-agent environments made of copies of a single-agent environment, one for each agent.

    Agents are 0, 1, ...; each ends when its own copy ends, and the episode when all have ended.

    Args:
        env_name_or_creator: name of a gymnasium environment, or `creator(config)`.

    Returns:
        A class. Its constructor takes a dict: "num_agents" (default 1), the other items go to the creator.
    """

    class MultiEnv(MultiAgentEnv):
        def __init__(self, config: dict[str, Any] | None = None) -> None:
            settings = dict(config or {})
            number = settings.pop("num_agents", 1)
            if isinstance(env_name_or_creator, str):
                self.envs = [gymnasium.make(env_name_or_creator, **settings) for _ in range(number)]
            else:
                self.envs = [env_name_or_creator(settings) for _ in range(number)]
            self.agents = list(range(number))
            super().__init__()
            self.observation_spaces = {i: env.observation_space for i, env in enumerate(self.envs)}
            self.action_spaces = {i: env.action_space for i, env in enumerate(self.envs)}
            self.terminateds: set[int] = set()
            self.truncateds: set[int] = set()

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[dict[AgentID, Any], dict[AgentID, Any]]:
            self.terminateds, self.truncateds = set(), set()
            obs, infos = {}, {}
            for i, env in enumerate(self.envs):
                obs[i], infos[i] = env.reset(seed=None if seed is None else seed + i, options=options)
            return obs, infos

        def step(self, action_dict: dict[AgentID, Any]) -> Any:
            if not action_dict:
                raise ValueError("step() needs the action of at least one agent")
            obs: dict[AgentID, Any] = {}
            rewards: dict[AgentID, float] = {}
            terminateds: dict[AgentID, bool] = {}
            truncateds: dict[AgentID, bool] = {}
            infos: dict[AgentID, Any] = {}
            for i, action in action_dict.items():
                obs[i], reward, terminateds[i], truncateds[i], infos[i] = self.envs[i].step(action)
                rewards[i] = float(reward)
                if terminateds[i]:
                    self.terminateds.add(i)
                if truncateds[i]:
                    self.truncateds.add(i)
            terminateds[ALL_AGENTS] = len(self.terminateds | self.truncateds) == len(self.envs)
            truncateds[ALL_AGENTS] = len(self.truncateds) == len(self.envs)
            return obs, rewards, terminateds, truncateds, infos

        def render(self) -> Any:
            """The images of all copies: below one another if they are wide, else side by side."""
            images = [np.asarray(env.render()) for env in self.envs]
            return np.concatenate(images, axis=0 if images[0].shape[1] > images[0].shape[0] else 1)

        def close(self) -> None:
            for env in self.envs:
                env.close()

    return MultiEnv
