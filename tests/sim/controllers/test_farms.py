"""The example controller with every policy, over clusters of chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime._controllers.controller import Event
from runtime._controllers.loop import Loop
from runtime._controllers.members import GangSpec, GroupSpec, MemberState
from runtime._controllers.policies import AllOrNone, Elastic, OneByOne, Policy, Reused
from tests.sim.controllers import example
from tests.sim.controllers.world import Chances, SimEngine
from tests.sim.events import Events, Violation

INPUTS = range(30)
MOST = 4
POLICIES: dict[str, Callable[[], Policy]] = {
    "all or none": lambda: AllOrNone(MOST, failures=-1),
    "one by one": lambda: OneByOne(MOST),
    "elastic": lambda: Elastic(1, MOST, idle_s=2),
    "reused": lambda: Reused(MOST, kept=1),
}
LIVE = {MemberState.STARTING, MemberState.READY, MemberState.BUSY}


class Checked:
    """A farm whose group is looked at after every step."""

    def __init__(self, farm: Any, world: Events, engine: SimEngine) -> None:
        self.farm = farm
        self._world = world
        self._engine = engine
        self.reports = 0

    def step(self, event: Event, now: float) -> Any:
        effects = self.farm.step(event, now)
        group = self.farm.group
        live = [member for member in group.members.values() if member.state in LIVE]
        if len(live) > MOST:
            self._world.fail(f"{len(live)} members")
        for member in group.members.values():
            if len(member.calls) > group.spec.most_calls:
                self._world.fail(f"{member.key} has {len(member.calls)} calls")
            if (member.state is MemberState.BUSY) > bool(member.calls):
                self._world.fail(f"{member.key} is busy without a call")
        return effects

    def waiting_for(self) -> Any:
        waits = self.farm.waiting_for()
        if not waits and self._world.at_rest:
            self._world.fail("nothing will happen, and the farm does not say what it waits for")
        return waits


def run(
    seed: int, policy: Policy, most_calls: int = 1, gang: GangSpec | None = None
) -> tuple[Any, SimEngine]:
    world = Events(seed)
    chances = Chances(call_fails=0.05, actor_dies=0.4, actor_restarts=0.3)
    engine = SimEngine(world, chances)
    spec = GroupSpec("farm", "class", most_calls=most_calls, gang=gang)
    farm = example.load().Farm(spec, policy, "work", INPUTS, tries=50)
    loop = Loop(Checked(farm, world, engine), engine)
    if seed % 2:
        inputs = example.load().Input
        world.at(1.0, lambda: loop.request(inputs.PAUSE))
        world.at(20.0, lambda: loop.request(inputs.RESUME))
    try:
        return loop.run(), engine
    except Exception as error:
        raise Violation(f"seed {seed}: {error}\n{world.story()}\nseed {seed}: {error}") from error


@pytest.mark.parametrize("name", POLICIES)
def test_every_input_gets_its_result_though_actors_die(name: str) -> None:
    for seed in range(60):
        results, engine = run(seed, POLICIES[name](), most_calls=1 + seed % 3)
        assert results == list(INPUTS)
        assert engine.closed


def test_gangs_start_again_as_a_whole() -> None:
    for seed in range(60):
        results, _ = run(seed, AllOrNone(MOST, failures=-1), 1 + seed % 3, GangSpec({"CPU": 1}))
        assert results == list(INPUTS)


def test_a_seed_is_a_run() -> None:
    runs = [run(11, Elastic(0, MOST, idle_s=1))[1] for _ in range(2)]
    assert runs[0].world.story() == runs[1].world.story()
    assert runs[0].effects == runs[1].effects
