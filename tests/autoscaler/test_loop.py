"""The running autoscaler with the real control store (in this process), a simulated platform and light
agents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from autoscaler.config import AutoscalerConfig
from autoscaler.loop import Autoscaler
from autoscaler.provider import (
    Capabilities,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineTags,
    NodeType,
    Offer,
    ProviderError,
    SetupError,
)
from autoscaler.simulation import Faults, SimulatedProvider
from autoscaler.status import Report
from runtime._clients.control import ControlClient
from runtime._control.server import ControlStore
from runtime._control.storage.memory import MemoryStorage
from runtime._core.resources import to_units
from runtime._transport.channel import Channel, Handler, LoopbackChannel
from runtime._wire.messages.base import Demand, Message, NodeInfo, Ok, ResourceRequest
from runtime._wire.messages.control import (
    ClusterView,
    Drain,
    NodeReport,
    RegisterNode,
    Resume,
    WatchClusterState,
)
from tests.autoscaler.build import BIG, SMALL, config

QUICK: dict[str, object] = {
    "quiet_s": 0.01,
    "patience_s": 0.1,
    "tick_s": 0.2,
    "idle_timeout_s": 0.05,
    "provider_timeout_s": 2.0,
}
PATIENCE_S = 60.0


def quick(*kinds: NodeType, **more: object) -> AutoscalerConfig:
    return config(*kinds, **{**QUICK, **more})


class Agent:
    """A node agent that only registers, reports and accepts drains."""

    def __init__(self, name: str, node_type: NodeType, store: ControlStore, is_head: bool = False) -> None:
        self.node_id = name.encode().ljust(28, b".")
        self.total = to_units(node_type.resources)
        self.demands: list[Demand] = []
        self.busy = False
        self.is_draining = False
        self.notes: dict[str, str] = {}
        self._info = NodeInfo(
            self.node_id,
            "ALIVE",
            f"10.0.0.1:{len(name)}",
            "",
            "10.0.0.1",
            name,
            is_head,
            "",
            self.total,
            dict(self.total),
            {},
            instance_id=name,
            node_type=node_type.name,
        )
        self._channel, theirs = LoopbackChannel.pair(self._handle, None)
        store.attach(theirs)

    async def join(self) -> None:
        await self._channel.call(RegisterNode(self._info))
        self.report()

    def report(self) -> None:
        free = {} if self.busy else dict(self.total)
        idle_since_s = 0.0 if self.busy else 1.0
        self._channel.send(NodeReport(self.node_id, self.total, free, self.demands, idle_since_s))

    def leave(self) -> None:
        self._channel.close()

    def _handle(self, _: Channel, message: Message) -> Message | None:
        if isinstance(message, Drain | Resume):
            self.is_draining = isinstance(message, Drain)
            return Ok()
        if isinstance(message, ClusterView) and message.has_notes:
            self.notes = dict(message.notes)
        return None


class Setup:
    """Starts an agent per machine, or fails."""

    def __init__(self, store: ControlStore) -> None:
        self.failure: SetupError | None = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.agents: dict[str, Agent] = {}
        self.busy = True
        self._store = store
        self._loop = asyncio.get_running_loop()

    def run(self, machine: Machine, node_type: NodeType, instance_id: str, log_path: str) -> None:
        assert self.may_go_on.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        asyncio.run_coroutine_threadsafe(self._start(instance_id, node_type), self._loop).result(60)

    def join_tokens(self, request: LaunchRequest) -> tuple[str, ...]:
        return tuple(f"token of {name}" for name in request.instance_ids)

    async def _start(self, instance_id: str, node_type: NodeType) -> None:
        agent = Agent(instance_id, node_type, self._store)
        agent.busy = self.busy
        self.agents[instance_id] = agent
        await agent.join()


class Rig:
    """One cluster. `run` starts the autoscaler; it ends with the context."""

    def __init__(self, store: ControlStore, settings: AutoscalerConfig, faults: Faults) -> None:
        self.store = store
        self.settings = settings
        self.provider = SimulatedProvider("cluster", faults=faults)
        self.setup = Setup(store)
        self.head = Agent("head", NodeType("head", {"CPU": 1}), store, is_head=True)
        self.provider.add_machine(
            "head", {MachineTags.CLUSTER_ID: "cluster", MachineTags.ROLE: MachineTags.HEAD}
        )
        self.autoscaler: Autoscaler

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async def connect(handler: Handler) -> Channel:
            ours, theirs = LoopbackChannel.pair(handler, None)
            self.store.attach(theirs)
            return ours

        control = ControlClient(connect)
        await control.start()
        self.autoscaler = Autoscaler(self.settings, self.provider, self.setup, control)
        task = asyncio.create_task(self.autoscaler.run())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.wait([task])
            await control.close()

    def configure(self, settings: AutoscalerConfig) -> None:
        self.autoscaler.configure(settings, self.provider, self.setup)

    def workers(self) -> int:
        return len(self.provider.machines()) - 1

    async def report(self) -> Report:
        state = self.store.autoscaling.snapshot()
        return Report.from_json(state.last_report) if state.last_report else Report(0.0, "", 0)

    async def until(self, condition: Callable[[Report], bool]) -> Report:
        """Waits for what must happen; the report in which it had."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                report = await self.report()
                if condition(report):
                    return report
                await asyncio.sleep(0.01)

    async def running(self, count: int) -> Report:
        return await self.until(lambda r: sum(t.running for t in r.types) == count)

    def want(self, cpus: float, count: int) -> None:
        self.head.demands = [Demand(ResourceRequest(to_units({"CPU": cpus})), count)] if count else []
        self.head.busy = bool(count)
        self.head.report()


def play(
    scenario: Callable[[Rig], Awaitable[None]], settings: AutoscalerConfig, faults: Faults | None = None
) -> None:
    async def main() -> None:
        store = ControlStore(MemoryStorage(), "/nowhere")
        await store.start()
        rig = Rig(store, settings, faults or Faults())
        try:
            await rig.head.join()
            await scenario(rig)
        finally:
            await store.stop()

    asyncio.run(main())


@pytest.mark.parametrize("joins", [True, False])
def test_machines_that_join_by_themselves_are_given_what_they_join_with(joins: bool) -> None:
    requests: list[LaunchRequest] = []

    class Joining(SimulatedProvider):
        @property
        def capabilities(self) -> Capabilities:
            return replace(super().capabilities, machines_join=joins)

        def create(self, request: LaunchRequest) -> LaunchResult:
            requests.append(request)
            return super().create(request)

    async def scenario(rig: Rig) -> None:
        rig.provider = Joining("cluster")
        async with rig.run():
            await rig.running(2)

    play(scenario, quick(replace(SMALL, min_workers=2)))
    for request in requests:
        expected = tuple(f"token of {name}" for name in request.instance_ids) if joins else ()
        assert request.join_tokens == expected
        assert "token of" not in repr(request)
    assert sum(request.count for request in requests) == 2


def test_the_minimum_comes_up() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.run():
            report = await rig.running(2)
            assert rig.workers() == 2
            assert all(i.state == "RUNNING" and i.node_id for i in report.instances)

    play(scenario, quick(replace(SMALL, min_workers=2)))


def test_demand_brings_workers_and_idleness_takes_them_away() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.run():
            rig.want(2, 3)
            await rig.running(3)
            rig.want(2, 0)
            rig.setup.busy = False  # for those that come now, as the three of before were still in the queue
            for agent in rig.setup.agents.values():
                agent.busy = False
                agent.report()
            await rig.until(lambda r: rig.workers() == 0 and not r.instances)

    play(scenario, quick(SMALL))


def test_a_node_that_drains_is_called_back_when_there_is_room_for_it_again() -> None:
    two = quick(replace(SMALL, max_workers=2))

    async def scenario(rig: Rig) -> None:
        async with rig.run():
            rig.want(2, 2)
            names = {i.id for i in (await rig.running(2)).instances}
            rig.configure(quick(replace(SMALL, max_workers=1)))
            report = await rig.until(lambda r: any(i.state == "DRAINING" for i in r.instances))
            (name,) = [i.id for i in report.instances if i.state == "DRAINING"]
            agent = rig.setup.agents[name]
            await rig.until(lambda r: agent.is_draining)
            rig.configure(two)
            await rig.until(lambda r: not agent.is_draining)
            report = await rig.running(2)
            assert {i.id for i in report.instances} == names, "nothing was launched"
            assert rig.workers() == 2

    play(scenario, two)


def test_a_task_that_moves_to_a_node_is_not_counted_twice() -> None:
    """Its new node tells first that it is taken, the old one a moment later that it waits no longer."""

    async def scenario(rig: Rig) -> None:
        async with rig.run():
            (worker,) = (await rig.running(1)).instances
            agent = rig.setup.agents[worker.id]
            other = ResourceRequest(to_units({"CPU": 99}))  # changes all the time, so that it is never quiet
            moves = Demand(ResourceRequest(to_units({"CPU": 2})), 1)
            for number in range(200):
                step = number % 20
                agent.busy = 3 <= step < 6
                agent.report()
                rig.head.demands = [Demand(other, number + 1), *([moves] if step < 5 else [])]
                rig.head.report()
                await asyncio.sleep(0.01)
            assert rig.workers() == 1

    # A process that gets no processor for a moment must not look like demand that is quiet.
    slow = quick(replace(SMALL, min_workers=1), quiet_s=PATIENCE_S, patience_s=0.3, idle_timeout_s=60.0)
    play(scenario, slow)


def test_what_became_of_a_machine_does_not_wait_for_demand_to_be_quiet() -> None:
    kind = replace(SMALL, min_workers=1)

    async def scenario(rig: Rig) -> None:
        rig.setup.may_go_on.clear()
        async with rig.run():
            await rig.until(lambda r: any(i.state == "SETTING_UP" for i in r.instances))
            rig.configure(quick(kind, quiet_s=1e6, patience_s=1e6, tick_s=1e6))
            rig.want(1, 5)
            rig.setup.failure = SetupError("pip install", "exit status 1")
            rig.setup.may_go_on.set()
            await rig.until(lambda r: bool(r.failures))

    play(scenario, quick(kind))


def test_infeasible_demand_is_told_to_the_agents() -> None:
    notes: list[tuple[str, str]] = []

    async def scenario(rig: Rig) -> None:
        async with rig.run():
            rig.want(99, 1)
            report = await rig.until(lambda r: bool(r.waiting))
            assert report.waiting[0].infeasible
            state = rig.store.autoscaling.snapshot()
            notes.extend([(report.waiting[0].demand, report.waiting[0].why)])
            assert state.last_report

    play(scenario, quick(SMALL))
    assert notes == [("{CPU: 99}", "the nearest node type is 'small': CPU 99 wanted, 2 there")]


def test_a_failed_setup_is_reported_with_its_step_and_leaves_no_machine() -> None:
    async def scenario(rig: Rig) -> None:
        rig.setup.failure = SetupError("pip install", "exit status 1")
        async with rig.run():
            report = await rig.until(lambda r: bool(r.failures))
            assert report.failures[0].step == "pip install"
            assert report.failures[0].setup_log.startswith("/logs/setup-")
            await rig.until(lambda r: rig.workers() == 0)

    play(scenario, quick(replace(SMALL, min_workers=1), log_dir="/logs"))


def test_a_dead_node_is_replaced() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.run():
            first = (await rig.running(1)).instances[0].id
            rig.setup.agents[first].leave()
            report = await rig.until(
                lambda r: [i.state for i in r.instances] == ["RUNNING"] and r.instances[0].id != first
            )
            assert first in {failure.instance_id for failure in report.failures}
            assert rig.workers() == 1

    play(scenario, quick(replace(SMALL, min_workers=1)))


def test_another_process_carries_on() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.run():
            before = {i.id for i in (await rig.running(2)).instances}
        calls = len(rig.provider.calls)
        async with rig.run():
            await rig.until(lambda r: len(rig.provider.calls) > calls + 3)
            assert {i.id for i in rig.autoscaler.report().instances} == before
        assert "create" not in rig.provider.calls[calls:]
        assert rig.workers() == 2

    play(scenario, quick(replace(SMALL, min_workers=2)))


def test_a_new_configuration_is_taken_up() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.run():
            await rig.running(1)
            rig.configure(quick(replace(SMALL, min_workers=3)))
            await rig.running(3)
            rig.configure(quick(replace(SMALL, max_workers=1)))
            await rig.until(lambda r: sum(1 for i in r.instances if i.state == "DRAINING") == 2)
            for agent in rig.setup.agents.values():
                agent.busy = False
                agent.report()
            await rig.until(lambda r: rig.workers() <= 1)

    play(scenario, quick(replace(SMALL, min_workers=1)))


class Fewer:
    """The same platform, which is asked by another spec: that names one machine no more."""

    def __init__(self, provider: SimulatedProvider, instance_id: str) -> None:
        self._provider = provider
        self._instance_id = instance_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def list(self) -> list[Machine]:
        return [
            replace(machine, unwanted="the spec names it no more")
            if machine.instance_id == self._instance_id
            else machine
            for machine in self._provider.list()
        ]


def test_of_fewer_machines_only_the_one_goes_that_is_named_no_more() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.run():
            gone, stays = [i.id for i in (await rig.running(2)).instances]
            idle = rig.setup.agents[stays]  # it would be the first of a surplus
            idle.busy = False
            idle.report()
            one = quick(replace(SMALL, min_workers=1, max_workers=1))
            rig.autoscaler.configure(one, cast(Any, Fewer(rig.provider, gone)), rig.setup)
            await rig.until(lambda r: rig.setup.agents[gone].is_draining)
            busy = rig.setup.agents[gone]
            busy.busy = False
            busy.report()
            report = await rig.until(lambda r: rig.workers() == 1 and len(r.instances) == 1)
            (left,) = report.instances
            assert left.id == stays
            assert "DRAINING" not in {step.state for step in left.history}

    play(scenario, quick(replace(SMALL, min_workers=2, max_workers=2)))


def test_a_platform_that_fails_is_a_reported_problem_and_nothing_worse() -> None:
    class Broken(SimulatedProvider):
        broken = True

        def list(self) -> list[Machine]:
            if self.broken:
                raise KeyError("a bug in the provider")
            return super().list()

    async def scenario(rig: Rig) -> None:
        rig.provider = Broken("cluster", faults=Faults())
        rig.provider.add_machine(
            "head", {MachineTags.CLUSTER_ID: "cluster", MachineTags.ROLE: MachineTags.HEAD}
        )
        async with rig.run():
            report = await rig.until(lambda r: bool(r.problems))
            assert "a bug in the provider" in report.problems[0]
            assert rig.workers() == 0, "nothing is launched blindly"
            rig.provider.broken = False
            report = await rig.running(1)
            assert report.problems == ()

    play(scenario, quick(replace(SMALL, min_workers=1)))


def test_a_call_that_never_returns_does_not_stop_the_others() -> None:
    release = threading.Event()

    class Stuck(SimulatedProvider):
        def terminate(self, ids: object) -> dict[str, ProviderError | None]:
            release.wait(PATIENCE_S)
            return {}

    async def scenario(rig: Rig) -> None:
        rig.provider = Stuck("cluster", faults=Faults())
        rig.provider.add_machine(
            "head", {MachineTags.CLUSTER_ID: "cluster", MachineTags.ROLE: MachineTags.HEAD}
        )
        rig.provider.add_machine(
            "small",
            {
                MachineTags.CLUSTER_ID: "cluster",
                MachineTags.INSTANCE_ID: "left",
                MachineTags.NODE_TYPE: "small",
            },
        )
        async with rig.run():
            await rig.until(lambda r: any(i.state == "TERMINATING" for i in r.instances))
            await rig.running(1)
            await rig.until(lambda r: any("did not end" in i.reason for i in r.instances))
        release.set()

    play(
        scenario,
        quick(replace(SMALL, min_workers=1), provider_timeout_s=0.3, adopt_grace_s=0.05, node_grace_s=0.05),
    )


def test_a_type_whose_offers_do_not_come_keeps_only_itself_waiting() -> None:
    release = threading.Event()

    class Silent(SimulatedProvider):
        def offers(self, node_type: NodeType) -> list[Offer]:
            if node_type.name == "big":
                release.wait(PATIENCE_S)
            return super().offers(node_type)

    async def scenario(rig: Rig) -> None:
        rig.provider = Silent("cluster", faults=Faults())
        rig.provider.add_machine(
            "head", {MachineTags.CLUSTER_ID: "cluster", MachineTags.ROLE: MachineTags.HEAD}
        )
        async with rig.run():
            report = await rig.running(1)
            assert {i.node_type for i in report.instances} == {"small"}
            release.set()
            await rig.running(2)

    play(scenario, quick(replace(SMALL, min_workers=1), replace(BIG, min_workers=1), provider_timeout_s=60.0))


def test_a_throttled_platform_is_left_alone_and_then_served() -> None:
    async def scenario(rig: Rig) -> None:
        rig.provider.faults.calls_per_s = 2.0
        rig.provider._recent.extend([rig.provider._clock() - 9.0] * 20)
        async with rig.run():
            report = await rig.until(lambda r: any("every call" in item.what for item in r.resting))
            assert rig.workers() == 0
            calls = len(rig.provider.calls)
            report = await rig.running(1)
            assert len(rig.provider.calls) <= calls + 20
            assert report.problems == ()

    play(scenario, quick(replace(SMALL, min_workers=1)))


def test_the_state_survives_only_as_long_as_it_can_be_read() -> None:
    from autoscaler.memory import KEY, NAMESPACE
    from runtime._wire.messages.control import KvPut

    async def scenario(rig: Rig) -> None:
        ours, theirs = LoopbackChannel.pair(None, None)
        rig.store.attach(theirs)
        await ours.call(KvPut(NAMESPACE, KEY, b"not JSON"))
        state = await ours.call(WatchClusterState())
        assert state.nodes
        async with rig.run():
            await rig.running(1)
        ours.close()

    play(scenario, quick(replace(SMALL, min_workers=1)))
