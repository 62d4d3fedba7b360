"""The text of `clusterctl status`, from the head's JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterctl.demand_view import demand_lines
from clusterctl.output import duration, size, table

_EVENTS = 8
_JOBS = 5
_BYTES = ("memory", "object_store_memory")


def render(report: Mapping[str, Any], verbose: bool = False) -> list[str]:
    """All lines. `verbose`: how each instance came to be what it is, those that ended lately too."""
    lines = _nodes(report)
    scaling = report.get("autoscaler") or {}
    lines += _machines(scaling)
    lines += _instances(report, scaling) if verbose else []
    lines += demand_lines(report)
    lines += _failures(report, scaling)
    lines += _events(report, scaling)
    lines += _jobs(report)
    return lines


def nodes(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nodes that are not dead, the head first."""
    alive = [node for node in report["nodes"] if node["state"] != "DEAD"]
    return sorted(alive, key=lambda n: (not n["is_head"], n["node_type"], n["started_s"]))


def node_lines(report: Mapping[str, Any]) -> list[str]:
    """A table of these nodes."""
    now = float(report["now_s"])
    rows = []
    for node in nodes(report):
        idle = now - node["idle_since_s"] if node["idle_since_s"] else 0.0
        rows.append(
            (
                node["instance_id"] or node["node_id"][:12],
                "head" if node["is_head"] else node["node_type"],
                node["state"],
                usage(node["resources_total"], node["resources_available"]),
                f"idle {duration(idle)}" if node["idle_since_s"] else _busy(node),
            )
        )
    return list(table(("node", "type", "state", "in use", ""), rows))


def _nodes(report: Mapping[str, Any]) -> list[str]:
    count = len(nodes(report))
    lines = [f"cluster '{report['cluster_name']}': {count} node{'' if count == 1 else 's'}"]
    return lines + [f"  {line}" for line in node_lines(report)]


def _busy(node: Mapping[str, Any]) -> str:
    """That it works, and what keeps it from being idle."""
    held_by = node.get("held_by", "")
    return f"busy: {held_by}" if held_by else "busy"


def usage(total: Mapping[str, float], available: Mapping[str, float]) -> str:
    """`CPU 1/4, memory 0 B/2.0 GiB`: what is used of what there is."""
    parts = []
    for name in sorted(total):
        used = total[name] - available.get(name, 0.0)
        if name in _BYTES:
            parts.append(f"{name} {size(max(0.0, used))}/{size(total[name])}")
        else:
            parts.append(f"{name} {used:g}/{total[name]:g}")
    return ", ".join(parts)


def _machines(scaling: Mapping[str, Any]) -> list[str]:
    types = [kind for kind in scaling.get("types", []) if kind["max_workers"] or kind["states"]]
    if not types:
        return []
    rows = [
        (
            kind["name"],
            kind["running"],
            kind["pending"],
            kind["min_workers"],
            kind["max_workers"],
            ", ".join(f"{count} {state}" for state, count in sorted(kind["states"].items())),
        )
        for kind in types
    ]
    header = ("worker type", "running", "coming", "min", "max", "")
    return [
        "",
        f"workers (at most {scaling['max_workers']} in all)",
        *(f"  {line}" for line in table(header, rows)),
        *_budgets(scaling),
    ]


def _budgets(scaling: Mapping[str, Any]) -> list[str]:
    """What is used of what the operator allows, in one line; nothing where nothing is used."""
    parts = []
    for item in scaling.get("budgets", []):
        if item["used"] or item["is_set"]:
            of = f" of {item['most']:g}" if item["most"] is not None else ""
            parts.append(f"{item['what']} {item['used']:g}{of}")
    return [f"  budgets: {', '.join(parts)}"] if parts else []


def _instances(report: Mapping[str, Any], scaling: Mapping[str, Any]) -> list[str]:
    now = float(report["now_s"])
    lines = []
    for item in [*scaling.get("instances", []), *scaling.get("ended", [])]:
        where = [item["machine_id"], item["address"], item["zone"], item["market"]]
        parts = ", ".join(part for part in where if part)
        lines.append(
            f"  {item['id']} ({item['node_type']}) {item['state']} for "
            f"{duration(max(0.0, now - item['since_s']))}{': ' if parts else ''}{parts}"
        )
        lines += [
            f"  {duration(max(0.0, now - step['at_s'])):>10} ago  {step['state']:<11} {step['why']}"
            for step in item["history"]
        ]
        if item["setup_log"] and (item["failure"] or item["state"] == "SETTING_UP"):
            lines.append(f"    setup log on the head: {item['setup_log']}")
    return ["", "instances, and why they are what they are", *lines] if lines else []


def _failures(report: Mapping[str, Any], scaling: Mapping[str, Any]) -> list[str]:
    now = float(report["now_s"])
    lines = [f"  {text}" for text in scaling.get("problems", [])]
    drivers = report.get("remote_drivers") or {}
    if drivers.get("state") == "failing":
        lines.append(f"  no remote drivers (ray://{drivers['address']}): {drivers['problem']}")
    for failure in scaling.get("failures", []):
        step = f" at step '{failure['step']}'" if failure["step"] else ""
        ago = duration(max(0.0, now - failure["at_s"]))
        lines.append(
            f"  {failure['instance_id']} ({failure['node_type']}){step}, {ago} ago: {failure['reason']}"
        )
        if failure["setup_log"]:
            lines.append(f"    setup log on the head: {failure['setup_log']}")
    for item in scaling.get("resting", []):
        left = duration(max(0.0, item["until_s"] - now))
        lines.append(f"  {item['what']} is left alone for {left}: {item['why']}")
    return ["", "failures", *lines] if lines else []


def _events(report: Mapping[str, Any], scaling: Mapping[str, Any]) -> list[str]:
    now = float(report["now_s"])
    events = scaling.get("events", [])[-_EVENTS:]
    lines = [f"  {duration(max(0.0, now - item['at_s'])):>8} ago  {item['text']}" for item in events]
    return ["", "what the autoscaler did", *lines] if lines else []


def _jobs(report: Mapping[str, Any]) -> list[str]:
    jobs = report["jobs"][-_JOBS:]
    if not jobs:
        return []
    rows = [(job["submission_id"], job["status"], job["entrypoint"]) for job in jobs]
    return ["", "jobs", *(f"  {line}" for line in table(("job", "status", "entrypoint"), rows))]
