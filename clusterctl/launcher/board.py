"""Where each node stands while a cluster comes up, and since when. Pure: the clock's time comes with every update."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(slots=True)
class _Entry:
    row: NodeRow
    since_s: float
    spent_s: dict[str, float]


class Board:
    """All nodes that were seen."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def update(self, rows: Iterable[NodeRow], now_s: float) -> list[NodeRow]:
        """Takes in where these nodes stand; returns those that stand elsewhere than before. Others stay as they
        were."""
        changed = []
        for row in rows:
            entry = self._entries.get(row.name)
            if entry is None:
                self._entries[row.name] = _Entry(row, now_s, {})
                changed.append(row)
            elif entry.row.doing != row.doing:
                _count(entry, now_s)
                entry.row, entry.since_s = row, now_s
                changed.append(row)
        return changed

    def rows(self, now_s: float) -> list[tuple[NodeRow, float]]:
        """Every node, and for how long it has done what it does; those that have not joined first."""
        found = [(entry.row, now_s - entry.since_s) for entry in self._entries.values()]
        return sorted(found, key=lambda item: item[0].doing == JOINED)

    def spent(self, now_s: float) -> dict[str, dict[str, float]]:
        """Node -> what it did -> for how long; without what it does now that it has joined."""
        out = {}
        for name, entry in self._entries.items():
            spent = dict(entry.spent_s)
            if entry.row.doing != JOINED:
                spent[entry.row.doing] = spent.get(entry.row.doing, 0.0) + now_s - entry.since_s
            out[name] = spent
        return out


def _count(entry: _Entry, now_s: float) -> None:
    doing = entry.row.doing
    entry.spent_s[doing] = entry.spent_s.get(doing, 0.0) + now_s - entry.since_s


def unserved(status: Mapping[str, Any]) -> Sequence[str]:
    """Why machines for min_workers are not even asked for: `gpu: the budget allows no more`."""
    report = status.get("autoscaler") or {}
    return [
        f"{item['demand'].removeprefix('min_workers ')}: {item['why']}"
        for item in report.get("waiting", [])
        if item["demand"].startswith("min_workers ")
    ]
