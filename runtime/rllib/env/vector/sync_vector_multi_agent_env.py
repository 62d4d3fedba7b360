"""Several multi-agent environments in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from ..multi_agent_env import MultiAgentEnv
from .vector_multi_agent_env import VectorMultiAgentEnv


class SyncVectorMultiAgentEnv(VectorMultiAgentEnv):
    """Multi-agent environments that are stepped one after the other. They have different agents, so there are no
    arrays of them.

    Attributes:
        envs: the environments, with their wrappers.
        num_envs: how many there are.
    """

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        """
        Args:
            makers: each makes one environment.

        Raises:
            TypeError: what one made is no `MultiAgentEnv`.
        """
        self._makers = list(makers)
        self.envs = []
        try:
            for index in range(len(makers)):
                self.envs.append(self._made(index))
        except BaseException:
            self.close()
            raise
        self.num_envs = len(self.envs)

    def _made(self, index: int) -> Any:
        env = self._makers[index]()
        if not isinstance(getattr(env, "unwrapped", env), MultiAgentEnv):
            raise TypeError(
                f"The configuration has several agents, but its environment {env!r} is no MultiAgentEnv. Derive its "
                "class from MultiAgentEnv, or wrap it (see env.wrappers and make_multi_agent)"
            )
        return env

    def remake(self, index: int) -> Any:
        """Makes an environment anew; the one before is closed, whatever its `close` raises."""
        try:
            self.envs[index].close()
        except Exception:  # it failed before, and it is thrown away
            pass
        self.envs[index] = self._made(index)
        return self.envs[index]

    @property
    def possible_agents(self) -> list[Any]:
        """All agents that may ever take part in one environment: those that it announces, or that have spaces."""
        first = self.first
        if first.possible_agents or first.observation_spaces:
            return first.possible_agents or [*(first.observation_spaces or ())]
        common = first.observation_space
        return [*common.spaces] if isinstance(common, gymnasium.spaces.Dict) else []

    @property
    def single_observation_space(self) -> gymnasium.spaces.Dict:
        """Agent id -> its observation space, of all possible agents of one environment."""
        return gymnasium.spaces.Dict({a: self.first.get_observation_space(a) for a in self.possible_agents})

    @property
    def single_action_space(self) -> gymnasium.spaces.Dict:
        """Agent id -> its action space, of all possible agents of one environment."""
        return gymnasium.spaces.Dict({a: self.first.get_action_space(a) for a in self.possible_agents})

    observation_space = single_observation_space
    action_space = single_action_space

    def get_observation_space(self, agent_id: Any) -> gymnasium.Space[Any]:
        """See `MultiAgentEnv.get_observation_space`."""
        return self.first.get_observation_space(agent_id)

    def get_action_space(self, agent_id: Any) -> gymnasium.Space[Any]:
        """See `MultiAgentEnv.get_action_space`."""
        return self.first.get_action_space(agent_id)
