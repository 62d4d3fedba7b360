"""Logs of processes: `list_logs` and `get_log`.

Files of this node are read directly, files of other nodes by a task that runs there.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO

from runtime import api
from runtime._process.core_worker import current
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import GetNodes, ListActors
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .api import connect, list_tasks
from .exception import RayStateApiException

_CATEGORIES = (
    ("worker_out", re.compile(r"worker-.*\.out(\.\d+)?")),
    ("worker_err", re.compile(r"worker-.*\.err(\.\d+)?")),
    ("raylet", re.compile(r"agent\.log")),
    ("gcs_server", re.compile(r"control\.log")),
    ("autoscaler", re.compile(r"head\.log|setup-.*")),
    ("driver", re.compile(r"job-.*")),
)
_CHUNK_BYTES = 1 << 20
_NAME_MARK = b"\x01name:"  # of a line that says who wrote what follows: it is no output
Place = tuple[int, int]
"""The inode of a file, and an offset in it."""
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
        address: the cluster, if this program is not connected.
        node_id, node_ip: the node; give one of them.
        glob_filter: only files whose names match.
        timeout: seconds to wait for the node.

    Raises:
        ValueError: no node is given.
        RayStateApiException: the node does not exist.
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
    """Yields the log of a process in pieces. Give one of `filename`, `actor_id`, `task_id`, `pid`, `submission_id`; a
    file or a pid also needs `node_id` or `node_ip`. The log of a task is that of its worker.

    Args:
        follow: continue with new output, without an end.
        tail: only this many lines at the end; -1: all.
        suffix: "out" or "err".
        encoding: None gives bytes.
        attempt_number: of the task.
        _interval: seconds between reads of a followed file.
        filter_ansi_code: remove colour codes.

    Raises:
        ValueError: the arguments do not identify a log.
        RayStateApiException: the node, actor, task or file does not exist.
    """
    connect(address)
    if suffix not in ("out", "err"):
        raise ValueError(f"suffix must be 'out' or 'err', not {suffix!r}.")
    node, pattern = _place(
        node_id, node_ip, filename, actor_id, task_id, pid, submission_id, attempt_number, timeout
    )
    wanted = pattern.format(suffix)
    every = _on(node, timeout, _names, _folder(node))
    names = [name for name in every if fnmatch.fnmatch(name, wanted)]
    if not names:  # rotated, and nothing was written since
        names = [name.removesuffix(".1") for name in every if fnmatch.fnmatch(name, f"{wanted}.1")]
    if not names:
        raise RayStateApiException(f"Could not find a log file {wanted} on node {node.node_id.hex()}.")
    path = os.path.join(_folder(node), names[0])

    def pieces() -> Iterator[Any]:
        place = _on(node, timeout, _start, path, tail, filename is None)
        while True:
            data, place = _on(node, timeout, _read, path, place)
            text = b"".join(
                line for line in data.splitlines(keepends=True) if not line.startswith(_NAME_MARK)
            )
            if text and encoding is None:
                yield text
            elif text:
                decoded = text.decode(encoding or "utf-8", errors or "strict")
                yield _ANSI.sub("", decoded) if filter_ansi_code else decoded
            elif data:
                continue
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


def _rotated(path: str) -> list[str]:
    """A log with its older files, the oldest first."""
    numbers = [name.rpartition(".")[2] for name in glob.glob(f"{glob.escape(path)}.*")]
    older = sorted((int(number) for number in numbers if number.isdigit()), reverse=True)
    return [*(f"{path}.{number}" for number in older), path]


def _opened(path: str) -> Iterator[tuple[int, BinaryIO]]:
    """The files of a log by their inodes, which a rotation does not change."""
    for name in _rotated(path):
        try:
            with open(name, "rb") as file:
                yield os.fstat(file.fileno()).st_ino, file
        except FileNotFoundError:  # rotated at this moment
            continue


def _read(path: str, place: Place) -> tuple[bytes, Place]:
    """The next piece, up to the end of a line where there is one, and where it ends."""
    inode, offset = place
    inodes = [found for found, _ in _opened(path)]
    if inode not in inodes:
        inode, offset = inodes[0] if inodes else 0, 0
    reached = False
    for found, file in _opened(path):
        reached |= found == inode
        if not reached:
            continue
        start = offset if found == inode else 0
        file.seek(start)
        data = file.read(_CHUNK_BYTES)
        end = data.rfind(b"\n") + 1
        if end and len(data) == _CHUNK_BYTES:
            data = data[:end]
        place = found, start + len(data)
        if data:
            return data, place
    return b"", place


def _start(path: str, lines: int, with_older: bool) -> Place:
    """Where the last lines of a log begin, or all where `lines` is negative; lines that name the writer do not count.

    Args:
        with_older: whether rotated files count.
    """
    starts: deque[Place] = deque(maxlen=lines if lines > 0 else None)
    first = last = None
    for name in _rotated(path) if with_older else [path]:
        try:
            with open(name, "rb") as file:
                inode, offset = os.fstat(file.fileno()).st_ino, 0
                first = first or (inode, 0)
                for line in file if lines >= 0 else ():
                    if lines and not line.startswith(_NAME_MARK):
                        starts.append((inode, offset))
                    offset += len(line)
                last = inode, offset
        except FileNotFoundError:
            continue
    if lines == 0:
        return last or (0, 0)
    return starts[0] if len(starts) == lines else first or (0, 0)
