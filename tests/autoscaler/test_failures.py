"""What goes wrong with platforms and machines, and what the reconciler makes of it."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from autoscaler.config import AutoscalerConfig, Budgets
from autoscaler.effects import CallFailed, Create, Created, Outcome, SetUp, SetUpEnded, Terminate, Terminated
from autoscaler.flapping import YOUNG_S
from autoscaler.instances import InstanceState
from autoscaler.memory import Memory
from autoscaler.provider import (
    SPOT,
    Capacity,
    LaunchResult,
    Machine,
    MachineState,
    Offer,
    Quota,
    SetupError,
    Throttled,
    Transient,
)
from autoscaler.reconciler import BLIND_CALLS, STUCK_S
from runtime._wire.messages.base import NodeInfo
from tests.autoscaler.build import NOW, SMALL, config, machine, node
from tests.autoscaler.rig import Rig, one_create

S = InstanceState
TWO_ZONES = (Offer("a", price=1.0), Offer("b", price=2.0))


def up(rig: Rig, create: Create) -> list[str]:
    """The machines of a create come, are set up and join; their names."""
    made = rig.machines_for(create)
    rig.machines = [*(rig.machines or []), *made]
    rig.tick(Created(create.request.token, LaunchResult(made)))
    names = list(create.request.instance_ids)
    rig.nodes += [node(name) for name in names]
    rig.tick(*(SetUpEnded(name) for name in names))
    return names


def die(rig: Rig, name: str) -> Create | None:
    """The node dies and its machine is gone; what is launched in the same tick."""
    rig.nodes = [n for n in rig.nodes if n.instance_id != name] + [node(name, state="DEAD")]
    effects = rig.tick()
    rig.machines = [m for m in rig.machines or [] if m.instance_id != name]
    return next((e for e in effects if isinstance(e, Create)), None)


# ---------------------------------------------------------------- offers


def test_a_batch_with_partial_success_gets_the_rest_from_the_next_offer_in_the_same_tick() -> None:
    rig = Rig(config(SMALL))
    rig.offers = {"small": TWO_ZONES}
    rig.want(2, 4)
    first = one_create(rig.tick())
    made = rig.machines_for(first)[:3]
    rig.machines = list(made)
    effects = rig.tick(Created(first.request.token, LaunchResult(made, (Quota("3 is all you get"),))))
    (second,) = (e for e in effects if isinstance(e, Create))
    assert (second.request.count, second.request.offer.zone) == (1, "b")


def test_wishes_for_a_refused_offer_are_planned_anew_in_the_same_tick() -> None:
    rig = Rig(config(SMALL, upscaling_speed=100.0, budgets=Budgets(max_creating=1)), max_per_create=2)
    rig.offers = {"small": TWO_ZONES}
    rig.want(2, 5)
    first = one_create(rig.tick())
    assert sorted(rig.states().values()) == ["QUEUED"] * 3 + ["REQUESTED"] * 2
    second = one_create(rig.tick(Created(first.request.token, error=Capacity("none"))))
    assert second.request.offer.zone == "b"
    waiting = [i for i in rig.reconciler.table if i.state in (S.QUEUED, S.REQUESTED)]
    assert {i.offer.zone for i in waiting} == {"b"}
    assert len(waiting) == 5


def test_wishes_end_when_most_setups_fail() -> None:
    rig = Rig(
        config(replace(SMALL, min_workers=10), budgets=Budgets(max_creating=1, max_setting_up=4)),
        max_per_create=4,
    )
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    effects = rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    failed = [SetUpEnded(e.instance_id, SetupError("pip", "x")) for e in effects if isinstance(e, SetUp)]
    effects = rig.tick(*failed)
    assert not [e for e in effects if isinstance(e, Create)]
    assert "QUEUED" not in rig.states().values()


def test_pauses_differ_from_one_cluster_to_the_next() -> None:
    until = set()
    for seed in range(5):
        rig = Rig(config(SMALL), rng=random.Random(seed))
        rig.want(2)
        create = one_create(rig.tick())
        rig.tick(Created(create.request.token, error=Capacity("none")))
        until.add(rig.reconciler.report(rig.now).resting[0].until_s)
    assert len(until) == 5
    assert min(until) >= NOW + 2.0 + 15.0


def test_nothing_is_launched_of_a_type_whose_offers_are_not_known() -> None:
    rig = Rig(config(SMALL))
    rig.closed = {"small": "the platform is asked what it offers"}
    rig.want(2)
    assert rig.tick() == []
    assert "is asked what it offers" in rig.reconciler.report(rig.now).waiting[0].why
    rig.closed = {}
    assert one_create(rig.tick())


# ---------------------------------------------------------------- throttling


@pytest.mark.parametrize("call", ["create", "terminate", "list"])
def test_one_throttled_call_slows_all(call: str) -> None:
    rig = Rig(config(SMALL))
    slow = Throttled("too many calls", 20.0)
    outcomes: dict[str, Outcome] = {
        "create": Created("other", error=slow),
        "terminate": Terminated({"m-x": slow}),
        "list": CallFailed(slow),
    }
    rig.want(2)
    rig.machines = [machine("orphan", state=MachineState.STOPPED)]
    assert rig.tick(outcomes[call]) == []
    assert rig.tick(after_s=15.0) == []
    assert rig.states()["orphan"] == "TERMINATING"
    assert [r.what for r in rig.reconciler.report(rig.now).resting] == ["every call to the platform"]
    assert rig.reconciler.throttled_until_s == NOW + 1.0 + 20.0
    assert rig.reconciler.next_s(rig.now) is not None
    assert [type(e) for e in rig.tick(after_s=5.0)] == [Terminate, Create]


def test_a_throttled_create_is_asked_again_after_the_pause_with_the_same_token() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    first = one_create(rig.tick())
    assert rig.tick(Created(first.request.token, error=Throttled("slow down", 30.0))) == []
    assert rig.tick(after_s=29.0) == []
    assert one_create(rig.tick(after_s=1.0)) == first


# ---------------------------------------------------------------- old facts


def test_old_facts_launch_nothing() -> None:
    settings = config(SMALL)
    rig = Rig(settings)
    rig.tick()
    rig.listed_s = rig.now
    rig.want(2)
    rig.tick(after_s=BLIND_CALLS * settings.provider_timeout_s + 1.0)
    assert rig.states() == {}
    assert "were listed 181 s ago" in rig.reconciler.report(rig.now).problems[0]
    rig.listed_s = None
    assert one_create(rig.tick())


def test_where_listings_lag_nothing_is_launched_before_they_show_what_an_earlier_process_did() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)), listing_lag_s=10.0)
    assert rig.tick() == []
    assert rig.tick(after_s=9.0) == []
    assert rig.reconciler.is_unsettled, "and the next listing does not wait for long"
    assert one_create(rig.tick(after_s=1.0))


# ---------------------------------------------------------------- flapping


def test_a_type_whose_nodes_die_young_is_replaced_ever_later() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1, max_workers=1)))
    create: Create | None = one_create(rig.tick())
    pauses = []
    for _ in range(7):
        assert create is not None
        (name,) = up(rig, create)
        rig.tick(after_s=30.0)
        began_s, create = rig.now, die(rig, name)
        while create is None:
            create = next((e for e in rig.tick() if isinstance(e, Create)), None)
        pauses.append(rig.now - began_s - 1.0)
    assert pauses[0] == 0.0, "the first one is replaced in the same tick"
    assert pauses[1] >= 15.0
    assert pauses == sorted(pauses)
    assert pauses[-1] > 300.0


def test_a_type_that_flapped_and_lasts_starts_anew() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1, max_workers=1)))
    create = one_create(rig.tick())
    for _ in range(2):
        (name,) = up(rig, create)
        again = die(rig, name)
        while again is None:
            again = next((e for e in rig.tick() if isinstance(e, Create)), None)
        create = again
    (name,) = up(rig, create)
    rig.tick(after_s=YOUNG_S)
    assert not rig.reconciler.memory().flapping
    assert die(rig, name), "it did not die young"


def test_a_node_that_was_told_to_end_says_nothing_about_its_type() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)))
    (name,) = up(rig, one_create(rig.tick()))
    rig.nodes = [replace_left(rig.nodes[0])]
    rig.tick()
    assert not rig.reconciler.memory().flapping
    assert rig.states()[name] == "TERMINATING"


def replace_left(info: NodeInfo) -> NodeInfo:
    return msgspec.structs.replace(info, state="DEAD", left=True)


def test_a_spot_machine_that_is_taken_back_leads_to_the_next_offer() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1, spot=True)))
    rig.offers = {"small": (Offer("a", SPOT, 0.1), Offer("a", price=1.0))}
    create = one_create(rig.tick())
    assert create.request.offer.market == SPOT
    (name,) = up(rig, create)
    rig.tick(after_s=60.0)
    second = die(rig, name)
    assert second is not None
    assert second.request.offer.market != SPOT
    assert not rig.reconciler.memory().flapping, "the offer is to blame, not the type"


def test_a_spot_machine_with_notice_while_it_is_set_up_leads_to_the_next_offer() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1, spot=True)))
    rig.offers = {"small": (Offer("a", SPOT, 0.1), Offer("a", price=1.0))}
    create = one_create(rig.tick())
    (made,) = rig.machines_for(create)
    rig.machines = [made]
    rig.tick(Created(create.request.token, LaunchResult((made,))))
    rig.machines = [replace(made, market=SPOT, unwanted="taken back")]
    (second,) = (effect for effect in rig.tick() if isinstance(effect, Create))
    assert second.request.offer.market != SPOT
    (resting,) = rig.reconciler.report(rig.now).resting
    assert "lost while it was set up" in resting.why


def test_a_spot_offer_that_loses_machines_again_rests_longer_though_it_gives_new_ones() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1, spot=True)))
    rig.offers = {"small": (Offer("a", SPOT, 0.1),)}
    rests = []
    for _ in range(3):
        create = None
        while create is None:
            create = next((e for e in rig.tick() if isinstance(e, Create)), None)
        (name,) = up(rig, create)
        assert die(rig, name) is None
        rests.append(rig.reconciler.report(rig.now).resting[0].until_s - rig.now)
    assert rests == [15.0, 30.0, 60.0]


# ---------------------------------------------------------------- machines made twice, machines that stay


def test_of_two_machines_for_one_token_the_surplus_one_is_ended() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    (first,) = rig.machines_for(create)
    twin = replace(first, id="m-twin")
    rig.machines = [first, twin]
    effects = rig.tick(Created(create.request.token, LaunchResult((first,))))
    assert [e for e in effects if isinstance(e, Terminate)] == [Terminate(("m-twin",))]
    assert [e.machine.id for e in effects if isinstance(e, SetUp)] == [first.id]


@pytest.mark.parametrize("order", [1, -1])
def test_after_the_memory_was_lost_the_twin_with_the_node_stays(order: int) -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)))
    machines = [
        replace(machine("a", id="m-1"), address="10.0.0.1"),
        replace(machine("a", id="m-2"), address="10.0.0.2"),
    ]
    rig.machines = machines[::order]
    rig.nodes = [at("10.0.0.2")]
    effects = rig.tick()
    assert effects == [Terminate(("m-1",))]
    assert {i.machine_id: i.state for i in rig.reconciler.table} == {"m-2": S.RUNNING, "m-1": S.TERMINATING}


def test_a_twin_that_shows_later_takes_the_name_if_the_node_is_there() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)))
    one = replace(machine("a", id="m-1"), address="10.0.0.1")
    rig.machines = [one]
    rig.nodes = [at("10.0.0.2")]
    assert rig.tick() == []
    rig.machines = [one, replace(one, id="m-2", address="10.0.0.2")]
    assert rig.tick() == [Terminate(("m-1",))]
    assert rig.states()["a"] == "RUNNING"


def at(host: str) -> NodeInfo:
    return msgspec.structs.replace(node("a"), host=host)


def test_a_machine_that_came_back_with_a_working_node_works_on() -> None:
    """Listings had shown it gone for long, wrongly."""
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    made = rig.machines_for(create)
    rig.machines = list(made)
    rig.tick(Created(create.request.token, LaunchResult(made)))
    (name,) = create.request.instance_ids
    rig.machines = []
    rig.tick()
    assert rig.states()[name] == "TERMINATED"
    rig.machines, rig.nodes = list(made), [node(name, free={})]
    assert not [e for e in rig.tick() if isinstance(e, Terminate)]
    assert rig.states()[name] == "RUNNING"


def test_a_machine_that_stays_listed_is_the_operators_problem() -> None:
    rig = Rig(config(SMALL))
    rig.machines = [machine("a", state=MachineState.STOPPED)]
    rig.tick()
    asked = 0
    for _ in range(int(STUCK_S) + 2):
        effects = rig.tick(Terminated({"m-a": None}))
        asked += sum(1 for e in effects if isinstance(e, Terminate))
    assert asked >= 9, "it is asked again and again"
    (problem,) = rig.reconciler.report(rig.now).problems
    assert "m-a" in problem
    assert "10 min" in problem
    (one,) = rig.reconciler.report(rig.now).instances
    assert len(one.history) < 5, "asking again is told once"


# ---------------------------------------------------------------- restarts


def test_who_was_long_overdue_when_the_head_came_back_has_a_while_to_show() -> None:
    settings = config(SMALL)
    rig = Rig(settings)
    rig.want(2)
    create = one_create(rig.tick())
    made = rig.machines_for(create)
    rig.machines = list(made)
    (name,) = create.request.instance_ids
    rig.tick(Created(create.request.token, LaunchResult(made)))
    rig.tick(SetUpEnded(name))
    memory = Memory.from_json(rig.reconciler.memory().to_json())
    again = Rig(settings, memory)
    again.machines = rig.machines
    again.now = rig.now + 7200.0
    again.tick()
    assert again.states() == {name: "SETTING_UP"}
    again.nodes = [node(name)]
    again.tick()
    assert again.states() == {name: "RUNNING"}


def test_a_half_done_setup_is_done_anew_with_all_its_time() -> None:
    settings: AutoscalerConfig = config(SMALL)
    rig = Rig(settings)
    rig.want(2)
    create = one_create(rig.tick())
    made: tuple[Machine, ...] = rig.machines_for(create)
    rig.machines = list(made)
    rig.tick(Created(create.request.token, LaunchResult(made)))
    again = Rig(settings, Memory.from_json(rig.reconciler.memory().to_json()))
    again.machines = rig.machines
    again.now = rig.now + 7200.0
    (effect,) = again.tick()
    assert isinstance(effect, SetUp)
    again.tick(after_s=settings.deadlines.setting_up_s - 10.0)
    assert set(again.states().values()) == {"SETTING_UP"}


def test_a_repeated_setup_that_fails_ends_no_node_that_works() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    made = rig.machines_for(create)
    rig.machines = list(made)
    rig.tick(Created(create.request.token, LaunchResult(made)))
    (name,) = create.request.instance_ids
    rig.nodes = [node(name)]
    rig.tick(SetUpEnded(name, SetupError("start the agent", "it runs already")))
    assert rig.states() == {name: "RUNNING"}


# ---------------------------------------------------------------- the record


def test_every_step_is_told_with_its_reason() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    rig.tick(Created(create.request.token, error=Transient("the line broke", 5.0)))
    rig.tick(after_s=10.0)
    made = rig.machines_for(create, MachineState.PENDING)
    rig.machines = list(made)
    rig.tick(Created(create.request.token, LaunchResult(made)))
    rig.machines = []
    rig.tick()
    (ended,) = rig.reconciler.report(rig.now).ended
    assert [(step.state, step.why) for step in ended.history] == [
        ("QUEUED", "waiting work: 1 x {CPU: 2}"),
        ("REQUESTED", "create is called"),
        ("REQUESTED", "the line broke"),
        ("ALLOCATED", f"machine {made[0].id}"),
        ("TERMINATED", "its machine vanished"),
    ]
    assert ended.failure == "its machine vanished"
    times = [step.at_s for step in ended.history]
    assert times == sorted(times)
    rig.tick(after_s=3601.0)
    assert ended.id not in {one.id for one in rig.reconciler.report(rig.now).ended}


def test_machines_found_after_the_memory_was_lost_count_towards_the_price_budget() -> None:
    settings = config(SMALL, budgets=Budgets(max_hourly_price=2.5), upscaling_speed=100.0)
    rig = Rig(settings)
    rig.offers = {"small": (Offer("a", price=1.0),)}
    rig.want(2, 2)
    up(rig, one_create(rig.tick()))
    after = Rig(settings)
    after.offers, after.machines, after.nodes = rig.offers, rig.machines, rig.nodes
    after.want(2, 10)
    assert not [effect for effect in after.tick() if isinstance(effect, Create)]
    assert sorted(after.states().values()) == ["RUNNING", "RUNNING"]
    assert "price budget" in after.reconciler.report(after.now).waiting[0].why
