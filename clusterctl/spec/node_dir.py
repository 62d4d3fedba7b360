"""Where a node keeps what must outlive a restart of its machine. Pure."""

from __future__ import annotations

from .definition import ClusterSpec

NODE_FOLDER = ".clusterctl-node"
"""In the home directory of the machine's user."""
SOCKETS = "CLUSTERCTL_SOCKETS_DIR"
"""Environment variable of a machine: the folder of its node's Unix sockets."""


def node_dir(spec: ClusterSpec, node_type: str) -> str:
    """`node_dir` of a node type; "" when the spec has none."""
    kind = spec.available_node_types.get(node_type)
    return (kind.node_dir if kind is not None else "") or spec.node_dir


def session_dir(spec: ClusterSpec, node_type: str, home: str, unique: str) -> str:
    """The folder of a node's state, logs, environments and spilled objects.

    A home directory is too long a path for Unix sockets: a runtime that keeps them in this folder, as Ray does, stays
    in /tmp unless the spec names another place.

    Args:
        home: the home directory of the machine's user.
        unique: names this node on its machine.
    """
    given = node_dir(spec, node_type)
    if not given and not spec.runtime.has_sockets_apart:
        return sockets_dir(unique)
    base = (given or f"~/{NODE_FOLDER}").rstrip("/")
    if base == "~" or base.startswith("~/"):
        base = home + base[1:]
    return f"{base}/{unique}"


def sockets_dir(session: str) -> str:
    """The folder of a node's Unix sockets, whose paths must be short. The node makes it when it starts."""
    return f"/tmp/clusterctl-{session.rpartition('/')[2]}"
