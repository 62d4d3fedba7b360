from __future__ import annotations

import asyncio

import pytest

from runtime._core.nodes import HEARTBEAT_TIMEOUT_S, RECONNECT_GRACE_S, RESTART_GRACE_S
from runtime._transport.channel import CallError
from runtime._wire.messages.control import (
    ClusterView,
    DrainNode,
    GetClusterInfo,
    GetNodes,
    RegisterActor,
    ResumeNode,
    StopNode,
)
from tests.sim.control import specs
from tests.sim.control.agent import cpus
from tests.sim.control.cluster import rig
from tests.sim.world import run_virtual


def test_a_node_learns_of_the_cluster_when_it_joins() -> None:
    async def main() -> None:
        async with rig(4, 2) as r:
            first, second = r.agents
            assert set(second.view) == {first.node_id, second.node_id}
            await asyncio.sleep(0.1)
            assert set(first.view) == {first.node_id, second.node_id}
            assert first.view[second.node_id].total == cpus(2)

    run_virtual(main())


def test_changes_are_told_to_the_others() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            first, second = r.agents
            first.available = cpus(1)
            first.report()
            await asyncio.sleep(0.1)
            assert second.view[first.node_id].available == cpus(1)

    run_virtual(main())


def test_many_changes_travel_together() -> None:
    async def main() -> None:
        async with rig(*[8] * 5) as r:
            await asyncio.sleep(1.5)
            for agent in r.agents:
                agent.received.clear()
                agent.available = cpus(3)
                agent.report()
            await asyncio.sleep(0.1)
            for agent in r.agents:
                views = [m for m in agent.received if isinstance(m, ClusterView)]
                assert len(views) == 1
                assert {load.node_id for load in views[0].loads} == {other.node_id for other in r.agents}

    run_virtual(main())


def test_a_change_is_not_told_to_the_node_itself() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            first, second = r.agents
            await asyncio.sleep(1.5)
            first.received.clear()
            first.available = cpus(1)
            first.report()
            await asyncio.sleep(0.1)
            assert second.view[first.node_id].available == cpus(1)
            assert not first.received

    run_virtual(main())


def test_a_report_without_change_tells_nobody() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            await asyncio.sleep(1.5)
            for agent in r.agents:
                agent.received.clear()
            await asyncio.sleep(5)
            assert not any(agent.received for agent in r.agents)

    run_virtual(main())


def test_a_node_that_comes_back_in_time_lives_on() -> None:
    async def main() -> None:
        async with rig(4) as r:
            agent = r.agents[0]
            agent.cut()
            await asyncio.sleep(RECONNECT_GRACE_S - 0.5)
            await agent.join(r.store)
            await asyncio.sleep(60)
            assert (await r.node(agent)).state == "ALIVE"

    run_virtual(main())


def test_a_node_that_does_not_come_back_is_dead_and_stays_so() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            agent, other = r.agents
            agent.cut()
            await asyncio.sleep(RECONNECT_GRACE_S + 0.1)
            info = await r.node(agent)
            assert info.state == "DEAD"
            assert "did not come back" in info.death_reason
            assert other.view[agent.node_id].state == "DEAD"
            with pytest.raises(CallError) as caught:
                await agent.join(r.store)
            assert caught.value.kind in ("invalid", "unavailable")
            assert agent.is_stopped

    run_virtual(main())


@pytest.mark.parametrize(
    ("answers", "is_dead"), [([True, True], True), ([True, False], False), ([False], False)]
)
def test_an_agent_whose_port_refuses_connections_is_not_waited_for(
    answers: list[bool], is_dead: bool
) -> None:
    async def main() -> None:
        left = list(answers)

        async def refuses(address: str) -> bool:
            return left.pop(0)

        async with rig(4, refuses=refuses) as r:
            (agent,) = r.agents
            agent.cut()
            await asyncio.sleep(RECONNECT_GRACE_S / 2)
            assert left == []
            info = await r.node(agent)
            assert (info.state == "DEAD") is is_dead
            if is_dead:
                assert info.death_reason == "its agent's process has ended"
            else:
                await agent.join(r.store)
                await asyncio.sleep(60)
                assert (await r.node(agent)).state == "ALIVE"

    run_virtual(main())


def test_an_agent_that_comes_back_while_it_is_examined_lives_on() -> None:
    async def main() -> None:
        async def refuses(address: str) -> bool:
            await agent.join(r.store)
            return True

        async with rig(4, refuses=refuses) as r:
            (agent,) = r.agents
            agent.cut()
            await asyncio.sleep(60)
            assert (await r.node(agent)).state == "ALIVE"

    run_virtual(main())


def test_a_silent_node_is_dead() -> None:
    async def main() -> None:
        async with rig(4) as r:
            agent = r.agents[0]
            assert agent._heart is not None
            agent._heart.cancel()
            await asyncio.sleep(HEARTBEAT_TIMEOUT_S - 1)
            assert (await r.node(agent)).state == "ALIVE"
            await asyncio.sleep(2)
            assert (await r.node(agent)).state == "DEAD"
            assert any(isinstance(message, StopNode) for message in agent.received)

    run_virtual(main())


def test_nodes_survive_a_restart_of_the_store() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            before = await r.ask(GetClusterInfo())
            await r.restart()
            assert len((await r.ask(GetNodes())).nodes) == 2
            await asyncio.sleep(RECONNECT_GRACE_S + 1)
            await r.agents[0].join(r.store)
            await asyncio.sleep(RESTART_GRACE_S)
            assert (await r.node(r.agents[0])).state == "ALIVE"
            assert (await r.node(r.agents[1])).state == "DEAD"
            assert await r.ask(GetClusterInfo()) == before

    run_virtual(main())


def test_a_second_connection_of_a_node_replaces_the_first() -> None:
    async def main() -> None:
        async with rig(4) as r:
            agent = r.agents[0]
            old = agent.channel
            assert old is not None
            await agent.join(r.store)
            await asyncio.sleep(RECONNECT_GRACE_S + 1)
            assert old.closed
            assert (await r.node(agent)).state == "ALIVE"

    run_virtual(main())


class TestDrain:
    def test_an_idle_node(self) -> None:
        async def main() -> None:
            async with rig(4, 4) as r:
                agent, other = r.agents
                await r.ask(DrainNode(agent.node_id, "idle for long"))
                assert agent.is_draining
                assert (await r.node(agent)).state == "DRAINING"
                await asyncio.sleep(0.1)
                assert other.view[agent.node_id].state == "DRAINING"
                agent.crash()
                await asyncio.sleep(0.1)
                assert (await r.node(agent)).state == "DEAD"  # no grace: it was about to go

        run_virtual(main())

    def test_a_busy_node_refuses(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                agent = r.agents[0]
                agent.answers_drain = False
                with pytest.raises(CallError) as caught:
                    await r.ask(DrainNode(agent.node_id, "idle"))
                assert caught.value.kind == "busy"
                assert (await r.node(agent)).state == "ALIVE"

        run_virtual(main())

    def test_a_node_known_to_be_busy_is_not_even_asked(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                agent = r.agents[0]
                agent.bundles[b"x", 0] = None  # type: ignore[assignment]
                agent.report()
                await asyncio.sleep(0.1)
                with pytest.raises(CallError) as caught:
                    await r.ask(DrainNode(agent.node_id, "idle"))
                assert caught.value.kind == "busy"
                assert not agent.is_draining
                await r.ask(DrainNode(agent.node_id, "must go", only_if_idle=False))
                assert agent.is_draining

        run_virtual(main())

    def test_it_is_known_when_the_machine_goes(self) -> None:
        async def main() -> None:
            async with rig(4, 4) as r:
                agent = r.agents[0]
                assert (await r.node(agent)).deadline_ms == 0
                await r.ask(DrainNode(agent.node_id, "notice", only_if_idle=False, deadline_ms=1234))
                await r.ask(DrainNode(agent.node_id, "again", only_if_idle=False))
                assert (await r.node(agent)).deadline_ms == 1234
                await r.ask(ResumeNode(agent.node_id, "it stays"))
                assert (await r.node(agent)).deadline_ms == 0

        run_virtual(main())

    def test_a_draining_node_is_called_back(self) -> None:
        async def main() -> None:
            async with rig(4, 4) as r:
                agent, other = r.agents
                await r.ask(DrainNode(agent.node_id, "idle for long"))
                await r.ask(ResumeNode(agent.node_id, "work waits"))
                assert not agent.is_draining
                assert (await r.node(agent)).state == "ALIVE"
                await asyncio.sleep(0.1)
                assert other.view[agent.node_id].state == "ALIVE"
                await r.ask(ResumeNode(agent.node_id, "asked again"))
                assert (await r.node(agent)).state == "ALIVE"
                agent.crash()
                await asyncio.sleep(0.1)
                with pytest.raises(CallError) as caught:
                    await r.ask(ResumeNode(agent.node_id, "too late"))
                assert caught.value.kind == "unavailable"
                await asyncio.sleep(RECONNECT_GRACE_S + 1)
                with pytest.raises(CallError) as caught:
                    await r.ask(ResumeNode(agent.node_id, "too late"))
                assert caught.value.kind == "not_found"

        run_virtual(main())

    def test_an_unknown_node(self) -> None:
        async def main() -> None:
            async with rig() as r:
                with pytest.raises(CallError) as caught:
                    await r.ask(DrainNode(b"?" * 28, "idle"))
                assert caught.value.kind == "not_found"

        run_virtual(main())


def test_a_node_that_says_good_bye_is_dead_at_once() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            agent = r.agents[0]
            assert agent.channel is not None
            agent.channel.peer.peer_left = True
            agent.crash()
            await asyncio.sleep(0.01)
            info = await r.node(agent)
            assert (info.state, info.death_reason) == ("DEAD", "it was stopped")

    run_virtual(main())


def test_other_agents_hear_that_a_promise_came_to_nothing() -> None:
    """They were told of it; the agent's own numbers never changed."""

    async def main() -> None:
        async with rig(4, 4) as r:
            agent, other = r.agents
            nodes = r.store.nodes
            node = nodes._cluster.get(agent.node_id)
            assert node is not None
            await asyncio.sleep(1.2)
            charge = node.charge(cpus(2), asyncio.get_running_loop().time())
            nodes.changed(node)
            await asyncio.sleep(0.1)
            assert other.view[agent.node_id].available == cpus(2)
            node.forgive(charge)
            agent.report()
            await asyncio.sleep(0.1)
            assert other.view[agent.node_id].available == cpus(4)

    run_virtual(main())


def test_what_waits_is_tried_again_when_a_report_corrects_the_view() -> None:
    """The agent's numbers may stay the same while the store's expectation of them does not."""

    async def main() -> None:
        async with rig(4) as r:
            agent = r.agents[0]
            await asyncio.sleep(1.2)
            node = r.store.nodes._cluster.get(agent.node_id)
            assert node is not None
            node.view.available = {}
            await r.ask(RegisterActor(specs.actor(1)))
            await asyncio.sleep(0.1)
            assert not agent.actors
            agent.report()
            await r.actor(1, "ALIVE", timeout_s=0.5)

    run_virtual(main())
