"""Turns, grants, spillback and refusals of a node's lease queue."""

from __future__ import annotations

import random

from runtime._core.lease_queue import (
    ZERO_PACE_S,
    AskNode,
    AskOwner,
    Effect,
    GrantHere,
    LeaseQueue,
    NodeTable,
    Refuse,
)
from runtime._core.ledger import Ledger
from runtime._core.placement import NodeView, Request
from runtime._core.resources import UNIT
from runtime._core.worker_cap import FIRST_DELAY_S, SchedulingClass

HERE, THERE, JOB = b"here", b"there", b"job1"


class World:
    """A queue with its ledger and cluster, and short words for what tests do."""

    def __init__(self, cpus: float = 2, gpus: float = 0, zero_cap: int = 8) -> None:
        total = {name: round(n * UNIT) for name, n in (("CPU", cpus), ("GPU", gpus)) if n}
        self.ledger = Ledger(total)
        self.nodes = NodeTable(NodeView(HERE, self.ledger.total, self.ledger.available))
        self.queue = LeaseQueue(self.ledger, self.nodes, random.Random(1), zero_cap)
        self.now = 100.0

    def other(self, cpus: float, labels: dict[str, str] | None = None) -> None:
        amount = {"CPU": round(cpus * UNIT)}
        self.nodes.others[THERE] = NodeView(THERE, dict(amount), dict(amount), labels or {})

    def demand(self, owner: str, key: str, count: int, depth: int = 1, **amounts: float) -> None:
        self.ask(owner, key, count, Request({n: round(a * UNIT) for n, a in amounts.items()}), depth=depth)

    def ask(
        self,
        owner: str,
        key: str,
        count: int,
        request: Request,
        group: bytes = b"",
        depth: int = 1,
        locality: dict[bytes, int] | None = None,
    ) -> None:
        shape = repr(request).encode()
        self.queue.demand(
            owner,
            key.encode(),
            count,
            scheduling_class=SchedulingClass(JOB, depth, key.encode()),
            shape=shape,
            request=request,
            job_id=JOB,
            group_id=group,
            locality=locality,
            now=self.now,
        )

    def schedule(self) -> list[Effect]:
        return self.queue.schedule(self.now)

    def granted(self) -> list[tuple[object, bytes]]:
        """Schedules, settles every grant as taken, and returns who got one for what."""
        out = []
        for effect in self.schedule():
            assert isinstance(effect, GrantHere)
            assert self.queue.grant_ended(effect.waiting, True)
            out.append((effect.waiting.owner, effect.waiting.class_key))
        return out


def test_a_demand_that_fits_is_granted() -> None:
    world = World()
    world.demand("a", "f", 1, CPU=1)
    assert world.granted() == [("a", b"f")]
    assert world.ledger.available == {"CPU": UNIT}
    assert len(world.queue) == 0


def test_no_more_is_granted_than_there_is() -> None:
    world = World(cpus=2)
    world.demand("a", "f", 5, CPU=1)
    assert len(world.granted()) == 2
    assert [entry.wanted for entry in world.queue.waiting()] == [3]


def test_a_number_replaces_the_last_one() -> None:
    world = World(cpus=8)
    world.demand("a", "f", 5, CPU=1)
    world.demand("a", "f", 2, CPU=1)
    assert len(world.granted()) == 2


def test_zero_withdraws() -> None:
    world = World()
    world.demand("a", "f", 5, CPU=1)
    world.demand("a", "f", 0, CPU=1)
    assert world.granted() == []
    assert len(world.queue) == 0


def test_owners_take_turns() -> None:
    world = World(cpus=4)
    world.demand("a", "f", 4, CPU=1)
    world.demand("b", "f", 4, CPU=1)
    assert sorted(world.granted()) == [("a", b"f")] * 2 + [("b", b"f")] * 2


def test_whoever_was_served_last_comes_last() -> None:
    world = World(cpus=1)
    world.demand("a", "f", 9, CPU=1)
    world.demand("b", "f", 9, CPU=1)
    order = []
    for _ in range(4):
        effect = world.schedule()[0]
        assert isinstance(effect, GrantHere)
        world.queue.grant_ended(effect.waiting, True)
        order.append(effect.waiting.owner)
        world.ledger.release(effect.allocation)
        world.queue.ended(effect.waiting.scheduling_class, False)
    assert order == ["a", "b", "a", "b"]


def test_a_class_that_does_not_fit_does_not_hold_up_others() -> None:
    world = World(cpus=2)
    world.demand("a", "big", 1, CPU=2)
    world.demand("b", "hold", 1, CPU=1)
    world.ledger.allocate({"CPU": UNIT})
    assert world.granted() == [("b", b"hold")]


def test_a_gone_owner_wants_nothing() -> None:
    world = World()
    world.demand("a", "f", 5, CPU=1)
    world.queue.drop_owner("a")
    assert world.schedule() == []


def test_a_grant_in_flight_of_a_gone_owner_settles_as_unwanted() -> None:
    world = World()
    world.demand("a", "f", 1, CPU=1)
    effect = world.schedule()[0]
    world.queue.drop_owner("a")
    assert isinstance(effect, GrantHere)
    assert not world.queue.grant_ended(effect.waiting, True)


def test_a_withdrawn_demand_settles_as_unwanted() -> None:
    world = World()
    world.demand("a", "f", 1, CPU=1)
    effect = world.schedule()[0]
    world.demand("a", "f", 0, CPU=1)
    assert isinstance(effect, GrantHere)
    assert not world.queue.grant_ended(effect.waiting, True)
    assert len(world.queue) == 0


def test_a_grant_that_failed_is_wanted_again() -> None:
    world = World()
    world.demand("a", "f", 1, CPU=1)
    effect = world.schedule()[0]
    assert isinstance(effect, GrantHere)
    world.ledger.release(effect.allocation)
    world.queue.grant_ended(effect.waiting, False)
    assert len(world.schedule()) == 1


def test_more_than_any_node_has_is_infeasible() -> None:
    world = World(cpus=2)
    world.demand("a", "f", 1, CPU=3)
    assert world.schedule() == []
    assert [entry.infeasible for entry in world.queue.waiting()] == [True]


def test_an_infeasible_demand_becomes_feasible_with_a_new_node() -> None:
    world = World(cpus=2)
    world.demand("a", "f", 1, CPU=3)
    world.schedule()
    world.other(cpus=4)
    effects = world.schedule()
    assert [type(effect) for effect in effects] == [AskNode]
    assert not world.queue._entries[("a", b"f")].infeasible


def test_a_full_node_asks_another() -> None:
    world = World(cpus=1)
    world.other(cpus=1)
    world.demand("a", "f", 3, CPU=1)
    effects = world.schedule()
    assert sorted(type(effect).__name__ for effect in effects) == ["AskNode", "GrantHere"]
    assert world.nodes.others[THERE].available["CPU"] == 0


def test_a_refusal_counts_for_a_while() -> None:
    world = World(cpus=0.5)
    world.other(cpus=1)
    world.demand("a", "f", 1, CPU=1)
    effect = world.schedule()[0]
    assert isinstance(effect, AskNode)
    world.queue.grant_ended(effect.waiting, False)
    world.nodes.refused(THERE, effect.waiting.request.resources, world.now + 1)
    assert world.schedule() == []
    assert not next(iter(world.queue.waiting())).infeasible
    world.now += 2
    assert len(world.schedule()) == 1


def test_a_demand_without_resources_is_bounded() -> None:
    world = World(zero_cap=2)
    world.demand("a", "f", 5)
    assert len(world.granted()) == 2
    world.queue.zero_leases -= 1
    assert len(world.granted()) == 1


def test_demands_without_resources_do_not_wait_for_each_other_for_ever() -> None:
    world = World(zero_cap=2)
    world.demand("a", "f", 5)
    assert len(world.granted()) == 2
    assert world.queue.look_again_s == world.now + ZERO_PACE_S
    world.now += ZERO_PACE_S
    assert len(world.granted()) == 1
    assert world.granted() == []
    world.now += ZERO_PACE_S
    assert len(world.granted()) == 1
    world.demand("a", "f", 0)
    assert world.granted() == []
    assert world.queue.look_again_s is None


def test_hard_affinity_to_an_unknown_node_is_refused() -> None:
    world = World()
    world.ask("a", "f", 1, Request({"CPU": UNIT}, "NODE_AFFINITY", b"nowhere"))
    effects = world.schedule()
    assert [type(effect) for effect in effects] == [Refuse]
    assert len(world.queue) == 0


def test_soft_affinity_to_an_unknown_node_goes_elsewhere() -> None:
    world = World()
    world.ask("a", "f", 1, Request({"CPU": UNIT}, "NODE_AFFINITY", b"nowhere", soft=True))
    assert len(world.granted()) == 1


def test_spread_alternates() -> None:
    world = World(cpus=4)
    world.other(cpus=4)
    world.ask("a", "f", 4, Request({"CPU": UNIT}, "SPREAD"))
    kinds = [type(effect).__name__ for effect in world.schedule()]
    assert kinds.count("AskNode") == kinds.count("GrantHere") == 2


def test_other_work_takes_no_turn_of_spread_work() -> None:
    world = World(cpus=20)
    world.other(cpus=20)
    kinds = []
    for number in range(4):
        world.ask("a", f"spread {number}", 1, Request({"CPU": UNIT}, "SPREAD"))
        kinds += [type(effect) for effect in world.schedule()]
        world.ask("a", f"packed {number}", 1, Request({"CPU": UNIT}))
        assert [type(effect) for effect in world.schedule()] == [GrantHere]
    assert kinds.count(AskNode) == kinds.count(GrantHere) == 2


def test_a_label_selector_is_obeyed() -> None:
    world = World(cpus=4)
    world.other(cpus=4, labels={"zone": "z1"})
    world.ask("a", "f", 1, Request({"CPU": UNIT}, labels={"zone": "z1"}))
    assert [type(effect) for effect in world.schedule()] == [AskNode]


def test_a_draining_node_grants_nothing() -> None:
    world = World()
    world.nodes.local.schedulable = False
    world.demand("a", "f", 1, CPU=1)
    assert world.schedule() == []


def test_halves_of_two_gpus_do_not_make_one() -> None:
    world = World(gpus=2)
    for _ in range(2):
        world.ledger.allocate({"GPU": 6000})
    world.demand("a", "f", 1, GPU=0.8)
    assert world.schedule() == []
    assert not next(iter(world.queue.waiting())).infeasible


def test_owners_hear_why_they_wait_but_not_at_once_and_not_often() -> None:
    world = World(cpus=1)
    world.demand("a", "f", 1, CPU=3)
    world.schedule()
    assert world.queue.due_notes(world.now) == []
    assert len(world.queue.due_notes(world.now + 3)) == 1
    assert world.queue.due_notes(world.now + 5) == []
    assert len(world.queue.due_notes(world.now + 14)) == 1


def test_many_random_demands_leave_the_ledger_as_it_was() -> None:
    rng = random.Random(7)
    world = World(cpus=4)
    held = []
    for _ in range(500):
        action = rng.random()
        if action < 0.5:
            world.demand(rng.choice("abc"), rng.choice("fg"), rng.randrange(4), CPU=rng.choice([0.5, 1, 2]))
        elif held and action < 0.9:
            world.ledger.release(held.pop(rng.randrange(len(held))))
        else:
            world.queue.drop_owner(rng.choice("abc"))
        for effect in world.schedule():
            assert isinstance(effect, GrantHere)
            if world.queue.grant_ended(effect.waiting, True):
                held.append(effect.allocation)
            else:
                world.ledger.release(effect.allocation)
        assert world.ledger.available.get("CPU", 0) >= 0
    for allocation in held:
        world.ledger.release(allocation)
    assert world.ledger.available == world.ledger.total


class TestTasksThatWait:
    """Of tasks that lend their CPU while they wait for others."""

    def lend(self, world: World) -> GrantHere:
        """Grants what waits first, whose task then waits."""
        effect = world.schedule()[0]
        assert isinstance(effect, GrantHere)
        assert world.queue.grant_ended(effect.waiting, True)
        world.ledger.lend(effect.allocation)
        return effect

    def test_their_equals_are_held_back(self) -> None:
        world = World(cpus=1)
        world.demand("a", "f", 9, CPU=1)
        self.lend(world)
        assert world.schedule() == []
        assert next(iter(world.queue.waiting())).capped
        assert world.queue.look_again_s == world.now + FIRST_DELAY_S

    def test_their_children_are_not(self) -> None:
        world = World(cpus=1)
        world.demand("driver", "f", 9, CPU=1)
        self.lend(world)
        assert world.schedule() == []
        world.demand("worker", "f", 1, depth=2, CPU=1)
        assert world.granted() == [("worker", b"f")]

    def test_others_of_the_same_shape_are_not(self) -> None:
        world = World(cpus=1)
        world.demand("driver", "f", 9, CPU=1)
        self.lend(world)
        world.demand("driver", "g", 1, CPU=1)
        assert world.granted() == [("driver", b"g")]

    def test_one_more_goes_after_a_growing_delay(self) -> None:
        world = World(cpus=1)
        world.demand("a", "f", 9, CPU=1)
        began = world.now
        self.lend(world)
        assert world.schedule() == []
        for after_s in (1, 3, 7, 15, 25, 35):
            world.now = began + after_s - 0.01
            assert world.schedule() == []
            world.now = began + after_s
            self.lend(world)
            assert world.schedule() == []

    def test_time_without_room_does_not_count(self) -> None:
        world = World(cpus=1)
        world.demand("a", "f", 9, CPU=1)
        waits = self.lend(world)
        assert world.schedule() == []
        world.now += 0.5
        world.ledger.unlend(waits.allocation)
        assert world.schedule() == []
        assert world.queue.look_again_s is None
        world.now += 100
        world.ledger.lend(waits.allocation)
        assert world.schedule() == []
        assert world.queue.look_again_s == world.now + FIRST_DELAY_S - 0.5

    def test_what_is_held_back_goes_to_another_node(self) -> None:
        world = World(cpus=1)
        world.other(cpus=1)
        world.demand("a", "f", 9, CPU=1)
        effects = world.schedule()
        assert [type(effect) for effect in effects] == [GrantHere, AskNode]
        assert isinstance(effects[0], GrantHere)
        world.ledger.lend(effects[0].allocation)
        world.nodes.others[THERE].available["CPU"] = UNIT
        assert world.schedule() == [AskNode(effects[0].waiting, THERE)]
        assert world.schedule() == []

    def test_unless_it_is_tied_to_this_one(self) -> None:
        world = World(cpus=1)
        world.other(cpus=1)
        world.ask("a", "f", 2, Request({"CPU": UNIT}, "NODE_AFFINITY", HERE, soft=True))
        self.lend(world)
        assert world.schedule() == []

    def test_a_node_that_holds_one_class_back_is_asked_for_others(self) -> None:
        world = World(cpus=0.5)
        world.other(cpus=2)
        world.demand("a", "f", 1, CPU=1)
        effect = world.schedule()[0]
        assert isinstance(effect, AskNode)
        entry = effect.waiting
        world.queue.grant_ended(entry, False)
        world.nodes.refused(THERE, entry.request.resources, world.now + 1, entry.scheduling_class)
        world.demand("a", "g", 1, CPU=1)
        asked = world.schedule()
        assert [one.waiting.class_key for one in asked] == [b"g"]
        world.now += 2
        assert [one.waiting.class_key for one in world.schedule()] == [b"f"]


# ---------------------------------------------------------------- where the arguments are

CPU = Request({"CPU": UNIT})


def with_full_holder() -> World:
    """Room here, and none on the other node."""
    world = World(cpus=1)
    world.other(1)
    world.nodes.deduct(THERE, CPU.resources)
    return world


def test_an_owner_is_asked_to_make_room_where_the_arguments_are() -> None:
    world = with_full_holder()
    world.ask("a", "f", 1, CPU, locality={THERE: 1000})
    [effect] = world.schedule()
    assert isinstance(effect, AskOwner)
    assert effect.node_id == THERE
    assert world.schedule() == []  # before the answer
    world.nodes.restore(THERE, CPU.resources)
    world.queue.owner_answered(effect.waiting)
    [effect] = world.schedule()
    assert isinstance(effect, AskNode)
    assert effect.node_id == THERE


def test_what_finds_no_room_at_its_arguments_goes_elsewhere() -> None:
    world = with_full_holder()
    world.ask("a", "f", 1, CPU, locality={THERE: 1000, HERE: 10})
    [effect] = world.schedule()
    assert isinstance(effect, AskOwner)
    world.queue.owner_answered(effect.waiting)
    assert world.granted() == [("a", b"f")]


def test_an_owner_is_asked_for_room_on_this_node_too() -> None:
    world = World(cpus=1)
    world.other(1)
    world.demand("a", "g", 1, CPU=1)
    world.granted()
    world.ask("a", "f", 1, CPU, locality={HERE: 1000})
    [effect] = world.schedule()
    assert isinstance(effect, AskOwner)
    assert effect.node_id == HERE


def test_no_owner_is_asked_for_nothing() -> None:
    world = with_full_holder()
    world.ask("a", "equal", 1, CPU, locality={THERE: 1000, HERE: 1000})
    [effect] = world.schedule()
    assert isinstance(effect, GrantHere)
    world = with_full_holder()
    world.ask("a", "too large", 1, Request({"CPU": 2 * UNIT}), locality={THERE: 1000})
    world.ask("a", "unknown", 1, CPU, locality={b"gone": 1000})
    [effect] = world.schedule()
    assert isinstance(effect, GrantHere)
    world = with_full_holder()
    world.ask("a", "spread", 1, Request({"CPU": UNIT}, kind="SPREAD"), locality={THERE: 1000})
    [effect] = world.schedule()
    assert isinstance(effect, GrantHere)


def test_nothing_is_kept_of_owners_that_were_asked_and_went_away() -> None:
    world = with_full_holder()
    world.ask("stays", "f", 1, CPU, locality={THERE: 1000})
    asked = []
    for number in range(100):
        world.ask(f"goes {number}", f"f{number % 7}", 2, CPU, locality={THERE: 1000})
        asked += world.schedule()
        if number % 2:  # it answers first
            world.queue.owner_answered(asked[-1].waiting)
        world.queue.drop_owner(f"goes {number}")
        assert len(world.queue) == 1
    for effect in asked:
        assert isinstance(effect, AskOwner)
        world.queue.owner_answered(effect.waiting)
    world.queue.drop_owner("stays")
    assert len(world.queue) == 0
    assert world.schedule() == []


def test_an_owner_whose_demand_ends_before_its_answer_is_forgotten() -> None:
    world = with_full_holder()
    for _ in range(3):
        world.ask("a", "f", 1, CPU, locality={THERE: 1000})
        [effect] = world.schedule()
        assert isinstance(effect, AskOwner)
        world.ask("a", "f", 0, CPU)
        assert len(world.queue) == 0
        world.queue.owner_answered(effect.waiting)
        assert world.schedule() == []
