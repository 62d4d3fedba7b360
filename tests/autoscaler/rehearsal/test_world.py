"""Rehearsed worlds keep the books: no work is lost, no node holds more than it has, and a seed is a run."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from autoscaler.config import AutoscalerConfig
from autoscaler.provider import NodeType
from autoscaler.rehearsal.decider import ReconcilerDecider
from autoscaler.rehearsal.platform import Timing
from autoscaler.rehearsal.rehearse import RUNNING, Result, rehearse
from autoscaler.rehearsal.trace import (
    Actors,
    Fault,
    FaultKind,
    Groups,
    Offered,
    Requests,
    Tasks,
    Trace,
    TraceError,
)
from autoscaler.rehearsal.world import FakeWorld

SMALL = NodeType("small", {"CPU": 4}, max_workers=20)
BIG = NodeType("big", {"CPU": 16}, {"disk": "fast"}, max_workers=5)
GPU = NodeType("gpu", {"CPU": 8, "GPU": 2}, max_workers=4, spot=True)
OFFERS = {
    "small": [Offered(price=0.2, zone="a"), Offered(price=0.25, zone="b")],
    "big": [Offered(price=0.7, zone="a")],
    "gpu": [Offered(price=1.0, zone="a", market="spot"), Offered(price=3.0, zone="a")],
}
PRICES = {"small": OFFERS["small"]}
QUICK = Timing(boot_s=20.0, setup_s=10.0, stop_s=5.0)


def config(*kinds: NodeType, max_workers: int = 25, idle_timeout_s: float = 60.0) -> AutoscalerConfig:
    head = NodeType("head", {"CPU": 1})
    chosen = kinds or (SMALL, BIG, GPU)
    return AutoscalerConfig(
        "rehearsal", "rehearsal", (head, *chosen), "head", max_workers, idle_timeout_s=idle_timeout_s
    )


def served(trace: Trace, *kinds: NodeType) -> Result:
    result = rehearse(config(*kinds), trace, timing=QUICK)
    assert result.summary.ended == "rest"
    assert not result.summary.unserved
    return result


# ---------------------------------------------------------------- what a run comes to


def test_one_task_waits_for_its_machine_and_pays_for_it() -> None:
    trace = Trace(tasks=[Tasks(resources={"CPU": 2}, duration_s=100.0)], offers=PRICES)
    summary = served(trace, SMALL).summary
    # 0.2 s of quiet, 1 s for the call, at most 1 s until a listing shows it, twice 0.2 s between.
    assert 31.2 <= summary.waited["task"].max_s <= 33.0
    assert summary.makespan_s == pytest.approx(100.0 + summary.waited["task"].max_s)
    assert summary.tally.launches == summary.tally.removals == 1
    # Paid from its creation at 1.2 s until it was gone: idle for a minute, two calls and 5 s of stopping later.
    assert summary.node_hours["small"] * 3600 == pytest.approx(summary.end_s - 1.2, abs=1.0)
    assert summary.end_s == pytest.approx(summary.makespan_s + 60.0 + 5.0, abs=3.0)
    assert summary.cost == pytest.approx(summary.node_hours["small"] * 0.2)
    assert summary.utilization["CPU"] == pytest.approx(200.0 / (summary.node_hours["small"] * 3600 * 4))


def test_actors_that_live_for_ever_keep_their_nodes_and_end_no_rehearsal() -> None:
    result = served(Trace(actors=[Actors(count=6, resources={"CPU": 2})], offers=PRICES), SMALL)
    assert result.samples[-1].nodes == {"small": {RUNNING: 3}}
    assert result.samples[-1].working == 6


def test_a_group_is_reserved_whole() -> None:
    group = Groups(bundles=[{"CPU": 3}] * 4, strategy="STRICT_SPREAD", duration_s=50.0, count=2)
    result = served(Trace(groups=[group], offers=PRICES), SMALL)
    assert result.summary.finished == {"group": 2}
    assert max(sample.in_state(RUNNING) for sample in result.samples) == 8


def test_a_request_is_kept_ready_until_it_expires() -> None:
    request = Requests(at_s=10.0, bundles=[{"CPU": 4}] * 3, ttl_s=300.0)
    result = served(Trace(requests=[request], offers=PRICES), SMALL)
    assert result.at(200.0).nodes == {"small": {RUNNING: 3}}
    assert result.at(305.0).nodes == {"small": {RUNNING: 3}}
    assert result.samples[-1].machines == 0


def test_what_no_node_could_ever_hold_stays_with_its_reason() -> None:
    trace = Trace(tasks=[Tasks(resources={"CPU": 99}, duration_s=1.0), Tasks(duration_s=1.0)], offers=PRICES)
    summary = rehearse(config(SMALL), trace, timing=QUICK).summary
    assert summary.ended == "rest"
    assert [(entry.what, entry.count) for entry in summary.unserved] == [("{CPU: 99}", 1)]
    assert "'small'" in summary.unserved[0].why
    assert summary.finished == {"task": 1}


def test_until_ends_a_rehearsal_exactly_then() -> None:
    trace = Trace(tasks=[Tasks(count=50, duration_s=1000.0)], until_s=500.0, offers=PRICES)
    summary = rehearse(config(SMALL), trace, timing=QUICK).summary
    assert (summary.ended, summary.end_s) == ("until", 500.0)
    assert summary.cost > 0


def test_faults_after_the_last_work_do_not_prolong_a_rehearsal() -> None:
    late = Fault(kind="node_death", at_s=9000.0)
    assert served(Trace(tasks=[Tasks(duration_s=10.0)], faults=[late]), SMALL).summary.end_s < 200.0
    kept = served(Trace(actors=[Actors(resources={"CPU": 2})], faults=[late]), SMALL).summary
    assert kept.end_s > 9000.0
    assert kept.interrupted == {"actor": 1}


def test_a_platform_that_never_has_anything_ends_in_a_stall() -> None:
    trace = Trace(tasks=[Tasks(resources={"CPU": 2}, duration_s=1.0)], faults=[Fault(kind="stockout")])
    summary = rehearse(config(SMALL), trace, timing=QUICK).summary
    assert summary.ended == "stall"
    assert summary.tally.refused > 3
    assert summary.unserved[0].count == 1


def test_node_types_that_do_not_exist_are_named() -> None:
    trace = Trace(faults=[Fault(kind="stockout", node_type="smal")])
    with pytest.raises(TraceError, match=r"faults\[0\].node_type: there is no node type 'smal'; there are"):
        FakeWorld(config(SMALL), trace)


# ---------------------------------------------------------------- faults


def test_work_of_lost_spot_machines_runs_again_on_others() -> None:
    trace = Trace(
        tasks=[Tasks(count=8, resources={"GPU": 1}, duration_s=200.0)],
        faults=[Fault(kind="spot_loss", at_s=100.0, count=2)],
        offers=OFFERS,
    )
    summary = served(trace).summary
    assert summary.tally.lost == 2
    assert summary.interrupted == {"task": 4}
    assert summary.finished == {"task": 8}
    assert summary.waited["task"].count == 12


def test_a_stockout_in_one_zone_is_bought_around_in_the_next() -> None:
    trace = Trace(
        tasks=[Tasks(count=8, resources={"CPU": 2}, duration_s=10.0)],
        faults=[Fault(kind="stockout", node_type="small", zone="a")],
        offers=PRICES,
    )
    summary = served(trace, SMALL).summary
    assert summary.tally.refused > 0
    assert summary.cost == pytest.approx(summary.node_hours["small"] * 0.25)


def test_a_quota_is_kept_and_the_work_done_by_what_there_is() -> None:
    trace = Trace(
        tasks=[Tasks(count=20, resources={"CPU": 4}, duration_s=30.0)], faults=[Fault(kind="quota", count=3)]
    )
    summary = served(trace, SMALL).summary
    assert summary.most_machines == 3
    assert summary.tally.refused > 0


def test_failed_setups_are_tried_again_and_paid() -> None:
    trace = Trace(
        tasks=[Tasks(count=4, resources={"CPU": 4}, duration_s=30.0)],
        faults=[Fault(kind="setup_failure", probability=0.5, until_s=600.0)],
        seed=3,
    )
    summary = served(trace, SMALL).summary
    assert summary.tally.setups_failed > 0
    assert summary.tally.launches > 4


def test_lost_replies_make_no_machine_twice() -> None:
    trace = Trace(
        tasks=[Tasks(count=6, resources={"CPU": 4}, duration_s=300.0)],
        faults=[Fault(kind="lost_reply", probability=0.9, until_s=100.0)],
    )
    assert served(trace, SMALL).summary.most_machines == 6


def test_machines_made_twice_or_that_never_boot_are_ended_and_replaced() -> None:
    trace = Trace(
        tasks=[Tasks(count=6, resources={"CPU": 4}, duration_s=300.0)],
        faults=[Fault(kind=kind, probability=0.5, until_s=300.0) for kind in ("made_twice", "never_boots")],
    )
    result = served(trace, SMALL)
    assert result.summary.tally.launches > 6
    assert result.samples[-1].machines == 0


@pytest.mark.parametrize("kind", ["autoscaler_restart", "memory_loss"])
@pytest.mark.parametrize("at_s", [0.5, 1.5, 10.0, 25.0, 32.0, 100.0])
def test_an_autoscaler_that_is_lost_leaves_no_machine_behind(kind: FaultKind, at_s: float) -> None:
    trace = Trace(
        tasks=[Tasks(count=8, resources={"CPU": 2}, duration_s=60.0)], faults=[Fault(kind=kind, at_s=at_s)]
    )
    result = served(trace, SMALL)
    assert result.summary.finished == {"task": 8}
    assert not result.summary.interrupted
    assert result.samples[-1].machines == 0


# ---------------------------------------------------------------- invariants


def hostile(seed: int) -> Trace:
    """A random trace with every kind of fault, all over after half an hour."""
    rng = random.Random(seed)
    shapes = ({"CPU": 1}, {"CPU": 3}, {"GPU": 1}, {"CPU": 10}, {"CPU": 0.5})
    end_s = 1800.0

    def lasting(kind: str, **more: object) -> Fault:
        at_s = rng.uniform(0.0, end_s / 2)
        return Fault(kind=kind, at_s=at_s, until_s=rng.uniform(at_s + 1, end_s), **more)  # type: ignore[arg-type]

    def tasks() -> Tasks:
        resources = dict(rng.choice(shapes))
        return Tasks(
            at_s=rng.uniform(0.0, end_s),
            count=rng.randint(1, 40),
            resources=resources,
            duration_s=[1.0, rng.uniform(1.0, 200.0)] if rng.random() < 0.5 else rng.uniform(1.0, 90.0),
            selector={"disk": "fast"} if "GPU" not in resources and rng.random() < 0.1 else {},
            fallbacks=[{}] if rng.random() < 0.5 else [],
        )

    return Trace(
        tasks=[tasks() for _ in range(10)],
        actors=[Actors(at_s=rng.uniform(0.0, end_s), duration_s=rng.uniform(10.0, 600.0), count=3)],
        groups=[
            Groups(
                at_s=rng.uniform(0.0, end_s),
                bundles=[{"CPU": float(rng.randint(1, 3))}] * rng.randint(1, 4),
                strategy=rng.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")),
                duration_s=rng.uniform(5.0, 200.0),
                count=2,
            )
            for _ in range(4)
        ],
        requests=[Requests(at_s=rng.uniform(0.0, end_s), bundles=[{"CPU": 4}] * 2, ttl_s=100.0)],
        faults=[
            Fault(kind="spot_loss", at_s=300.0, probability=0.5, times=4, every_s=300.0),
            Fault(kind="node_death", at_s=200.0, probability=0.2, times=5, every_s=250.0),
            Fault(kind="autoscaler_restart", at_s=rng.uniform(0.0, end_s)),
            Fault(
                kind="memory_loss", at_s=rng.uniform(0.0, 100.0), times=3, every_s=rng.uniform(100.0, 600.0)
            ),
            lasting("stockout", node_type=rng.choice(("small", "gpu", "big")), count=rng.randint(0, 2)),
            lasting("quota", count=4),
            lasting("setup_failure", probability=0.3),
            lasting("slow_boot", seconds=120.0),
            lasting("throttle", probability=0.3, seconds=7.0),
            lasting("stale_listing", seconds=rng.uniform(1.0, 30.0)),
            lasting("lost_reply", probability=0.3),
            lasting("never_boots", probability=0.2),
            lasting("made_twice", probability=0.2),
        ],
        offers=OFFERS,
        seed=seed,
    )


def check(world: FakeWorld) -> None:
    """What holds at every moment."""
    cluster = world.cluster
    for node in cluster.nodes.values():
        used: Counter[str] = Counter()
        for run in node.runs:
            assert run.batch is not None
            used.update({name: amount * run.count for name, amount in run.batch.shape.resources})
        for group in cluster.groups.values():
            for bundle, holder in zip(group.bundles, group.placed, strict=True):
                if holder is node:
                    used.update(dict(bundle.resources))
        for name, amount in node.info.total.items():
            assert 0 <= node.view.available.get(name, 0) <= amount
            if node.died_s is None:
                assert node.view.available.get(name, 0) == amount - used[name]
        assert node.died_s is None or not node.is_busy
    for kind, started in cluster.started.items():
        ended = cluster.finished.get(kind, 0) + cluster.interrupted.get(kind, 0)
        assert 0 <= ended <= started


@pytest.mark.parametrize("seed", range(8))
def test_no_work_is_lost_and_no_node_overfilled_whatever_fails(seed: int) -> None:
    trace = hostile(seed)
    world = FakeWorld(config(), trace, timing=QUICK)
    assert world.run(check) == "rest", f"seed {seed}"
    assert world.cluster.finished == {
        "task": sum(entry.count for entry in trace.tasks),
        "actor": 3,
        "group": sum(entry.count for entry in trace.groups),
    }, f"seed {seed}"
    assert [machine.is_head for machine in world.platform.machines] == [True], (
        f"seed {seed}: machines are left"
    )


class Restless(ReconcilerDecider):
    """Looks every five seconds, whatever happens, as the autoscaler's loop does."""

    def next_s(self, now: float) -> float:
        due_s = super().next_s(now)
        return now + 5.0 if due_s is None else min(due_s, now + 5.0)


@pytest.mark.parametrize("seed", range(3))
def test_decisions_that_are_spared_in_quiet_times_change_nothing(seed: int) -> None:
    drawn = (
        "never_boots",
        "made_twice",
        "setup_failure",
        "throttle",
        "lost_reply",
        "stale_listing",
    )  # every look would draw anew
    faults = [fault for fault in hostile(seed).faults if fault.kind not in drawn]
    trace = msgspec.structs.replace(hostile(seed), faults=faults, until_s=4000.0)
    usual = rehearse(config(), trace, timing=QUICK).summary
    restless = rehearse(config(), trace, Restless(config()), timing=QUICK).summary
    assert restless.tally.decisions > usual.tally.decisions
    assert (restless.cost, restless.waited, restless.finished) == (usual.cost, usual.waited, usual.finished)


def test_the_work_is_the_same_whoever_sizes_the_cluster() -> None:
    batches = [
        Tasks(at_s=at_s, count=30, resources={"CPU": 2}, duration_s=[10.0, 100.0]) for at_s in (0, 5, 50)
    ]
    held = []
    for most in (1, 9):
        result = rehearse(config(replace(SMALL, max_workers=most)), Trace(tasks=batches), timing=QUICK)
        held.append(result.summary.utilization["CPU"] * result.summary.node_hours["small"])
    assert held[0] == pytest.approx(held[1])


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    first, again = (rehearse(config(), hostile(5), timing=QUICK) for _ in range(2))
    assert first == again
    assert first.summary.cost != rehearse(config(), hostile(6), timing=QUICK).summary.cost
