"""Environments of Gymnasium with several independent agents: `config={"num_agents": 2}`."""

from __future__ import annotations

from .....env.multi_agent_env import make_multi_agent
from ..stateless_cartpole import StatelessCartPole

MultiAgentCartPole = make_multi_agent("CartPole-v1")
MultiAgentMountainCar = make_multi_agent("MountainCarContinuous-v0")
MultiAgentPendulum = make_multi_agent("Pendulum-v1")
MultiAgentStatelessCartPole = make_multi_agent(StatelessCartPole)

__all__ = ["MultiAgentCartPole", "MultiAgentMountainCar", "MultiAgentPendulum", "MultiAgentStatelessCartPole"]
