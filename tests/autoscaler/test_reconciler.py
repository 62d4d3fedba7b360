from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from autoscaler.config import Budgets, Consolidation
from autoscaler.effects import (
    Create,
    Created,
    Drain,
    Drained,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.instances import InstanceState
from autoscaler.memory import Memory
from autoscaler.provider import (
    Capacity,
    LaunchResult,
    MachineState,
    MachineTags,
    Offer,
    SetupError,
    Transient,
)
from autoscaler.status import Report
from runtime._core.resources import to_units
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest
from runtime._wire.messages.control import Holding
from tests.autoscaler.build import NOW, SMALL, config, instance, machine, node
from tests.autoscaler.rig import Rig, one_create

S = InstanceState


def test_the_whole_life() -> None:
    rig = Rig(config(SMALL, config_hashes={"small": "h1"}, log_dir="/logs"))
    rig.want(2)
    create = one_create(rig.tick())
    assert create.request.count == 1
    tags = create.request.tags_of(0)
    assert tags[MachineTags.CLUSTER_ID] == "cluster"
    assert tags[MachineTags.ROLE] == MachineTags.WORKER
    assert tags[MachineTags.CONFIG_HASH] == "h1"
    (name,) = create.request.instance_ids
    assert rig.tick() == [], "asked once"

    rig.machines = list(rig.machines_for(create))
    (setup,) = rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    assert isinstance(setup, SetUp)
    assert (setup.instance_id, setup.log_path) == (name, f"/logs/setup-{name}.log")
    assert rig.tick(SetUpEnded(name)) == []

    rig.nodes = [node(name, free={})]
    rig.want(2, 0)
    assert rig.tick() == []
    assert rig.states() == {name: "RUNNING"}

    rig.nodes = [node(name, idle_since_s=rig.now)]
    assert rig.tick(after_s=30.0) == []
    (drain,) = rig.tick(after_s=31.0)
    assert isinstance(drain, Drain)
    assert drain.node_id == name.encode()
    assert drain.only_if_idle
    rig.nodes = [node(name, state="DRAINING", idle_since_s=1.0)]
    (terminate,) = rig.tick(Drained(name))
    assert terminate == Terminate((f"m-{name}",))
    assert rig.tick(Terminated({f"m-{name}": None})) == [], "still listed, not asked twice"
    rig.machines = []
    assert rig.tick() == []
    assert rig.states() == {name: "TERMINATED"}


def test_a_dead_node_is_replaced_in_the_same_tick_and_its_machine_ended_first() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1, max_workers=1)))
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    (name,) = create.request.instance_ids
    rig.nodes = [node(name)]
    rig.tick(SetUpEnded(name))
    rig.nodes = [node(name, state="DEAD")]
    first, second = rig.tick()
    assert isinstance(first, Terminate)
    assert isinstance(second, Create)


def test_a_log_is_named_only_of_a_setup_that_has_begun() -> None:
    rig = Rig(config(replace(SMALL, min_workers=2), log_dir="/logs"))

    def logs() -> set[str]:
        report = rig.reconciler.report(rig.now)
        return {item.setup_log for item in (*report.instances, *report.failures)}

    create = one_create(rig.tick())
    (booting,) = (replace(machine, state=MachineState.PENDING) for machine in rig.machines_for(create)[:1])
    rig.machines = [booting]
    rig.tick(Created(create.request.token, LaunchResult((booting,), (Capacity("none"),))))
    assert logs() == {""}, "one was refused, one boots"
    rig.machines = [replace(booting, state=MachineState.RUNNING)]
    rig.tick()
    assert f"/logs/setup-{booting.instance_id}.log" in logs()


def test_refused_offers_lead_to_the_next_one() -> None:
    rig = Rig(config(SMALL))
    rig.offers = {"small": [Offer("a", price=1.0), Offer("b", price=2.0)]}
    rig.want(2)
    first = one_create(rig.tick())
    assert first.request.offer.zone == "a"
    second = one_create(rig.tick(Created(first.request.token, LaunchResult(errors=(Capacity("none"),)))))
    assert second.request.offer.zone == "b"
    assert rig.tick(Created(second.request.token, LaunchResult(errors=(Capacity("none"),)))) == []
    report = rig.reconciler.report(rig.now)
    assert len(report.resting) == 2
    assert report.waiting[0].why.endswith("none")
    due = rig.reconciler.next_s(rig.now)
    assert due is not None
    assert one_create(rig.tick(after_s=due - rig.now)).request.offer.zone == "a"


def test_lost_answers_are_asked_again_with_the_same_request() -> None:
    rig = Rig(config(SMALL))
    rig.want(2, 3)
    first = one_create(rig.tick())
    assert rig.tick(Created(first.request.token, error=Transient("timeout", 5.0))) == []
    assert one_create(rig.tick(after_s=5.0)) == first


def test_create_calls_are_bounded_and_split() -> None:
    settings = config(replace(SMALL, max_workers=50), upscaling_speed=100.0, budgets=Budgets(max_creating=2))
    rig = Rig(settings, max_per_create=2)
    rig.want(2, 5)
    effects = rig.tick()
    assert [e.request.count for e in effects if isinstance(e, Create)] == [2, 2]
    assert sorted(rig.states().values()) == ["QUEUED"] + ["REQUESTED"] * 4
    rig.want(2, 4)
    rig.tick()
    assert sorted(rig.states().values()) == ["CANCELLED"] + ["REQUESTED"] * 4, (
        "the wish nobody needs is dropped"
    )


def test_setups_are_bounded() -> None:
    rig = Rig(config(replace(SMALL, min_workers=3), budgets=Budgets(max_setting_up=2)))
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    effects = rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    assert len(effects) == 2
    name = effects[0].instance_id if isinstance(effects[0], SetUp) else ""
    assert len(rig.tick(SetUpEnded(name))) == 1


def test_failed_setups_are_replaced_with_growing_pauses() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)))
    launched_s: list[float] = []
    outcomes: list[Outcome] = []
    while len(launched_s) < 5:
        effects = rig.tick(*outcomes)
        outcomes = []
        for effect in effects:
            if isinstance(effect, Create):
                launched_s.append(rig.now)
                rig.machines = [*(rig.machines or []), *rig.machines_for(effect)]
                outcomes.append(Created(effect.request.token, LaunchResult(rig.machines_for(effect))))
            elif isinstance(effect, SetUp):
                outcomes.append(SetUpEnded(effect.instance_id, SetupError("pip", "exit status 1")))
            elif isinstance(effect, Terminate):
                rig.machines = [m for m in rig.machines or [] if m.id not in effect.machine_ids]
                outcomes.append(Terminated(dict.fromkeys(effect.machine_ids)))
    pauses = [b - a for a, b in itertools.pairwise(launched_s)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 20.0
    report = rig.reconciler.report(rig.now)
    assert report.failures[0].step == "pip"
    assert "exit status 1" in report.failures[0].reason


def test_nothing_is_launched_before_the_first_listing() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)))
    rig.machines = None
    assert rig.tick() == []
    rig.machines = []
    assert len(rig.tick()) == 1


@pytest.mark.parametrize("with_memory", [True, False])
def test_a_restarted_head_launches_nothing_twice(with_memory: bool) -> None:
    settings = config(replace(SMALL, min_workers=2))
    rig = Rig(settings)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    a, b = create.request.instance_ids
    rig.nodes = [node(a)]
    rig.tick(SetUpEnded(a))
    memory = Memory.from_json(rig.reconciler.memory().to_json())
    again = Rig(settings, memory if with_memory else None)
    again.machines, again.nodes = rig.machines, rig.nodes
    effects = again.tick()
    assert not [e for e in effects if isinstance(e, Create | Terminate)]
    assert again.states() == {a: "RUNNING", b: "SETTING_UP"}
    # What was being set up is set up again if that is known; otherwise it gets a while to join.
    assert [e.instance_id for e in effects if isinstance(e, SetUp)] == ([b] if with_memory else [])
    again.nodes = [node(a), node(b)]
    assert again.tick() == []
    assert again.states() == {a: "RUNNING", b: "RUNNING"}


def test_a_create_under_way_at_the_restart_is_asked_again() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    again = Rig(config(SMALL), Memory.from_json(rig.reconciler.memory().to_json()))
    again.want(2)
    assert one_create(again.tick()) == create


def test_a_create_under_way_at_the_restart_and_nothing_saved() -> None:
    """The machine appears, nobody knows it, no node joins: it goes."""
    settings = config(SMALL)
    rig = Rig(settings)
    rig.want(2)
    create = one_create(rig.tick())
    again = Rig(settings)
    again.machines = list(rig.machines_for(create))
    assert again.tick() == []
    (terminate,) = again.tick(after_s=settings.node_grace_s)
    assert terminate == Terminate(tuple(m.id for m in again.machines))


def test_a_node_smaller_than_declared_is_not_launched_for_ever() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    (name,) = create.request.instance_ids
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    rig.nodes = [node(name, total={"CPU": 1.0})]
    assert rig.tick(SetUpEnded(name)) == []
    assert rig.tick() == []
    assert "CPU 2 wanted, 1 there" in rig.reconciler.report(rig.now).waiting[0].why


def test_what_was_learnt_outlives_the_nodes_and_the_process() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    (name,) = create.request.instance_ids
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    rig.nodes = [node(name, total={"CPU": 1.0})]
    rig.tick(SetUpEnded(name))
    rig.nodes, rig.machines = [node(name, state="DEAD")], []
    rig.tick()
    assert rig.states() == {name: "TERMINATED"}
    assert rig.tick() == []
    again = Rig(config(SMALL), Memory.from_json(rig.reconciler.memory().to_json()))
    again.want(2)
    assert again.tick() == []
    changed = Rig(config(SMALL, config_hashes={"small": "new"}), rig.reconciler.memory())
    changed.want(2)
    assert len(changed.tick()) == 1, "another configuration may bring other nodes"


def test_what_nodes_bring_beyond_the_declaration_is_learnt() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    (name,) = create.request.instance_ids
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    rig.nodes = [node(name, total={"CPU": 2.0, "memory": 100.0}, free={})]
    rig.demands = [Demand(ResourceRequest(to_units({"memory": 50.0})), 1)]
    assert isinstance(rig.tick(SetUpEnded(name))[0], Create)


def test_lowering_the_maximum_drains_and_raising_it_back_launches() -> None:
    settings = config(replace(SMALL, min_workers=2))
    rig = Rig(settings)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    names = create.request.instance_ids
    rig.nodes = [node(name) for name in names]
    rig.tick(*(SetUpEnded(name) for name in names))
    rig.reconciler.config = config(replace(SMALL, max_workers=1))
    (drain,) = rig.tick()
    assert isinstance(drain, Drain)
    assert not drain.only_if_idle
    rig.nodes = [
        replace_state(info, "DRAINING") if info.node_id == drain.node_id else info for info in rig.nodes
    ]
    assert rig.tick(Drained(drain.instance_id)) == [], "it finishes its work first"
    rig.reconciler.config = settings
    (resume,) = rig.tick()
    assert isinstance(resume, Resume), "no new machine: the one that drains works on"
    assert resume.node_id == drain.node_id
    (again,) = rig.tick(Resumed(drain.instance_id, "no connection"), after_s=1.0) or rig.tick(after_s=1.0)
    assert again == resume
    assert rig.tick(Resumed(drain.instance_id)) == []
    rig.nodes = [node(name) for name in names]
    assert rig.tick(after_s=60.0) == []
    assert set(rig.states().values()) == {"RUNNING"}


def replace_state(info: NodeInfo, state: str) -> NodeInfo:
    return node(info.node_id.decode(), state=state, instance_id=info.instance_id)


def test_reports_survive_json_and_tell_what_happened() -> None:
    rig = Rig(config(replace(SMALL, min_workers=1)))
    rig.want(99)
    rig.tick()
    report = rig.reconciler.report(rig.now, ("the platform does not answer",), 0.25)
    again = Report.from_json(report.to_json())
    assert again == report
    assert [w.infeasible for w in again.waiting] == [True]
    assert again.demands == (("{CPU: 99}", 1),)
    assert again.problems == ("the platform does not answer",)
    small = next(t for t in again.types if t.name == "small")
    assert (small.pending, small.running, small.states) == (1, 0, {"REQUESTED": 1})
    assert any("min_workers" in event.text for event in again.events)
    assert again.instances[0].state == "REQUESTED"


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": 99}', b"[1]"])
def test_a_state_that_cannot_be_read_is_refused(text: bytes) -> None:
    if text == b"{}":
        assert Memory.from_json(text) == Memory()
        return
    with pytest.raises(ValueError, match=r"\w"):
        Memory.from_json(text)


def test_a_move_that_comes_to_nothing_is_called_off_and_not_tried_again_soon() -> None:
    settings = config(replace(SMALL, max_workers=2), consolidation=Consolidation(after_s=60.0), max_workers=2)
    rig = Rig(settings)
    rig.want(2, 2)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    names = create.request.instance_ids
    rig.nodes = [node(name, free={"CPU": 1}) for name in names]
    rig.tick(*(SetUpEnded(name) for name in names))
    rig.want(2, 0)
    rig.holdings = [
        Holding(name.encode(), [Demand(ResourceRequest(to_units({"CPU": 1})), 1)], "") for name in names
    ]
    assert rig.tick() == []
    assert rig.tick(after_s=50.0) == []
    (drain,) = rig.tick(after_s=10.0)
    assert isinstance(drain, Drain)
    assert not drain.only_if_idle

    def node_drains(state: str) -> None:
        rig.nodes = [
            node(name, free={"CPU": 1}, state=state if name == drain.instance_id else "ALIVE")
            for name in names
        ]

    node_drains("DRAINING")
    assert rig.tick(Drained(drain.instance_id)) == [], "its task runs on"
    assert rig.tick(after_s=250.0) == []
    (resume,) = rig.tick(after_s=50.0)
    assert isinstance(resume, Resume)
    assert rig.states()[drain.instance_id] == "RUNNING"
    node_drains("ALIVE")
    assert rig.tick(Resumed(drain.instance_id)) == []
    (other,) = rig.tick(after_s=61.0)
    assert isinstance(other, Drain)
    assert other.instance_id != drain.instance_id, "the other one had no try yet"


def test_a_drain_under_way_is_answered_before_it_is_called_off() -> None:
    rig = Rig(config(SMALL))
    rig.want(2)
    create = one_create(rig.tick())
    rig.machines = list(rig.machines_for(create))
    rig.tick(Created(create.request.token, LaunchResult(tuple(rig.machines))))
    (name,) = create.request.instance_ids
    rig.want(2, 0)
    rig.nodes = [node(name, idle_since_s=rig.now)]
    rig.tick(SetUpEnded(name))
    (drain,) = rig.tick(after_s=61.0)
    assert isinstance(drain, Drain)
    rig.want(2)
    assert rig.tick() == [], "nothing is launched, and nobody is told two things at once"
    assert rig.states() == {name: "DRAINING"}
    rig.nodes = [node(name, idle_since_s=rig.now, state="DRAINING")]
    (resume,) = rig.tick(Drained(name))
    assert isinstance(resume, Resume)
    assert rig.states() == {name: "RUNNING"}


def test_another_process_tells_a_called_back_node_so() -> None:
    called_back = instance("a", recalled=True, asked_s=NOW)
    rig = Rig(config(SMALL), memory=Memory.from_json(Memory(instances=(called_back,)).to_json()))
    rig.machines = [machine("a")]
    rig.nodes = [node("a", state="DRAINING", free={})]
    (resume,) = rig.tick(after_s=100.0)
    assert isinstance(resume, Resume)
    assert rig.states() == {"a": "RUNNING"}, "it is not taken for one that a person drains"
