"""Finding the agent that a driver should attach to."""

from __future__ import annotations

from runtime._core.addresses import canonical
from runtime._node.registry import NodeRecord, records

__all__ = ["NodeRecord", "find_agent"]


def find_agent(address: str | None) -> NodeRecord | None:
    """The live agent of this host that belongs to a cluster, or None.

    Args:
        address: host:port of the cluster's control store; None for the cluster that was started last; "auto" for the
            one that this process belongs to, as something that a worker of it started, or that the driver of a local
            session started; else the cluster that was started last; else the youngest local session.
    """
    found = records()
    shared = [record for record in found if not record.local]
    if address and address != "auto":
        wanted = canonical(address)
        shared = [record for record in shared if canonical(record.control_address) == wanted]
    # The head first: on one machine the other nodes are only there for their resources.
    chosen = max(shared, key=lambda record: (record.is_head, record.started_s), default=None)
    if address != "auto":
        return chosen
    import psutil  # what init() needs otherwise comes up faster without it

    ancestors = {parent.pid for parent in psutil.Process().parents()}
    for record in found:
        if record.pid in ancestors or (record.local and _parent(record.pid) in ancestors):
            return record
    return chosen or max(found, key=lambda record: record.started_s, default=None)


def _parent(pid: int) -> int:
    import psutil

    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return 0
