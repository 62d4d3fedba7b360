"""What processes wrote: `list_logs` and `get_log`.

Files of this process's node are read here, those of other nodes by a task that runs there.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from runtime import api
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import GetNodes, ListActors
from runtime._worker.core_worker import current
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .api import connect, list_tasks
from .exception import RayStateApiException

_CATEGORIES = (
    ("worker_out", re.compile(r"worker-.*\.out")),
    ("worker_err", re.compile(r"worker-.*\.err")),
    ("raylet", re.compile(r"agent\.log")),
    ("gcs_server", re.compile(r"control\.log")),
    ("autoscaler", re.compile(r"head\.log|setup-.*")),
    ("driver", re.compile(r"job-.*")),
)
_CHUNK_BYTES = 1 << 20
_NAME_MARK = b"\x01name:"  # of a line that says who wrote what follows: it is no output
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: float = 30,
) -> dict[str, list[str]]:
    """The names of a node's log files, by kind: worker_out, worker_err, raylet, gcs_server and others.

    Args:
        address: of the cluster, if this program is not connected.
        node_id, node_ip: which node; one of them.
        glob_filter: only files whose names match.
        timeout: seconds to wait for the node.

    Raises:
        ValueError: no node is named.
        RayStateApiException: there is no such node.
    """
    connect(address)
    node = _node(node_id, node_ip, timeout)
    found: dict[str, list[str]] = {}
    for name in _on(node, timeout, _names, _folder(node)):
        if fnmatch.fnmatch(name, glob_filter or "*"):
            kind = next((kind for kind, pattern in _CATEGORIES if pattern.fullmatch(name)), "internal")
            found.setdefault(kind, []).append(name)
    return found


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: float = 30,
    suffix: str = "out",
    encoding: str | None = "utf-8",
    errors: str | None = "strict",
    submission_id: str | None = None,
    attempt_number: int = 0,
    _interval: float | None = None,
    filter_ansi_code: bool = False,
) -> Iterator[Any]:
    """What a process wrote, in pieces. Who wrote it is named by one of `filename`, `actor_id`, `task_id`, `pid` and
    `submission_id`; a file and a pid need `node_id` or `node_ip` as well. A task's output is that of its worker.

    Args:
        follow: go on for ever, with what comes.
        tail: the last lines only, so many; -1: all.
        suffix: "out" or "err".
        encoding: None gives bytes.
        attempt_number: of the task.
        _interval: seconds between looks at a followed file.
        filter_ansi_code: leave colours out.

    Raises:
        ValueError: nothing, or not enough, is named.
        RayStateApiException: there is no such node, actor, task or file.
    """
    connect(address)
    if suffix not in ("out", "err"):
        raise ValueError(f"suffix must be 'out' or 'err', not {suffix!r}.")
    node, pattern = _place(
        node_id, node_ip, filename, actor_id, task_id, pid, submission_id, attempt_number, timeout
    )
    names = [
        name
        for name in _on(node, timeout, _names, _folder(node))
        if fnmatch.fnmatch(name, pattern.format(suffix))
    ]
    if not names:
        raise RayStateApiException(
            f"Could not find a log file {pattern.format(suffix)} on node {node.node_id.hex()}."
        )
    path = os.path.join(_folder(node), names[0])

    def pieces() -> Iterator[Any]:
        offset = 0 if tail < 0 else _on(node, timeout, _start_of_tail, path, tail)
        while True:
            data = _on(node, timeout, _read, path, offset)
            offset += len(data)
            data = b"".join(
                line for line in data.splitlines(keepends=True) if not line.startswith(_NAME_MARK)
            )
            if data and encoding is None:
                yield data
            elif data:
                text = data.decode(encoding or "utf-8", errors or "strict")
                yield _ANSI.sub("", text) if filter_ansi_code else text
            elif not follow:
                return
            else:
                time.sleep(_interval or 1.0)

    return pieces()


# ---------------------------------------------------------------- where it is


def _place(
    node_id: str | None,
    node_ip: str | None,
    filename: str | None,
    actor_id: str | None,
    task_id: str | None,
    pid: int | None,
    submission_id: str | None,
    attempt_number: int,
    timeout: float,
) -> tuple[NodeInfo, str]:
    """The node, and a pattern for the file's name with a place for the suffix."""
    if actor_id is not None:
        actors = {info.actor_id.hex(): info for info in current().ask(ListActors(), timeout).actors}
        actor = actors.get(actor_id)
        if actor is None or not actor.pid:
            raise RayStateApiException(f"Could not find the process of actor {actor_id}.")
        return _node(actor.node_id.hex(), None, timeout), f"worker-*-{actor.pid}.{{}}"
    if task_id is not None:
        rows = list_tasks(None, [("task_id", "=", task_id)], 10_000, timeout)
        row = next((row for row in rows if row.attempt_number == attempt_number), None)
        if row is None or row.worker_pid is None:
            raise RayStateApiException(f"Could not find a living worker that ran task {task_id}.")
        return _node(row.node_id, None, timeout), f"worker-*-{row.worker_pid}.{{}}"
    if submission_id is not None:
        return _node(None, None, timeout, head=True), f"job-{submission_id}.log"
    if filename is not None:
        return _node(node_id, node_ip, timeout), glob.escape(filename).replace("{", "{{").replace("}", "}}")
    if pid is not None:
        return _node(node_id, node_ip, timeout), f"worker-*-{pid}.{{}}"
    raise ValueError("get_log() needs one of filename, actor_id, task_id, pid and submission_id.")


def _node(node_id: str | None, node_ip: str | None, timeout: float, head: bool = False) -> NodeInfo:
    if node_id is None and node_ip is None and not head:
        raise ValueError("Which node? At least one of node_id and node_ip is required.")
    for node in current().ask(GetNodes(), timeout).nodes:
        wanted = node.is_head if head else node.node_id.hex() == node_id or node.host == node_ip
        if wanted and node.state != "DEAD":
            found: NodeInfo = node
            return found
    raise RayStateApiException(f"Could not find a living node {node_id or node_ip or 'that is the head'}.")


def _folder(node: NodeInfo) -> str:
    return os.path.join(node.session_dir, "logs")


def _on(node: NodeInfo, timeout: float, function: Any, *arguments: Any) -> Any:
    """Runs a function on a node."""
    if node.node_id == current().address.node_id:
        return function(*arguments)
    strategy = NodeAffinitySchedulingStrategy(node.node_id.hex(), soft=False)
    task = api.remote(num_cpus=0, scheduling_strategy=strategy)(function)
    return api.get(task.remote(*arguments), timeout=timeout)


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


def _read(path: str, offset: int) -> bytes:
    """The next piece, up to the end of a line where there is one."""
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(_CHUNK_BYTES)
    end = data.rfind(b"\n") + 1
    return data[:end] if end and len(data) == _CHUNK_BYTES else data


def _start_of_tail(path: str, lines: int) -> int:
    """Where the last lines of a file begin; lines that name the writer do not count."""
    starts = []
    offset = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.startswith(_NAME_MARK):
                starts.append(offset)
            offset += len(line)
    return starts[-lines] if 0 < lines <= len(starts) else (offset if lines == 0 else 0)
