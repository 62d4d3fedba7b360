"""A cluster of real nodes grows with each kind of demand, says why, and shrinks to its minimum again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually

SPEC = """\
cluster_name: scaling
provider: {type: local}
max_workers: 4
idle_timeout_minutes: 0.03
head_node_type: head
available_node_types:
  head:
    resources: {CPU: 0}
  worker:
    resources: {CPU: 1}
    min_workers: 1
    max_workers: 4
  fast:
    resources: {CPU: 1, disk: 1}
    labels: {disk: fast}
    max_workers: 1
"""

BURST = """
import os, time, runtime

runtime.init()

@runtime.remote
def work(go):
    while not os.path.exists(go):
        time.sleep(0.01)
    return runtime.get_runtime_context().get_node_id()

nodes = runtime.get([work.remote({go!r}) for _ in range(200)])
print("done", len(nodes), "on", len(set(nodes)))
"""

GROUP = """
import runtime
from runtime.util.placement_group import placement_group, placement_group_table

runtime.init()
group = placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
runtime.get(group.ready())
print("nodes", len(set(placement_group_table(group)["bundles_to_node_id"].values())))
"""

ACTOR = """
import runtime

runtime.init()

@runtime.remote(num_cpus=1, label_selector={"disk": "fast"})
class Reader:
    def where(self):
        return runtime.get_runtime_context().get_node_id()

node_id = runtime.get(Reader.remote().where.remote())
print("labels", next(node["Labels"]["disk"] for node in runtime.nodes() if node["NodeID"] == node_id))
"""

REQUEST = """
import runtime
from runtime.autoscaler.sdk import request_resources

runtime.init()
request_resources(num_cpus=3, owner="nightly", ttl_s=%d)
"""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster with one worker, and room for four."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    spec = cli.folder / "scaling.yaml"
    spec.write_text(SPEC)
    ran = cli.run("up", "-y", str(spec))
    assert ran.status == 0, ran.err
    yield cli
    cli.run("down", "-y", str(spec))


def workers(status: dict[str, Any]) -> list[str]:
    """The types of the workers that are there."""
    return sorted(node["node_type"] for node in alive(status) if not node["is_head"])


def waiting(status: dict[str, Any]) -> list[tuple[str, int]]:
    """What waits, counted."""
    return [(demand["text"], demand["count"]) for demand in status["demands"]]


def at_its_minimum(cli: Cli) -> bool:
    return cli.wait(lambda status: workers(status) == ["worker"] and not machines_beside(status, 1))


def machines_beside(status: dict[str, Any], count: int) -> bool:
    """Whether there are more machines than `count` that have not ended."""
    return len(status["autoscaler"]["instances"]) > count


def said(status: dict[str, Any]) -> list[str]:
    """What the autoscaler says it did, and why."""
    return [event["text"] for event in status["autoscaler"]["events"]]


def launched_for(status: dict[str, Any], reason: str) -> bool:
    return any("wanted for" in text and reason in text for text in said(status))


def ended_for(status: dict[str, Any], reason: str) -> int:
    return sum("DRAINING" in text and reason in text for text in said(status))


def ended_launched_for(status: dict[str, Any], reason: str) -> bool:
    """Whether the records of the workers that ended name the launch's reason, and idleness as that of the end."""
    records = [
        {step["state"]: step["why"] for step in item["history"]} for item in status["autoscaler"]["ended"]
    ]
    assert all(record["DRAINING"].startswith("idle for") for record in records), records
    return any(reason in record["QUEUED"] for record in records)


def test_a_burst_of_tasks(cli: Cli) -> None:
    go = cli.folder / "go"
    before = ended_for(cli.status(), "idle for")
    job = cli.start("submit", cli.script(BURST.replace("{go!r}", repr(str(go))), folder="burst"))
    try:
        assert cli.wait(lambda status: waiting(status) == [("{CPU: 1}", 196)]), cli.status()
        status = cli.status()
        assert workers(status) == ["worker"] * 4
        assert launched_for(status, "waiting work: 3 x {CPU: 1}"), said(status)
        told = "196 x {CPU: 1}: waits: max_workers 4 of node type 'worker' is reached"
        assert eventually(lambda: told in cli.run("status").out), cli.run("status").out
    finally:
        go.touch()
        out, err = job.communicate(timeout=60)
    assert "done 200 on 4" in out, err
    assert at_its_minimum(cli), cli.status()
    assert ended_for(cli.status(), "idle for") - before == 3, json.dumps(said(cli.status()), indent=1)
    assert ended_launched_for(cli.status(), "waiting work: 3 x {CPU: 1}")


def test_a_group_of_which_each_bundle_wants_a_node_of_its_own(cli: Cli) -> None:
    ran = cli.run("submit", cli.script(GROUP, folder="group"))
    assert "nodes 3" in ran.out, ran.err
    assert launched_for(cli.status(), "placement group STRICT_SPREAD [3 x {CPU: 1}]")
    assert at_its_minimum(cli), cli.status()
    assert ended_launched_for(cli.status(), "placement group STRICT_SPREAD [3 x {CPU: 1}]")


def test_an_actor_that_only_one_type_can_hold(cli: Cli) -> None:
    ran = cli.run("submit", cli.script(ACTOR, folder="actor"))
    assert "labels fast" in ran.out, ran.err
    assert any("x fast: wanted for" in text for text in said(cli.status()))
    assert at_its_minimum(cli), cli.status()
    assert ended_launched_for(cli.status(), "waiting work: 1 x {CPU: 1} with labels {disk: fast}")


def test_a_request_that_outlives_its_program_and_expires(cli: Cli) -> None:
    assert cli.run("submit", cli.script(REQUEST % 600, folder="request")).status == 0

    def is_met(status: dict[str, Any]) -> bool:
        requests = status["autoscaler"]["requested"]
        return [(r["owner"], r["state"]) for r in requests] == [("nightly", "met")]

    assert cli.wait(is_met), cli.status()
    status = cli.status()
    assert workers(status) == ["worker"] * 3
    assert launched_for(status, "requested explicitly")
    assert status["requested"][0]["bundles"][0]["count"] == 3
    shown = cli.run("status").out
    assert "requested by 'nightly' (9 min" in shown
    assert "left): 3 x {CPU: 1}: met" in shown
    assert cli.run("submit", cli.script(REQUEST % 1, folder="request")).status == 0
    assert eventually(lambda: cli.status()["requested"] == [])
    assert at_its_minimum(cli), json.dumps(cli.status())
    assert ended_launched_for(cli.status(), "requested explicitly")
