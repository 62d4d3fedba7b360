"""Rows of docs/incumbents.md about deciding: the real autoscaler on a platform in memory that misbehaves on command,
and on a clock of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autoscaler.config import AutoscalerConfig
from autoscaler.effects import Listing
from autoscaler.provider import Capabilities, NodeType, Offer
from autoscaler.reconciler import Reconciler, World
from autoscaler.simulation import Faults
from clusterctl.app import app
from runtime._core.resources import to_units
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest
from runtime._wire.messages.control import ClusterState
from tests.sim.autoscaler.world import CLUSTER, SimWorld

SPEC = """\
cluster_name: rehearsal
provider: {type: local}
max_workers: 8
idle_timeout_minutes: 1
head_node_type: head
available_node_types:
  head: {resources: {CPU: 0}}
  worker: {resources: {CPU: 4}, max_workers: 8}
"""
ZONES = {"worker": [{"price": 1.0, "zone": "a"}, {"price": 2.0, "zone": "b"}]}
EIGHT_TASKS = {"count": 8, "resources": {"CPU": 2}, "duration_s": 100}
"""Two fit on a worker."""

HEAD = NodeType("head", {"CPU": 1})
ONE = NodeType("worker", {"CPU": 2}, min_workers=1, max_workers=1)


@pytest.fixture
def rehearse(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`clusterctl simulate --json` of a trace on `SPEC`."""

    def run(**trace: object) -> dict[str, Any]:
        (tmp_path / "cluster.yaml").write_text(SPEC)
        (tmp_path / "trace.json").write_text(json.dumps(trace))
        cli = CliRunner(env={"CLUSTERCTL_HOME": str(tmp_path / "h")})
        files = [str(tmp_path / "cluster.yaml"), "--demand", str(tmp_path / "trace.json")]
        result = cli.invoke(app, ["simulate", *files, "--json"])
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.stdout))

    return run


def world(kind: NodeType, faults: Faults) -> SimWorld:
    config = AutoscalerConfig(CLUSTER, "sim", (HEAD, kind), "head", max_workers=4, idle_timeout_s=10.0)
    return SimWorld(config, faults, 1, {kind.name: (Offer("a", price=1.0),)})


def states(sim: SimWorld) -> list[str]:
    """Of the instances that have not ended."""
    return sorted(i.state.name for i in sim.reconciler.table if not i.is_terminal)


def ours(sim: SimWorld) -> list[str]:
    """The workers' machines that there are in truth."""
    return [m.id for m in sim.provider.machines() if m.id not in (sim.head.id, sim.foreign.id)]


def test_row_12_only_the_listing_proves_that_a_machine_has_ended() -> None:
    """Users were billed for machines that their tool had written off: the platform accepts the order to end one and
    does not carry it out. Ours asks again for as long as the machine is listed, and tells the operator which it is."""
    sim = world(replace(ONE, min_workers=0), Faults(stop_s=900.0))
    sim.submit({"CPU": 2}, 1, 20.0)
    sim.run(60.0)
    (machine,) = ours(sim)
    for _ in range(70):
        sim.run(10.0)
        assert sim.provider.exists(machine)
        assert states(sim) == ["TERMINATING"], "it is listed, whatever was promised"
    assert sim.provider.calls.count("terminate") > 5
    assert any(machine in problem for problem in sim.reconciler.report(sim.now).problems)
    sim.run(300.0)
    assert not sim.provider.exists(machine)
    assert states(sim) == []


def test_row_13_a_machine_that_is_not_listed_yet_is_not_made_twice() -> None:
    """Clouds list a new machine some seconds after they made it. Who takes that for its loss makes another one, and
    the first runs on unseen. Ours waits until a listing must show it."""
    sim = world(replace(ONE, min_workers=3, max_workers=3), Faults(lag_s=30.0, boot_s=5.0))
    most = 0
    for _ in range(300):
        sim.run(1.0)
        most = max(most, len(ours(sim)))
    assert states(sim) == ["RUNNING"] * 3
    assert most == 3


def test_row_17_what_can_never_be_placed_is_told_and_holds_nothing_up(
    rehearse: Callable[..., dict[str, Any]],
) -> None:
    """One request that no machine could ever hold ended the loop, or kept everything behind it waiting."""
    impossible_group = {"bundles": [{"CPU": 99}, {"CPU": 1}], "strategy": "PACK", "duration_s": 1}
    summary = rehearse(
        tasks=[
            {"resources": {"unicorn": 1}, "duration_s": 1},
            {"resources": {"CPU": 64}, "duration_s": 1},
            EIGHT_TASKS,
        ],
        groups=[impossible_group],
    )["summary"]
    assert summary["finished"] == {"task": 8}
    told = {entry["what"]: entry["why"] for entry in summary["unserved"]}
    assert "CPU 64 wanted, 4 there" in told["{CPU: 64}"]
    assert len(told) == 3
    assert all(told.values())


def test_row_18_what_boots_is_counted_once_and_one_lost_node_is_replaced_by_one(
    rehearse: Callable[..., dict[str, Any]],
) -> None:
    """Demand that machines on their way will serve was bought for again; and for a gang that lost one node of four,
    four were bought."""
    tally = rehearse(tasks=[EIGHT_TASKS])["summary"]["tally"]
    assert tally["launches"] == 4
    assert tally["decisions"] > 10, "it had more than one occasion to buy too much"
    gang = {"bundles": [{"CPU": 4}] * 4, "strategy": "STRICT_SPREAD", "duration_s": 400}
    death = {"kind": "node_death", "at_s": 200.0, "count": 1}
    summary = rehearse(groups=[gang], faults=[death])["summary"]
    assert summary["finished"] == {"group": 1}
    assert summary["tally"]["nodes_died"] == 1
    assert summary["tally"]["launches"] == 5


def test_row_19_a_stock_out_leads_to_the_next_offer_at_once(rehearse: Callable[..., dict[str, Any]]) -> None:
    """Without capacity for one kind of machine in one zone, the same was tried for ten minutes. Ours takes the next
    offer in the decision that hears of it, and leaves the exhausted one alone for a while."""
    document = rehearse(
        tasks=[EIGHT_TASKS], offers=ZONES, faults=[{"kind": "stockout", "zone": "a", "count": 1}]
    )
    steps = [(event["at_s"], event["text"]) for event in document["events"]]
    (refused_s,) = {at_s for at_s, text in steps if "FAILED: no worker in a" in text}
    assert (refused_s, "3 x worker wanted for waiting work: 6 x {CPU: 2}") in steps
    summary = document["summary"]
    assert summary["tally"]["refused"] == 3, "each of the three once, and never again"
    assert summary["tally"]["launches"] == 4
    assert summary["finished"] == {"task": 8}
    assert summary["cost"] == pytest.approx(
        summary["node_hours"]["worker"] * (1 * 1.0 + 3 * 2.0) / 4, rel=0.01
    )


KINDS = (HEAD, *(NodeType(f"kind{n}", {"CPU": 8.0 * n}, max_workers=100_000) for n in range(1, 5)))
DECIDING = AutoscalerConfig("c", "c", KINDS, "head", max_workers=20_050, upscaling_speed=100.0)


def work_to_decide(nodes: int, shapes: int, requests: int) -> int:
    """How many functions are called for one decision: `nodes` full ones, `requests` in so many shapes, room for 50
    more machines."""
    settings = replace(DECIDING, max_workers=nodes + 50)
    infos = [full_node(number, KINDS[1 + number % 4]) for number in range(nodes)]
    waiting = [Demand(request({"CPU": 1 + n / 10}), requests // shapes) for n in range(shapes)]
    reconciler = Reconciler(settings, Capabilities())
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    picture = World(ClusterState(1, 1000.0, infos, waiting, [], []), Listing(1000.0, ()), (), {}, {})
    sys.setprofile(count)
    try:
        reconciler.step(picture, 1000.0)
    finally:
        sys.setprofile(None)
    assert reconciler.plan.launches
    assert not reconciler.plan.is_partial
    return calls


def request(amounts: Mapping[str, float]) -> ResourceRequest:
    return ResourceRequest(to_units(amounts))


def full_node(number: int, kind: NodeType) -> NodeInfo:
    total = to_units(kind.resources)
    node_id = f"{number:028d}".encode()
    return NodeInfo(node_id, "ALIVE", "", "", "", "", False, "", total, {}, {}, node_type=kind.name)


def test_row_20_work_grows_with_kinds_and_not_with_numbers() -> None:
    """Some thousand waiting requests on some thousand nodes took a decision minutes. Ours counts equal requests and
    equal nodes: this counts the calls of functions that a decision takes."""
    work_to_decide(nodes=1, shapes=1, requests=1)  # what happens only once
    usual = work_to_decide(nodes=100, shapes=20, requests=2_000)
    assert work_to_decide(nodes=100, shapes=20, requests=2_000_000) < 1.5 * usual
    assert work_to_decide(nodes=100, shapes=40, requests=4_000) < 4 * usual
    more = work_to_decide(nodes=5_100, shapes=20, requests=2_000) - usual
    assert more / 5_000 < 40, "to read a node's report is all that a further equal one costs"


def test_row_21_a_machine_that_never_comes_makes_room_for_its_replacement() -> None:
    """With the maximum reached, a machine that had timed out stayed in the count until it was gone, and its replacement
    was not launched. Ours orders its end before it decides what to launch."""
    sim = world(ONE, Faults(boot_s=5.0, never_boots=1.0, stop_s=300.0))
    done: list[str] = []
    sim.at_point = lambda point: done.append(point) if point in ("after Terminate", "after Create") else None
    sim.run(30.0)
    (lost,) = ours(sim)
    sim.provider.faults.never_boots = 0.0
    while done == ["after Create"]:
        sim.run(1.0)
    sim.run(10.0)  # a type whose machine did not come rests for two seconds
    assert done[:3] == ["after Create", "after Terminate", "after Create"]
    sim.run(60.0)
    assert states(sim) == ["RUNNING", "TERMINATING"]
    assert lost in ours(sim), "the platform takes its time"


@pytest.mark.parametrize("at_s", [1.3, 30.0, 100.0])
@pytest.mark.parametrize("kind", ["autoscaler_restart", "memory_loss"])
def test_row_22_an_autoscaler_that_starts_anew_knows_its_machines(
    rehearse: Callable[..., dict[str, Any]], kind: str, at_s: float
) -> None:
    """The autoscaler's state went with the head: machines were launched again, or never ended. Ours carries on from
    what it saved, and without that from the platform's listing and the nodes that registered."""
    document = rehearse(tasks=[EIGHT_TASKS], faults=[{"kind": kind, "at_s": at_s}])
    summary = document["summary"]
    assert summary["finished"] == {"task": 8}
    assert summary["interrupted"] == {}
    for sample in document["timeline"]:
        there = sample["nodes"].get("worker", {})
        assert sum(count for state, count in there.items() if state != "ending") <= 4, sample
    assert document["timeline"][-1]["nodes"] == {}, "nothing runs on for ever"
