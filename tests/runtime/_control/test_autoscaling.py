from __future__ import annotations

import asyncio

import pytest

from runtime._transport.channel import CallError
from runtime._wire.messages.base import Demand, Ok, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import (
    AutoscalerReport,
    FinishJob,
    RequestResources,
    WatchClusterState,
)
from tests.sim.control import specs
from tests.sim.control.agent import cpus
from tests.sim.control.cluster import counts, demand, rig
from tests.sim.world import run_virtual


def test_demands_of_all_agents_are_summed() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            r.agents[0].demands = [demand(cpus(9), 3), demand(cpus(1), 1)]
            r.agents[1].demands = [demand(cpus(9), 4, infeasible=True), demand(cpus(2), 0)]
            for agent in r.agents:
                agent.report()
            await asyncio.sleep(0.1)
            state = await r.state()
            assert counts(state.demands) == {(("CPU", 90_000),): 7, (("CPU", 10_000),): 1}
            assert {d.count: d.infeasible for d in state.demands} == {7: True, 1: False}

    run_virtual(main())


def test_a_watch_wakes_when_demand_changes() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await asyncio.sleep(2)
            version = (await r.state()).version
            waiting = asyncio.ensure_future(r.ask(WatchClusterState(version, 50.0)))
            await asyncio.sleep(5)
            assert not waiting.done(), "woken by heartbeats"
            r.agents[0].demands = [demand(cpus(9), 1)]
            r.agents[0].report()
            await asyncio.sleep(0.01)
            assert waiting.done()
            assert waiting.result().demands

    run_virtual(main())


def test_a_watch_wakes_when_a_node_turns_idle() -> None:
    async def main() -> None:
        async with rig(4) as r:
            agent = r.agents[0]
            agent.bundles[b"x", 0] = None  # type: ignore[assignment]
            agent.report()
            await asyncio.sleep(0.1)
            state = await r.state()
            assert state.nodes[0].idle_since_s == 0
            waiting = asyncio.ensure_future(r.ask(WatchClusterState(state.version, 50.0)))
            agent.bundles.clear()
            agent.report()
            await asyncio.sleep(0.01)
            assert waiting.result().nodes[0].idle_since_s > 0

    run_virtual(main())


def test_a_watch_ends_with_its_timeout() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await asyncio.sleep(2)
            state = await r.state()
            again = await r.ask(WatchClusterState(state.version, 3.0))
            assert again.version == state.version
            assert again.now_s - state.now_s == pytest.approx(3.0, abs=0.1)

    run_virtual(main())


def test_versions_grow_over_a_restart() -> None:
    async def main() -> None:
        async with rig(4) as r:
            before = (await r.state()).version
            await asyncio.sleep(1)
            await r.restart()
            assert (await r.ask(WatchClusterState(before, 0.5))).version > before

    run_virtual(main())


def test_who_was_idle_before_a_restart_may_be_busy_now() -> None:
    async def main() -> None:
        async with rig(4) as r:
            assert (await r.state()).nodes[0].idle_since_s > 0
            await r.restart()
            (node,) = (await r.state()).nodes
            assert (node.state, node.idle_since_s) == ("ALIVE", 0.0)
            await r.agents[0].join(r.store)
            r.agents[0].report()
            await asyncio.sleep(0.1)
            assert (await r.state()).nodes[0].idle_since_s > 0

    run_virtual(main())


class TestRequests:
    def test_replaced_and_withdrawn(self) -> None:
        async def main() -> None:
            async with rig() as r:
                await r.ask(RequestResources("a", [cpus(1)] * 2))
                await r.ask(RequestResources("b", [cpus(3)]))
                assert (await r.state()).requested == [cpus(1), cpus(1), cpus(3)]
                await r.ask(RequestResources("a", [cpus(5)]))
                await r.ask(RequestResources("b", []))
                assert (await r.state()).requested == [cpus(5)]

        run_virtual(main())

    def test_expire(self) -> None:
        async def main() -> None:
            async with rig() as r:
                await r.ask(RequestResources("a", [cpus(1)], ttl_s=10.0))
                version = (await r.state()).version
                await asyncio.sleep(9)
                assert (await r.state()).requested
                state = await r.ask(WatchClusterState(version, 50.0))
                assert not state.requested

        run_virtual(main())

    def test_survive_a_restart(self) -> None:
        async def main() -> None:
            async with rig() as r:
                await r.ask(RequestResources("a", [cpus(1)]))
                await r.ask(RequestResources("b", [cpus(2)], ttl_s=5.0))
                await r.restart()
                assert (await r.state()).requested == [cpus(1), cpus(2)]
                await asyncio.sleep(6)
                assert (await r.state()).requested == [cpus(1)]

        run_virtual(main())

    def test_expire_after_a_restart(self) -> None:
        async def main() -> None:
            async with rig() as r:
                await r.ask(RequestResources("a", [cpus(1)], ttl_s=5.0))
                await r.restart()
                version = (await r.state()).version
                assert not (await r.ask(WatchClusterState(version, 50.0))).requested

        run_virtual(main())

    def test_are_counted_by_bundle_and_listed_by_owner(self) -> None:
        async def main() -> None:
            async with rig() as r:
                await r.ask(RequestResources("a", [cpus(1), cpus(2)], counts=[50_000, 3]))
                await r.ask(RequestResources("b", [cpus(1)], ttl_s=5.0, selectors=[{"zone": "a"}]))
                state = await r.state()
                assert state.requested == [cpus(1), cpus(2), cpus(1)]
                assert state.requested_counts == [50_000, 3, 1]
                assert state.requested_selectors == [{}, {}, {"zone": "a"}]
                a, b = state.requesters
                assert (a.owner, a.size, a.expires_s) == ("a", 2, 0.0)
                assert (b.owner, b.size) == ("b", 1)
                assert b.expires_s == pytest.approx(state.now_s + 5.0, abs=0.1)

        run_virtual(main())

    def test_end_with_their_program_if_they_name_it(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                job = await r.job()
                await r.ask(RequestResources("its own", [cpus(1)], job_id=job.job_id))
                await r.ask(RequestResources("another's", [cpus(2)], ttl_s=100.0))
                await r.ask(FinishJob(job.job_id))
                assert (await r.state()).requested == [cpus(2)]
                with pytest.raises(CallError, match="has ended"):
                    await r.ask(RequestResources("late", [cpus(1)], job_id=job.job_id))

        run_virtual(main())

    def test_end_with_a_program_that_died_unseen(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                job = await r.job()
                await r.ask(RequestResources("its own", [cpus(1)], job_id=job.job_id))
                r.agents[0].crash()
                r.agents.clear()
                await r.restart()
                await asyncio.sleep(120)
                assert (await r.state()).requested == []

        run_virtual(main())

    @pytest.mark.parametrize(
        "request_",
        [
            RequestResources("a", [{"CPU": -1}]),
            RequestResources("a", [cpus(1)], selectors=[{}, {}]),
            RequestResources("a", [cpus(1)], counts=[0]),
            RequestResources("a", [cpus(1)], counts=[1, 1]),
        ],
    )
    def test_senseless_ones_are_refused(self, request_: RequestResources) -> None:
        async def main() -> None:
            async with rig() as r:
                with pytest.raises(CallError):
                    await r.ask(request_)

        run_virtual(main())


def test_a_watch_for_the_version_alone_has_no_picture() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await asyncio.sleep(2)
            state = await r.state()
            news = await r.ask(WatchClusterState(-1, only_version=True))
            assert (news.version, news.nodes) == (state.version, [])
            waiting = asyncio.ensure_future(r.ask(WatchClusterState(state.version, 50.0, only_version=True)))
            r.agents[0].demands = [demand(cpus(9), 1)]
            r.agents[0].report()
            await asyncio.sleep(0.01)
            assert waiting.result().version > state.version

    run_virtual(main())


def test_a_report_reaches_status_and_drivers() -> None:
    async def main() -> None:
        async with rig(4) as r:
            mine, other = ("{CPU: 99}", "no node type is that big"), ("{CPU: 50}", "of another node")
            r.agents[0].demands = [demand(cpus(99), 2), demand(cpus(1), 1)]
            r.agents[0].report()
            assert await r.ask(AutoscalerReport(b"{}", [mine, other])) == Ok()
            assert (await r.state()).last_report == b"{}"
            await asyncio.sleep(0.1)
            assert r.agents[0].notes == [mine], "nobody hears of what waits elsewhere"
            late = await r.add(1)
            late.demands = [demand(cpus(50), 1)]
            late.report()
            await asyncio.sleep(0.1)
            assert late.notes == [other]
            await r.ask(AutoscalerReport(b"{}", []))
            await asyncio.sleep(0.1)
            assert (r.agents[0].notes, late.notes) == ([], [])

    run_virtual(main())


def test_reasons_are_told_again_to_an_agent_that_was_away() -> None:
    async def main() -> None:
        async with rig(4) as r:
            notes = [("{CPU: 99}", "no node type is that big")]
            agent = r.agents[0]
            agent.demands = [demand(cpus(99), 1)]
            agent.report()
            await r.ask(AutoscalerReport(b"{}", notes))
            await asyncio.sleep(0.1)
            agent.notes = []
            agent.cut()
            await agent.join(r.store)
            agent.report()
            await asyncio.sleep(0.1)
            assert agent.notes == notes

    run_virtual(main())


def test_one_that_may_fall_back_is_told_another_reason_than_one_that_may_not() -> None:
    async def main() -> None:
        async with rig(4) as r:
            notes = [
                ("{CPU: 9} with labels {zone: a}", "no zone a"),
                ("{CPU: 9} with labels {zone: a} or {zone: b}", "zone b is full"),
            ]
            picky = SchedulingStrategy(labels={"zone": "a"})
            flexible = SchedulingStrategy(labels={"zone": "a"}, fallbacks=[{"zone": "b"}])
            r.agents[0].demands = [
                Demand(ResourceRequest(cpus(9), strategy), 1) for strategy in (picky, flexible)
            ]
            r.agents[0].report()
            await r.ask(AutoscalerReport(b"{}", notes))
            await asyncio.sleep(0.1)
            assert r.agents[0].notes == notes

    run_virtual(main())


def test_a_group_being_reserved_is_no_demand() -> None:
    async def main() -> None:
        async with rig(4) as r:
            r.agents[0].latency_s = 0.5
            r.agents[0].cut()
            await r.agents[0].join(r.store)
            await r.ask(specs.group(1, [{"CPU": 1}]))
            await asyncio.sleep(0.01)
            assert not (await r.state()).groups
            assert (await r.state()).nodes[0].idle_since_s == 0

    run_virtual(main())


def test_who_wrote_the_report_gets_the_picture_without_it() -> None:
    async def main() -> None:
        async with rig(2) as r:
            await asyncio.sleep(2)
            await r.ask(AutoscalerReport(b"{}", []))
            assert (await r.state()).last_report == b"{}"
            state = await r.ask(WatchClusterState(-1, with_report=False))
            assert state.last_report == b""
            assert state.nodes

    run_virtual(main())
