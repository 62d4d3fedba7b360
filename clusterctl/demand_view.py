"""What waits in a cluster, and for what: the demand part of `clusterctl status`, from the head's JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clusterctl.output import duration

_LINES = 20
"""Of one kind; `status --json` has them all."""

_ORDER = ("infeasible", "waits", "coming", "met")
_COMING = "machines are on their way"

_Notes = dict[str, list[Mapping[str, Any]]]
"""What the autoscaler says of a demand. Parts of one may wait for different things."""


def demand_lines(report: Mapping[str, Any]) -> list[str]:
    """Tasks and actors by shape, placement groups, explicit requests, and the minimum: what each waits for."""
    scaling = report.get("autoscaler") or {}
    notes: _Notes = {}
    for item in scaling.get("waiting", []):
        notes.setdefault(item["demand"], []).append(item)
    is_growing = any(kind["pending"] for kind in scaling.get("types", []))
    lines = [
        *_first(_shape(item, notes, is_growing) for item in report["demands"]),
        *_first(_groups(report["placement_groups"], notes, is_growing)),
        *_first(_requests(report, scaling)),
        *_first(
            ("waits", f"{item['count']} x {item['demand']}: {item['why']}")
            for item in scaling.get("waiting", [])
            if item["demand"].startswith("min_workers ")
        ),
    ]
    return ["", "demand", *(f"  {line}" for line in lines or ["none"])]


def _first(entries: Iterable[tuple[str, str]]) -> list[str]:
    """The worst first, and not too many."""
    ordered = sorted(entries, key=lambda entry: _ORDER.index(entry[0]))
    lines = [line for _, line in ordered[:_LINES]]
    if len(ordered) > _LINES:
        lines.append(f"... and {len(ordered) - _LINES} more like these")
    return lines


def _fate(text: str, count: int, notes: _Notes, is_growing: bool) -> tuple[str, str]:
    """What the autoscaler says of `count` equal demands, as (state, words)."""
    rest = _COMING if is_growing else "waits for room"
    mine = notes.get(text, [])
    if not mine:
        return "coming", rest
    state = "infeasible" if any(note["infeasible"] for note in mine) else "waits"
    if len(mine) == 1 and mine[0]["count"] >= count:
        return state, f"{state}: {mine[0]['why']}"
    parts: dict[str, int] = {}
    for note in mine:
        parts[note["why"]] = parts.get(note["why"], 0) + note["count"]
    words = [f"{number} wait: {why}" for why, number in parts.items()]
    if sum(parts.values()) < count:
        words.append(f"for the others, {_COMING}")
    return state, "; ".join(words)


def _shape(item: Mapping[str, Any], notes: _Notes, is_growing: bool) -> tuple[str, str]:
    state, words = _fate(item["text"], item["count"], notes, is_growing)
    if item["strategy"] == "NODE_AFFINITY" and state == "coming":
        words = "waits for its node"
    elif item["infeasible"] and state == "coming" and not is_growing:
        state, words = "infeasible", "no node of today can hold one"
    return state, f"{item['count']} x {item['text']}: {words}"


def _groups(
    groups: Iterable[Mapping[str, Any]], notes: _Notes, is_growing: bool
) -> Iterable[tuple[str, str]]:
    counts: dict[str, int] = {}
    partly: dict[str, int] = {}
    for group in groups:
        counts[group["text"]] = counts.get(group["text"], 0) + 1
        partly[group["text"]] = partly.get(group["text"], 0) + bool(group["placed"])
    for text, count in counts.items():
        state, words = _fate(text, count, notes, is_growing)
        part = f" ({partly[text]} of them in part placed)" if partly[text] else ""
        yield state, f"{count} x {text}{part}: {words}"


def _requests(report: Mapping[str, Any], scaling: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    known = {item["owner"]: item for item in scaling.get("requested", [])}
    for request in report["requested"]:
        bundles = ", ".join(f"{bundle['count']} x {bundle['text']}" for bundle in request["bundles"][:5])
        if len(request["bundles"]) > 5:
            bundles += f", and {len(request['bundles']) - 5} more"
        status = known.get(request["owner"], {"state": "coming", "why": ""})
        words = {"met": "met", "coming": _COMING}.get(status["state"], f"{status['state']}: {status['why']}")
        yield status["state"], f"requested by {_owner(request)}{_left(request, report)}: {bundles}: {words}"


def _owner(request: Mapping[str, Any]) -> str:
    name, job_id = str(request["owner"]), request["job_id"]
    if name == job_id:
        return f"job {job_id}"
    return f"'{name}' of job {job_id}" if job_id else f"'{name}'"


def _left(request: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    if not request["expires_s"]:
        return ""
    return f" ({duration(max(0.0, request['expires_s'] - report['now_s']))} left)"
