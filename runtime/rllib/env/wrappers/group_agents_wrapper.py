"""Groups of agents as agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from ..._core.types import AgentID
from ..multi_agent_env import ALL_AGENTS, MultiAgentEnv

GROUP_REWARDS = "_group_rewards"  # in a group's info: the list of its members' rewards
GROUP_INFO = "_group_info"  # in a group's info: the list of its members' infos


class GroupAgentsWrapper(MultiAgentEnv):
    """A multi-agent environment in which groups of its agents are agents; see `MultiAgentEnv.with_agent_groups`.

    A group's reward is the sum of its members'. It ends when all members have; it was truncated if all were.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        groups: Mapping[str, list[AgentID]],
        obs_space: gymnasium.Space[Any] | None = None,
        act_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        """
        Args:
            env: the environment.
            groups: group id -> its members. Agents of no group stay as they are.
            obs_space, act_space: Tuple spaces of each group; by default of the members' spaces.

        Raises:
            ValueError: an agent is in two groups.
        """
        self.env = env
        self.groups = {group_id: list(members) for group_id, members in groups.items()}
        self.agent_id_to_group: dict[AgentID, str] = {}
        for group_id, members in self.groups.items():
            for agent_id in members:
                if agent_id in self.agent_id_to_group:
                    raise ValueError(
                        f"Agent {agent_id!r} is in the groups {self.agent_id_to_group[agent_id]!r} and {group_id!r}; "
                        "an agent can be in one group only"
                    )
                self.agent_id_to_group[agent_id] = group_id
        self.agents = self._grouped_ids(env.agents)
        self.possible_agents = self._grouped_ids(env.possible_agents)
        super().__init__()
        self.observation_space, self.action_space = obs_space, act_space
        spaces = {a: self._space_of(a, obs_space, env.get_observation_space) for a in self.possible_agents}
        self.observation_spaces = spaces
        self.action_spaces = {
            a: self._space_of(a, act_space, env.get_action_space) for a in self.possible_agents
        }

    def _grouped_ids(self, agent_ids: list[AgentID]) -> list[AgentID]:
        return list(dict.fromkeys(self.agent_id_to_group.get(agent_id, agent_id) for agent_id in agent_ids))

    def _space_of(
        self,
        agent_id: AgentID,
        given: gymnasium.Space[Any] | None,
        of_member: Callable[..., gymnasium.Space[Any]],
    ) -> gymnasium.Space[Any]:
        if agent_id not in self.groups:
            return of_member(agent_id)
        return given or gymnasium.spaces.Tuple([of_member(member) for member in self.groups[agent_id]])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, Any], dict[AgentID, Any]]:
        """See `MultiAgentEnv.reset`."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._grouped(obs, tuple), self._grouped(infos, _group_info, default={})

    def step(self, action_dict: dict[AgentID, Any]) -> Any:
        """See `MultiAgentEnv.step`."""
        obs, rewards, terminateds, truncateds, infos = self.env.step(self._ungrouped(action_dict))
        group_rewards = self._grouped(rewards, list, default=0.0)
        grouped_infos = self._grouped(infos, _group_info, default={})
        for group_id in self.groups.keys() & group_rewards.keys():
            grouped_infos.setdefault(group_id, {})[GROUP_REWARDS] = group_rewards[group_id]
            group_rewards[group_id] = sum(group_rewards[group_id])
        return (
            self._grouped(obs, tuple),
            group_rewards,
            *self._flags(terminateds, truncateds),
            grouped_infos,
        )

    def _flags(
        self, terminateds: Mapping[AgentID, bool], truncateds: Mapping[AgentID, bool]
    ) -> tuple[dict[AgentID, bool], dict[AgentID, bool]]:
        """Those of termination and of truncation. A group whose members end in both ways has terminated."""
        everyone_ends, everyone_cut = bool(terminateds.get(ALL_AGENTS)), bool(truncateds.get(ALL_AGENTS))
        ends = self._grouped(terminateds, all, default=everyone_ends)
        cuts = self._grouped(truncateds, all, default=everyone_cut)
        for group_id, members in self.groups.items():
            ended = {member: terminateds.get(member, everyone_ends) for member in members}
            cut = {member: truncateds.get(member, everyone_cut) for member in members}
            if all(ended[member] or cut[member] for member in members) and not all(cut.values()):
                ends[group_id] = True
        return ends, cuts

    def _ungrouped(self, actions: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        result = {}
        for agent_id, action in actions.items():
            members = self.groups.get(agent_id)
            if members is None:
                result[agent_id] = action
                continue
            if len(action) != len(members):
                raise ValueError(
                    f"Group {agent_id!r} has {len(members)} members, but {len(action)} actions: {action!r}"
                )
            result.update(zip(members, action, strict=True))
        return result

    def _grouped(
        self, items: Mapping[AgentID, Any], join: Callable[[list[Any]], Any], *, default: Any = None
    ) -> dict[AgentID, Any]:
        """The items with each group's joined. Without `default`, all members of a group must be there or none."""
        result: dict[AgentID, Any] = {}
        for agent_id, item in items.items():
            group_id = self.agent_id_to_group.get(agent_id)
            if group_id is None:
                result[agent_id] = item
            elif group_id not in result:
                members = self.groups[group_id]
                missing = [member for member in members if member not in items]
                if missing and default is None:
                    raise ValueError(
                        f"Group {group_id!r} got observations of some members but not of {missing}. All members of a "
                        "group must act at the same time"
                    )
                result[group_id] = join([items.get(member, default) for member in members])
        return result

    def render(self) -> Any:
        """Shows the environment."""
        return self.env.render()

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()


def _group_info(infos: list[Any]) -> dict[str, Any]:
    return {GROUP_INFO: infos}
