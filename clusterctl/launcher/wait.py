"""Waits until the workers that a spec demands have joined, and notices those that never will."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clusterctl.api_client import ApiClient
from clusterctl.errors import SetupFailed, TimedOut
from clusterctl.spec.definition import ClusterSpec

_MOST_NAMED = 10
_NEWS_S = 0.25
"""So often it looks for what else has happened than that all have joined, of which the head tells at once."""
_PAUSE_S = 0.05
"""Between two looks, whatever a head answers."""
_TOO_MANY = 3


_WORDS = {
    "QUEUED": "waits to be asked for",
    "REQUESTED": "asked for",
    "ALLOCATED": "boots",
    "RUNNING": "joined",
    "DRAINING": "drains",
    "TERMINATING": "ends",
}
JOINED = _WORDS["RUNNING"]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node and what it does now, in words."""

    name: str
    node_type: str
    doing: str


def rows_of(status: Mapping[str, Any], seen: Collection[str] = ()) -> list[NodeRow]:
    """The workers of a head's status, with the step of those that are being set up; of those that have ended only the
    ones that were `seen`."""
    report = status.get("autoscaler") or {}
    here = {node["instance_id"] for node in status.get("nodes", []) if node["state"] == "ALIVE"}
    rows = [
        NodeRow(item["id"], item["node_type"], JOINED if item["id"] in here else _doing(item))
        for item in report.get("instances", [])
    ]
    rows += [
        NodeRow(item["id"], item["node_type"], "failed" if item["failure"] else "has ended")
        for item in report.get("ended", [])
        if item["id"] in seen
    ]
    return sorted(rows, key=lambda row: (row.node_type, row.name))


def _doing(instance: Mapping[str, Any]) -> str:
    state, step = str(instance["state"]), instance.get("step", "")
    if state == "SETTING_UP":
        return f"set up: {step}" if step else "joins"
    return _WORDS.get(state, state)


def workers(status: Mapping[str, Any], leaving: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """The workers that have joined, but for those instances that are `leaving`. Pure."""
    return [
        node
        for node in status["nodes"]
        if node["state"] == "ALIVE" and not node["is_head"] and node["instance_id"] not in leaving
    ]


def missing_workers(
    spec: ClusterSpec, status: Mapping[str, Any], leaving: Collection[str] = ()
) -> dict[str, int]:
    """Node type -> how many workers are missing to its min_workers. Pure."""
    joined = Counter(node["node_type"] for node in workers(status, leaving))
    wanted = {name: kind.min_workers for name, kind in spec.available_node_types.items()}
    return {name: count - joined[name] for name, count in wanted.items() if count > joined[name]}


def failures(
    status: Mapping[str, Any], since_s: float, earlier: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The launches that failed since then, as the autoscaler reports them, but for `earlier` instances. Pure."""
    report = status.get("autoscaler") or {}
    return [
        failure
        for failure in report.get("failures", [])
        if failure["at_s"] >= since_s and failure["instance_id"] not in earlier
    ]


def instance_ids(status: Mapping[str, Any]) -> frozenset[str]:
    """The machines that the autoscaler has or makes. Pure."""
    report = status.get("autoscaler") or {}
    return frozenset(instance["id"] for instance in report.get("instances", []))


def is_hopeless(failed: Sequence[Mapping[str, Any]]) -> bool:
    """Whether waiting on makes no sense: a setup step failed, or launches fail again and again. Pure."""
    return any(failure["step"] for failure in failed) or len(failed) >= _TOO_MANY


def describe_failure(failure: Mapping[str, Any]) -> str:
    """One failed launch in one paragraph. Pure."""
    step = f" at step '{failure['step']}'" if failure["step"] else ""
    text = f"node {failure['instance_id']} ({failure['node_type']}){step}: {failure['reason']}"
    return f"{text}\n  its setup log on the head: {failure['setup_log']}" if failure["setup_log"] else text


def unserved(status: Mapping[str, Any]) -> Sequence[str]:
    """Why machines for min_workers are not even asked for: `gpu: the budget allows no more`."""
    report = status.get("autoscaler") or {}
    return [
        f"{item['demand'].removeprefix('min_workers ')}: {item['why']}"
        for item in report.get("waiting", [])
        if item["demand"].startswith("min_workers ")
    ]


class Watcher(Protocol):
    """Who is told how it goes."""

    def say(self, text: str) -> None: ...

    def nodes(self, rows: Iterable[NodeRow]) -> None: ...


def await_workers(
    api: ApiClient,
    spec: ClusterSpec,
    timeout_s: float,
    watcher: Watcher,
    earlier: Collection[str] = (),
    leaving: Collection[str] = (),
    since_s: float | None = None,
) -> int:
    """Waits for min_workers of every type; returns how many workers there are.

    Args:
        earlier: instances made from an earlier spec, whose failures say nothing about this one.
        leaving: instances that the new spec does away with: they do not count, however well they are.
        since_s: failures count from then on; default: now.

    Raises:
        SetupFailed: machines could not be made ready.
        TimedOut: they did not join in time; the message says where each of them stands.
    """
    since_s = time.time() if since_s is None else since_s
    deadline = time.monotonic() + timeout_s
    shown = ""
    seen: set[str] = set()
    awaited: dict[str, object] = {}
    while True:
        status = api.request("GET", "/api/cluster_status", query=awaited, patience_s=api.patience_s).json()
        missing = missing_workers(spec, status, leaving)
        rows = rows_of(status, seen)
        seen.update(row.name for row in rows)
        watcher.nodes(rows)
        if not missing:
            return len(workers(status, leaving))
        words = ", ".join(f"{count} {name}" for name, count in sorted(missing.items()))
        failed = failures(status, since_s, earlier)
        if is_hopeless(failed):
            raise SetupFailed(
                f"{words} did not come up:\n" + "\n".join(describe_failure(item) for item in failed[:5]),
                "Correct the spec and run `clusterctl up` again, or end the cluster with `clusterctl down`.",
            )
        if words != shown:
            watcher.say(f"waiting for {words}")
            shown = words
        if time.monotonic() >= deadline:
            raise TimedOut(
                "\n".join([f"after {timeout_s:g} s still waiting for {words}", *_standings(status, rows)]),
                "The cluster runs on: `clusterctl status` shows what the autoscaler does, `clusterctl logs` what the "
                "nodes say, `clusterctl down` ends it.",
            )
        alive = sum(node["state"] == "ALIVE" for node in status["nodes"])
        awaited = {"nodes": alive + sum(missing.values()), "wait_s": _NEWS_S}
        time.sleep(_PAUSE_S)


def _standings(status: Mapping[str, Any], rows: Sequence[NodeRow]) -> list[str]:
    """What those that have not joined do, and why others are not even asked for."""
    late = [f"  {row.name} ({row.node_type}): {row.doing}" for row in rows if row.doing != JOINED]
    return late[:_MOST_NAMED] + [f"  {text}" for text in unserved(status)]
