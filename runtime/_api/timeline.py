"""When tasks and calls ran, in the format of Chrome's tracing (Trace Event Format, complete events)."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from runtime._api.cluster_view import connected
from runtime._wire.messages.control import GetNodes
from runtime._wire.messages.node import ListState

_ASK_TIMEOUT_S = 30.0
_MICROSECONDS = 1e6


def timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """The tasks and calls that have ended, each with its worker and the time it was in user code; and what programs
    have measured of themselves (`_private.profiling.profile`).

    A task is known to the process that submitted it: those of processes that have ended are not there, nor are those
    before the last 10 000 of each process, nor constructors of actors.

    Args:
        filename: where to write the events as JSON, for chrome://tracing or ui.perfetto.dev.

    Returns:
        The events, unless they are written to a file. Times are in microseconds, `pid` is the node's address and
        `tid` the worker.

    Raises:
        RaySystemError: this process is not connected.
    """
    core = connected()
    addresses = {node.node_id.hex(): node.host for node in core.ask(GetNodes(), _ASK_TIMEOUT_S).nodes}
    rows = core.ask(ListState("tasks", everywhere=True), _ASK_TIMEOUT_S).rows
    events = [event for row in rows if "ran" in row for event in _events(row, addresses)]
    spans = core.ask(ListState("spans", everywhere=True), _ASK_TIMEOUT_S).rows
    events += [_span(row, addresses) for row in spans]
    if filename is None:
        return events
    pathlib.Path(filename).write_text(json.dumps(events))
    return None


def _span(row: dict[str, Any], addresses: dict[str, str]) -> dict[str, Any]:
    kind = "driver" if row["is_driver"] else "worker"
    return {
        "cat": row["name"],
        "name": row["extra"].get("name", row["name"]),
        "pid": addresses.get(row["node_id"], row["node_id"]),
        "tid": f"{kind}:{row['worker_id']}",
        "ts": row["began_s"] * _MICROSECONDS,
        "dur": (row["ended_s"] - row["began_s"]) * _MICROSECONDS,
        "ph": "X",
        "cname": row["extra"].get("cname", "generic_work"),
        "args": row["extra"],
    }


def _events(row: dict[str, Any], addresses: dict[str, str]) -> list[dict[str, Any]]:
    function_name, ended_s, seconds = row["ran"]
    common = {
        "pid": addresses.get(row["node_id"], row["node_id"]),
        "tid": f"worker:{row['worker_id']}",
        "ts": (ended_s - seconds) * _MICROSECONDS,
        "dur": seconds * _MICROSECONDS,
        "ph": "X",
    }
    arguments = {"name": function_name, "task_id": row["task_id"], "attempt_number": row["attempt_number"]}
    outcome = {} if row["state"] == "FINISHED" else {"error_type": row["error_type"]}
    return [
        {
            **common,
            "cat": f"task::{row['name']}",
            "name": function_name,
            "cname": "generic_work",
            "args": arguments,
        },
        {**common, "cat": "task:execute", "name": "task:execute", "cname": "rail_animation", "args": outcome},
    ]
