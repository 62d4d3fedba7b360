"""What vectors of multi-agent environments have in common."""

from __future__ import annotations

import contextlib
from typing import Any

from ..multi_agent_env import MultiAgentEnv


class VectorMultiAgentEnv:
    """Several multi-agent environments that are used as one.

    envs: the environments, with their wrappers.
    num_envs: how many there are.
    """

    envs: list[Any]
    num_envs: int

    @property
    def unwrapped(self) -> VectorMultiAgentEnv:
        """Itself."""
        return self

    @property
    def first(self) -> MultiAgentEnv:
        """The first environment without wrappers."""
        env: MultiAgentEnv = self.envs[0].unwrapped
        return env

    def render(self) -> tuple[Any, ...]:
        """What each environment renders."""
        return tuple(env.render() for env in self.envs)

    def close(self) -> None:
        """Closes all environments, though some may fail to."""
        with contextlib.ExitStack() as closing:
            for env in self.envs:
                closing.callback(env.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_envs={self.num_envs})"
