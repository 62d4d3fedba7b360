"""What a machine is told that joins a cluster. Imports little."""

from __future__ import annotations

import msgspec


class JoinOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Travels to a worker's machine as JSON.

    Attributes:
        address: HOST:PORT of the head's control store.
        secret_file: holds the cluster's secret; `~` is the home directory.
        host: address of this machine, for the other nodes.
        resources: what this node brings.
        instance_id: the autoscaler's name of this machine.
    """

    address: str
    secret_file: str
    host: str
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    node_type: str = ""
    instance_id: str = ""
