"""The control groups of a local node."""

from __future__ import annotations

import msgspec

from runtime._core.isolation import Isolation
from runtime._node.control_groups import NodeGroups
from runtime._system.ready import Ready


def begin(described: str, ready_fd: int) -> NodeGroups | None:
    """Makes the groups, with this process in them. If there cannot be any, tells why, and returns None.

    Args:
        described: an `Isolation` in JSON.
    """
    try:
        return NodeGroups.begin(msgspec.json.decode(described, type=Isolation))
    except (OSError, ValueError) as error:
        Ready(ready_fd).tell({"error": str(error)})
        return None
