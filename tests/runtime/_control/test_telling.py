from __future__ import annotations

import asyncio

from runtime._control.telling import AT_ONCE, MESSAGES_PER_S
from runtime._core.nodes import RECONNECT_GRACE_S
from runtime._wire.messages.control import ClusterView
from tests.sim.control.agent import cpus
from tests.sim.control.cluster import Rig, rig
from tests.sim.world import run_virtual

MANY = 3 * AT_ONCE
ROUND_S = MANY / MESSAGES_PER_S


def _views(r: Rig) -> int:
    """How many messages about the cluster all agents got since the last time."""
    count = 0
    for agent in r.agents:
        count += sum(isinstance(message, ClusterView) for message in agent.received)
        agent.received.clear()
    return count


def test_the_messages_to_many_agents_are_bounded_and_all_learn_the_last_state() -> None:
    async def main() -> None:
        async with rig(*[8] * MANY) as r:
            await asyncio.sleep(2)
            _views(r)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            for step in range(200):
                agent = r.agents[step % 7]
                agent.available = cpus(step % 8)
                agent.report()
                await asyncio.sleep(0.01)
            assert _views(r) <= (loop.time() - began_s) * MESSAGES_PER_S + 2 * MANY
            await asyncio.sleep(0.05 + 3 * ROUND_S)
            for agent in r.agents:
                for other in r.agents[:7]:
                    if other is not agent:
                        assert agent.view[other.node_id].available == other.available

    run_virtual(main())


def test_a_death_is_told_while_changes_are_on_their_way() -> None:
    async def main() -> None:
        async with rig(*[8] * MANY) as r:
            await asyncio.sleep(2)
            lost, busy, *others = r.agents
            lost.cut()
            for step in range(int((RECONNECT_GRACE_S + 0.5) / 0.02)):
                busy.available = cpus(step % 8)
                busy.report()
                await asyncio.sleep(0.02)
            assert {agent.view[lost.node_id].state for agent in others} == {"DEAD"}

    run_virtual(main())
