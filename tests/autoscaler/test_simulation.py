from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from autoscaler.provider import (
    SPOT,
    Capacity,
    LaunchRequest,
    MachineState,
    MachineTags,
    NodeType,
    Offer,
    ShellTimedOut,
    Throttled,
    Transient,
)
from autoscaler.simulation import Faults, SimulatedProvider

KIND = NodeType("small", {"CPU": 1.0})


class World:
    """A provider on a clock that a test moves."""

    def __init__(self, faults: Faults, **more: object) -> None:
        self.now = 100.0
        self.slept = 0.0
        self.on_sleep: Callable[[], object] = lambda: None
        self.provider = SimulatedProvider(
            "c",
            faults=faults,
            clock=lambda: self.now,
            sleep=self.sleep,
            rng=random.Random(1),
            **more,  # type: ignore[arg-type]
        )

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        action, self.on_sleep = self.on_sleep, lambda: None
        action()

    def create(self, *names: str, token: str = "t", zone: str = "sim") -> tuple[int, int]:
        request = LaunchRequest(token, KIND, len(names), Offer(zone), {MachineTags.CLUSTER_ID: "c"}, names)
        result = self.provider.create(request)
        return len(result.machines), len(result.errors)

    def states(self) -> list[str]:
        return [machine.state.name for machine in self.provider.list()]


def test_booting_and_stopping_take_time() -> None:
    world = World(Faults(boot_s=10.0, stop_s=5.0))
    world.create("a")
    assert world.states() == ["PENDING"]
    world.now += 10
    assert world.states() == ["RUNNING"]
    world.provider.terminate(["sim-1"])
    assert world.states() == ["STOPPING"]
    world.now += 5
    assert world.states() == []


def test_calls_take_time() -> None:
    world = World(Faults(call_s=2.0))
    world.create("a")
    world.provider.list()
    assert world.slept == 4.0
    assert world.provider.calls == ["create", "list"]


def test_listings_lag() -> None:
    world = World(Faults(lag_s=30.0))
    world.create("a")
    seen = []
    for _ in range(40):
        world.now += 1
        seen.append(len(world.provider.list()))
    assert seen[0] == 0
    assert 1 in seen[:30]
    assert all(seen[30:])
    assert world.provider.exists("sim-1")


def test_stock_runs_out_and_comes_back() -> None:
    world = World(Faults(stock={("small", "sim", "on-demand"): 1}))
    assert world.create("a", "b") == (1, 1)
    assert world.create("c", token="u", zone="other") == (1, 0)
    world.provider.vanish("sim-1")
    assert world.create("d", token="v") == (1, 0)


def test_refusals_are_capacity_errors() -> None:
    world = World(Faults(partial=1.0))
    request = LaunchRequest("t", KIND, 1, Offer("sim"), {}, ("a",))
    (error,) = world.provider.create(request).errors
    assert isinstance(error, Capacity)


def test_a_lost_answer_leaves_machines() -> None:
    world = World(Faults(lost_reply=1.0))
    with pytest.raises(Transient):
        world.create("a")
    assert len(world.provider.machines()) == 1
    world.provider.faults.lost_reply = 0.0
    assert world.create("a") == (1, 0)
    assert len(world.provider.machines()) == 1


def test_a_transient_fault_does_nothing() -> None:
    world = World(Faults(transient=1.0))
    with pytest.raises(Transient):
        world.create("a")
    assert world.provider.machines() == ()


def test_a_vanished_machine_has_no_shell() -> None:
    world = World(Faults())
    world.create("a")
    (machine,) = world.provider.machines()
    assert machine.state is MachineState.RUNNING
    shell = world.provider.shell(machine)
    assert shell.run("true").exit_status == 0
    world.provider.vanish(machine.id)
    with pytest.raises(ShellTimedOut):
        shell.run("true")


def test_offers_follow_zones_and_prices() -> None:
    offers = {"small": [Offer("a", price=1.0), Offer("b", SPOT, 0.2)]}
    provider = SimulatedProvider("c", offers=offers)
    assert provider.capabilities.prices
    assert len(provider.offers(KIND)) == 2
    assert provider.offers(NodeType("small", zones=("b",))) == [Offer("b", SPOT, 0.2)]
    assert provider.offers(NodeType("small", max_price=0.5)) == [Offer("b", SPOT, 0.2)]
    assert provider.check([NodeType("small", zones=("x",))])[0].fatal


def test_a_quota_counts_all_machines() -> None:
    world = World(Faults(quota=2))
    assert world.create("a", "b", "c") == (2, 1)
    assert world.create("d", token="u", zone="other") == (0, 1)


def test_a_machine_may_be_made_twice_and_the_first_is_told() -> None:
    world = World(Faults(twice=1.0))
    assert world.create("a") == (1, 0)
    assert [m.instance_id for m in world.provider.machines()] == ["a", "a"]
    world.provider.faults.twice = 0.0
    assert world.create("a") == (1, 0)
    assert len(world.provider.machines()) == 2


def test_a_machine_may_never_boot() -> None:
    world = World(Faults(never_boots=1.0))
    world.create("a")
    world.now += 1e6
    assert world.states() == ["PENDING"]


def test_too_many_calls_are_throttled_until_there_were_fewer() -> None:
    world = World(Faults(calls_per_s=0.3))
    for _ in range(3):
        world.provider.list()
    world.now += 4.0
    with pytest.raises(Throttled) as refused:
        world.create("a")
    assert refused.value.retry_after_s == 6.0
    assert world.provider.machines() == ()
    world.now += 6.0
    assert world.create("a") == (1, 0)


def test_a_slow_listing_shows_the_picture_of_its_beginning() -> None:
    world = World(Faults(list_s=5.0))

    def meanwhile() -> None:
        world.now += 1.0
        world.create("a")

    world.on_sleep = meanwhile
    assert world.provider.list() == []
    assert world.slept == 5.0


def test_who_vanishes_after_its_end_is_not_back() -> None:
    world = World(Faults())
    world.create("a")
    world.provider.terminate(["sim-1"])
    world.now += 50.0
    world.provider.vanish("sim-1")
    world.now -= 10.0
    assert not world.provider.exists("sim-1")
