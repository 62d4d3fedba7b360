"""Finding the agent that a driver should attach to."""

from __future__ import annotations

import psutil

from runtime._node.registry import NodeRecord, records

__all__ = ["NodeRecord", "find_agent"]


def find_agent(address: str | None) -> NodeRecord | None:
    """The live agent of this host that belongs to a cluster, or None.

    Args:
        address: host:port of the cluster's control store; None for the cluster that was started last; "auto" likewise,
            and if there is none, for a session that `runtime.init()` started for one driver: the one of a driver that
            started this process, directly or not, else the youngest.
    """
    found = records()
    shared = [record for record in found if not record.local]
    if address not in (None, "", "auto"):
        shared = [record for record in shared if record.control_address == address]
    # The head first: on one machine the other nodes are only there for their resources.
    chosen = max(shared, key=lambda record: (record.is_head, record.started_s), default=None)
    if chosen is not None or address != "auto":
        return chosen
    ancestors = {parent.pid for parent in psutil.Process().parents()}
    local = [record for record in found if record.local]
    return max(local, key=lambda record: (_parent(record.pid) in ancestors, record.started_s), default=None)


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return 0
