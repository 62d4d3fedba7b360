"""Random clusters: actors and placement groups come and go while agents delay, refuse, lose their
connection and die, and the control store itself is killed and restarted. A failure prints the seed; run it
alone with `-k`.
"""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from runtime._control.server import ControlStore
from runtime._control.storage.memory import MemoryStorage
from runtime._control.supervisor import Supervisor
from runtime._core.placement import rewrite_for_group
from runtime._transport.channel import CallError
from runtime._wire.messages.base import SchedulingStrategy
from runtime._wire.messages.control import KillActor, RegisterActor
from runtime._wire.messages.groups import CreatePlacementGroup, RemovePlacementGroup
from tests.sim.control import specs
from tests.sim.control.agent import Agent, Behaviour, cpus
from tests.sim.control.invariants import Watcher, check_nothing_starves, check_quiet
from tests.sim.world import SimLink, VirtualLoop, run_virtual

STEPS = 60
QUIET_S = 60.0


class Simulation:
    """One cluster, one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.storage = MemoryStorage()
        self.agents: list[Agent] = []
        self.watcher = Watcher()
        self.store = self._new_store()
        self.user = SimLink()
        self.actors = 0
        self.groups: list[CreatePlacementGroup] = []
        self.is_calm = False
        self.tasks = Supervisor()
        self.joining: list[Agent] = []

    def _new_store(self) -> ControlStore:
        loop = asyncio.get_running_loop()
        return ControlStore(self.storage, "/sim", wall_time=loop.time, rng=random.Random(self.rng.random()))

    async def run(self) -> None:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        await self._start_store()
        for _ in range(self.rng.randint(1, 4)):
            await self.add_node()
        loop.after_turn = lambda: self.watcher.check(self.store, self.agents)
        steps = [
            *[self.add_actor] * 8,
            *[self.add_group] * 4,
            *[self.kill_actor] * 3,
            *[self.remove_group] * 2,
            *[self.end_process] * 3,
            self.add_node,
            self.crash_node,
            *[self.cut_node] * 2,
            self.restart_store,
        ]
        for _ in range(STEPS):
            await self.rng.choice(steps)()
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.02, 0.3, 2.0)))
        self.is_calm = True
        await asyncio.sleep(QUIET_S)
        loop.after_turn = None
        check_quiet(self.store, self.agents)
        check_nothing_starves(self.store, self.agents)
        for agent in self.agents:
            agent.crash()
        await self.store.stop()
        await self.tasks.close()

    # ---------------------------------------------------------------- what happens

    async def add_actor(self) -> None:
        self.actors += 1
        number, rng = self.actors, self.rng
        units, pg_id = cpus(rng.choice((0, 0.5, 1, 1, 2, 16))), b""
        if self.groups and rng.random() < 0.3:
            request = rng.choice(self.groups)
            index = rng.randrange(-1, len(request.bundles))
            units, pg_id = rewrite_for_group(cpus(0.5), request.pg_id.hex(), index), request.pg_id
        units = {name: amount for name, amount in units.items() if amount}
        strategy = SchedulingStrategy(rng.choice(("DEFAULT", "DEFAULT", "SPREAD")))
        if rng.random() < 0.1 and self.agents:
            strategy = SchedulingStrategy(
                "NODE_AFFINITY", rng.choice(self.agents).node_id, rng.random() < 0.5
            )
        spec = specs.actor(
            number,
            units=units,
            held={} if rng.random() < 0.3 else None,
            name=rng.choice(("", "", "a", "b")),
            max_restarts=rng.choice((0, 1, 3, -1)),
            detached=rng.random() < 0.5,
            strategy=strategy,
            pg_id=pg_id,
        )
        await self._ask(RegisterActor(spec, get_if_exists=rng.random() < 0.5))

    async def kill_actor(self) -> None:
        number = self.rng.randint(1, max(1, self.actors))
        await self._ask(
            KillActor(specs.actor_id(number), self.rng.random() < 0.5, graceful=self.rng.random() < 0.3)
        )

    async def end_process(self) -> None:
        agents = [agent for agent in self.agents if agent.actors]
        if agents:
            agent = self.rng.choice(agents)
            agent.end_actor(self.rng.choice(sorted(agent.actors)), "killed by signal 9", False)

    async def add_group(self) -> None:
        rng = self.rng
        bundles = [{"CPU": rng.choice((0.5, 1, 2, 8))} for _ in range(rng.randint(1, 4))]
        strategy = rng.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))
        request = specs.group(len(self.groups) + 1, bundles, strategy, detached=rng.random() < 0.5)
        self.groups.append(request)
        await self._ask(request)

    async def remove_group(self) -> None:
        if self.groups:
            await self._ask(RemovePlacementGroup(self.rng.choice(self.groups).pg_id))

    async def add_node(self) -> None:
        rng = self.rng
        agent = Agent(
            specs.node_id(len(self.agents)),
            cpus(rng.choice((1, 2, 4, 8))),
            rng,
            Behaviour(
                start_s=lambda: rng.choice((0.0, 0.01, 0.5, 4.0)),
                refuses=lambda: not self.is_calm and rng.random() < 0.2,
                constructor_raises=lambda _: rng.random() < 0.1,
                dies_in_constructor=lambda _: rng.random() < 0.1,
            ),
            latency_s=rng.choice((0.0, 0.001, 0.05)),
        )
        self.agents.append(agent)
        await self._join(agent)

    async def crash_node(self) -> None:
        living = [agent for agent in self.agents if not agent.is_crashed]
        if len(living) > 1:
            self.rng.choice(living).crash()

    async def cut_node(self) -> None:
        living = [agent for agent in self.agents if not agent.is_crashed and agent.channel is not None]
        if living:
            agent = self.rng.choice(living)
            agent.cut()
            asyncio.get_running_loop().call_later(self.rng.choice((0.01, 1.0, 5.0)), self._rejoin, agent)

    async def restart_store(self) -> None:
        old, self.store = self.store, self._new_store()
        await old.stop()
        await self._start_store()
        for agent in self.agents:
            agent.cut()
            asyncio.get_running_loop().call_later(self.rng.choice((0.01, 1.0, 4.0)), self._rejoin, agent)

    # ---------------------------------------------------------------- plumbing

    async def _start_store(self) -> None:
        await self.store.start()
        self.user, theirs = SimLink.delayed(None, None, self.rng, 0.0)
        self.store.attach(theirs)

    async def _ask(self, request: object) -> None:
        try:
            await self.user.call(request)  # type: ignore[arg-type]
        except CallError as error:
            if error.kind != "exists":
                raise

    def _rejoin(self, agent: Agent) -> None:
        if not agent.is_crashed and agent.channel is None:
            self.tasks.spawn(self._join(agent), "join")

    async def _join(self, agent: Agent) -> None:
        if agent in self.joining:
            return  # a real agent has one connection at a time
        self.joining.append(agent)
        try:
            await agent.join(self.store)
        except CallError as error:
            if error.kind == "unavailable":
                agent.cut()
                asyncio.get_running_loop().call_later(0.1, self._rejoin, agent)
            elif error.kind != "invalid" or not agent.is_stopped:  # a dead node is told to stop
                raise
        finally:
            self.joining.remove(agent)


@pytest.mark.parametrize("seed", range(100))
def test_a_random_cluster_stays_sound(seed: int) -> None:
    async def main() -> None:
        await Simulation(seed).run()

    try:
        run_virtual(main())
    except BaseException:
        print(f"seed {seed}")
        raise


def test_the_same_seed_gives_the_same_run() -> None:
    def trace(seed: int) -> list[tuple[bytes, str, int]]:
        async def main() -> list[tuple[bytes, str, int]]:
            from runtime._wire.messages.control import ListActors

            simulation = Simulation(seed)
            await simulation.run()
            infos = simulation.store.actors.list_actors(None, ListActors()).actors  # type: ignore[arg-type]
            return [(info.actor_id, info.state, info.version) for info in infos]

        return run_virtual(main())

    assert trace(7) == trace(7)
