"""Finding the agent that a driver should attach to."""

from __future__ import annotations

from runtime._node.registry import NodeRecord, records

__all__ = ["NodeRecord", "find_agent"]


def find_agent(address: str | None) -> NodeRecord | None:
    """The live agent of this host that belongs to a cluster, or None.

    Args:
        address: host:port of the cluster's control store; "auto" or None for the cluster that was started
            last. Sessions that `runtime.init()` started for one driver are never found this way.
    """
    shared = [record for record in records() if not record.local]
    if address not in (None, "", "auto"):
        shared = [record for record in shared if record.control_address == address]
    # The head first: on one machine the other nodes are only there for their resources.
    return max(shared, key=lambda record: (record.is_head, record.started_s), default=None)
