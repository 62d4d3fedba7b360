"""The text of `status`."""

from __future__ import annotations

from typing import Any

from clusterctl.status_view import render, usage

NODE = {
    "node_id": "ab" * 28,
    "state": "ALIVE",
    "is_head": True,
    "node_type": "head",
    "instance_id": "c-head",
    "resources_total": {"CPU": 4.0, "memory": 2.0**30},
    "resources_available": {"CPU": 1.5, "memory": 2.0**30},
    "started_s": 1.0,
    "idle_since_s": 0.0,
}


def report(**changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "cluster_name": "c",
        "now_s": 100.0,
        "nodes": [NODE],
        "demands": [],
        "placement_groups": [],
        "requested": [],
        "autoscaler": None,
        "jobs": [],
    }
    return {**empty, **changes}


def text(**changes: Any) -> str:
    return "\n".join(render(report(**changes)))


def test_a_server_for_remote_drivers_that_does_not_work() -> None:
    drivers = {
        "address": "127.0.0.1:10001",
        "state": "failing",
        "problem": "it does not start: ImportError: grpc",
    }
    assert "no remote drivers (ray://127.0.0.1:10001): it does not start: ImportError: grpc" in text(
        remote_drivers=drivers
    )
    assert "remote" not in text(remote_drivers={**drivers, "state": "listening", "problem": ""})


def test_nodes_and_what_they_use() -> None:
    assert "cluster 'c': 1 node" in text()
    assert "CPU 2.5/4, memory 0 B/1.0 GiB" in text()
    assert "busy" in text()
    assert "idle 20.0 s" in text(nodes=[{**NODE, "idle_since_s": 80.0}])


def test_what_keeps_a_node_from_being_idle() -> None:
    assert "busy: 2 leases, objects" in text(nodes=[{**NODE, "held_by": "2 leases, objects"}])


def test_budgets_are_shown_where_they_are_used_or_set() -> None:
    types = [{"name": "w", "running": 1, "pending": 0, "min_workers": 0, "max_workers": 3, "states": {}}]

    def shown(*budgets: tuple[str, float, float | None, bool]) -> str:
        items = [dict(zip(("what", "used", "most", "is_set"), one, strict=True)) for one in budgets]
        return text(autoscaler={"types": types, "max_workers": 3, "budgets": items})

    assert "budgets" not in shown(("price per hour", 0, None, False), ("drained at once", 0, 10, False))
    found = shown(
        ("price per hour", 2.5, 20, True), ("drained at once", 1, 10, False), ("idle", 3, None, False)
    )
    assert "  budgets: price per hour 2.5 of 20, drained at once 1 of 10, idle 3" in found


def test_dead_nodes_are_left_out() -> None:
    assert "c-head" not in text(nodes=[{**NODE, "state": "DEAD"}])


def test_failures_name_node_step_and_log() -> None:
    failure = {
        "instance_id": "i",
        "node_type": "w",
        "at_s": 90.0,
        "reason": "no disk",
        "step": "s",
        "setup_log": "/l",
    }
    shown = text(autoscaler={"types": [], "failures": [failure], "problems": ["the platform is down"]})
    assert "i (w) at step 's', 10.0 s ago: no disk" in shown
    assert "/l" in shown
    assert "the platform is down" in shown


def test_the_last_events_and_jobs() -> None:
    events = [{"at_s": float(i), "text": f"event {i}"} for i in range(20)]
    jobs = [{"submission_id": f"job-{i}", "status": "RUNNING", "entrypoint": "x"} for i in range(9)]
    shown = text(autoscaler={"types": [], "events": events}, jobs=jobs)
    assert "event 19" in shown
    assert "event 11" not in shown
    assert "job-8" in shown
    assert "job-3" not in shown


def test_usage_of_a_full_node() -> None:
    assert usage({"CPU": 1.0}, {}) == "CPU 1/1"


def test_the_life_of_each_instance_when_asked_for() -> None:
    one = {
        "id": "i-1",
        "node_type": "w",
        "state": "RUNNING",
        "since_s": 90.0,
        "machine_id": "m-1",
        "address": "",
        "zone": "a",
        "market": "spot",
        "setup_log": "/l",
        "failure": "",
        "history": [
            {"at_s": 40.0, "state": "QUEUED", "why": "waiting work"},
            {"at_s": 90.0, "state": "RUNNING", "why": "its node has joined"},
        ],
    }
    gone = {**one, "id": "i-2", "state": "TERMINATED", "failure": "no disk", "history": []}
    scaling = {"types": [], "instances": [one], "ended": [gone]}
    assert "i-1" not in text(autoscaler=scaling)
    shown = render(report(autoscaler=scaling), verbose=True)
    lines = [" ".join(line.split()) for line in shown]
    assert "i-1 (w) RUNNING for 10.0 s: m-1, a, spot" in lines
    assert any(line.endswith("ago QUEUED waiting work") for line in lines)
    assert "10.0 s ago RUNNING its node has joined" in lines
    assert lines.index("setup log on the head: /l") > lines.index(
        "i-2 (w) TERMINATED for 10.0 s: m-1, a, spot"
    )
