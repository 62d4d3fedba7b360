"""What has happened to the cluster: nodes that came and went, processes that crashed, demand that nothing can serve."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime._control.cluster import Node
from runtime._wire.messages.control import AutoscalerReport, RegisterNode

KEPT = 1_000
"""How many events there are, the latest; in memory alone."""


class ClusterEvents:
    """Keeps the last events, as rows of `runtime.util.state.list_cluster_events`.

    Args:
        wall_time: unix time, as users see it.
    """

    def __init__(self, wall_time: Callable[[], float]) -> None:
        self._wall_time = wall_time
        self._notes: set[tuple[str, str]] = set()  # those of the last report
        self._nodes: set[bytes] = set()  # those that have joined, and live
        self.rows: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def add(self, severity: str, source: str, message: str, **fields: str) -> None:
        """An event has happened.

        Args:
            severity: INFO, WARNING or ERROR.
            source: the part of the cluster that noticed, by Ray's names.
            fields: what it is about.
        """
        self.rows.append(
            {
                "severity": severity,
                "time": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._wall_time())),
                "source_type": source,
                "message": message,
                "event_id": os.urandom(18).hex(),
                "custom_fields": fields,
            }
        )

    def node_registered(self, node: Node, _: RegisterNode) -> None:
        """A node has joined, or is back after its connection broke."""
        if node.node_id not in self._nodes:
            self._nodes.add(node.node_id)
            node_id = node.node_id.hex()
            message = f"Node {node_id} joined from {node.info.host}."
            self.add("INFO", "CLUSTER_LIFECYCLE", message, node_id=node_id)

    def node_dead(self, node: Node) -> None:
        """A node has left, or was lost."""
        self._nodes.discard(node.node_id)
        node_id = node.node_id.hex()
        message = f"Node {node_id} died. Address: {node.info.host}. {node.info.death_reason}"
        self.add("INFO" if node.info.left else "ERROR", "GCS", message, node_id=node_id)

    def processes_ended(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Processes have ended: those that crashed are events."""
        for row in rows:
            if row["exit_type"] != "SYSTEM_ERROR":
                continue
            kind = "Driver" if row["worker_type"] == "DRIVER" else "Worker"
            message = (
                f"{kind} {row['worker_id']} died. Address: {row['ip']}, Pid: {row['pid']}, "
                f"JobId: {row['job_id']}. {row['exit_detail']}"
            )
            self.add(
                "ERROR",
                "RAYLET",
                message,
                job_id=row["job_id"],
                node_id=row["node_id"],
                worker_id=row["worker_id"],
            )

    def learn(self, report: AutoscalerReport) -> None:
        """Takes what the autoscaler says for the first time of a demand."""
        notes = set(report.notes)
        for wanted, why in sorted(notes - self._notes):
            self.add("WARNING", "AUTOSCALER", f"{wanted}: {why}")
        self._notes = notes
