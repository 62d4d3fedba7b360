"""Answers what tasks, objects and processes there are, by asking those who know: every process, on every node."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from runtime._core.row_filters import chosen
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.control import ReportEnded
from runtime._wire.messages.node import ListState, StateRows, TasksTold

from .peers import PeerTable
from .processes import Process

_PROCESS_TIMEOUT_S = 3.0
_NODE_TIMEOUT_S = 8.0
TOLD_TASKS = 200
"""So many of the latest tasks that a process has told of are kept while it lives."""


class _Told:
    """What a process has told of its tasks."""

    def __init__(self) -> None:
        self._ended: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._pending = b"\x90"  # no rows

    def add(self, message: TasksTold) -> None:
        self._pending = message.pending
        self._ended.append((message.count, message.ended))
        self._count += message.count
        while self._count - self._ended[0][0] >= TOLD_TASKS:
            self._count -= self._ended.popleft()[0]

    def rows(self) -> list[dict[str, Any]]:
        """What to say of them once the process was killed: those that had not ended fail with it."""
        rows = [row for _, batch in self._ended for row in msgspec.msgpack.decode(batch)]
        for row in rows:
            row.pop("ran", None)
        now = int(time.time() * 1000)
        fails = {"state": "FAILED", "error_type": "OWNER_DIED", "end_time_ms": now}
        return rows[-TOLD_TASKS:] + [{**row, **fails} for row in msgspec.msgpack.decode(self._pending)]


class StateService:
    """Collects the rows of one node, and those of the others.

    Args:
        host: this node's address.
        processes: the drivers and workers of this node.
        peers: the other agents.
        other_nodes: the ids of the other live nodes.
        environments: the rows of the runtime environments of this node.
    """

    def __init__(
        self,
        host: str,
        processes: Callable[[], Iterable[Process]],
        peers: PeerTable,
        other_nodes: Callable[[], list[bytes]],
        environments: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._host = host
        self._processes = processes
        self._peers = peers
        self._other_nodes = other_nodes
        self._environments = environments
        self._told: dict[bytes, _Told] = {}  # by worker id

    async def collect(self, message: ListState) -> StateRows:
        """The rows of this node; with `everywhere`, of all. Who does not answer in time is left out."""
        request = ListState(message.kind, False, message.filters, message.limit)
        asked = [self._own(request)]
        if message.everywhere:
            asked += [self._of_node(node_id, request) for node_id in self._other_nodes()]
        found = [row for rows in await asyncio.gather(*asked) for row in rows]
        return StateRows(chosen(found, message.filters, message.limit))

    async def _own(self, request: ListState) -> list[dict[str, Any]]:
        if request.kind == "runtime_envs":
            return self._environments()
        processes = list(self._processes())
        if request.kind == "workers":
            return [self.worker_row(process) for process in processes]
        answers = [self._ask(process.channel, request, _PROCESS_TIMEOUT_S) for process in processes]
        found = []
        for process, rows in zip(processes, await asyncio.gather(*answers), strict=True):
            for row in rows:
                found.append({**row, "pid": process.pid, "ip": self._host})
        return found

    def worker_row(self, process: Process) -> dict[str, Any]:
        """A process that lives."""
        return {
            "worker_id": process.address.worker_id.hex(),
            "is_alive": True,
            "worker_type": "DRIVER" if process.worker is None else "WORKER",
            "exit_type": None,
            "node_id": process.address.node_id.hex(),
            "ip": self._host,
            "pid": process.pid,
        }

    def tasks_told(self, process: Process, message: TasksTold) -> None:
        """Keeps what a process says of its tasks, for the case that it is killed."""
        if not process.channel.closed:
            self._told.setdefault(process.address.worker_id, _Told()).add(message)

    def tasks_reported(self, process: Process) -> None:
        """A process that is about to end has told the control store of its tasks itself."""
        self._told.pop(process.address.worker_id, None)

    def ended(self, process: Process, reason: str, intended: bool) -> list[ReportEnded]:
        """What the control store is to keep of a process."""
        row = {
            **self.worker_row(process),
            "job_id": process.job_id.hex(),
            "is_alive": False,
            "exit_type": "INTENDED_USER_EXIT" if intended else "SYSTEM_ERROR",
            "exit_detail": reason,
            "end_time_ms": int(time.time() * 1000),
        }
        reports = [ReportEnded("workers", [row])]
        told = self._told.pop(process.address.worker_id, None)
        if told is not None:
            reports.append(ReportEnded("tasks", told.rows()))
        return reports

    async def _of_node(self, node_id: bytes, request: ListState) -> list[dict[str, Any]]:
        try:
            async with asyncio.timeout(_NODE_TIMEOUT_S):
                channel = await self._peers.channel(node_id)
        except (CallError, TimeoutError):
            return []
        return await self._ask(channel, request, _NODE_TIMEOUT_S)

    async def _ask(self, channel: Channel, request: ListState, timeout_s: float) -> list[dict[str, Any]]:
        try:
            return (await channel.call(request, timeout_s)).rows
        except CallError:
            return []  # it ends, or is too busy to answer
