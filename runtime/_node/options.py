"""The command line of a node agent."""

from __future__ import annotations

import os

import msgspec

_ZYGOTE_DELAY_S = 5.0
_ZYGOTE_SPREAD_S = 15.0


def zygote_delay_s() -> float:
    """For a node of a cluster that comes up: until then the machine is for what else starts there, unless it has work.
    Nodes that came up together wait for another time each, as they may share processors."""
    return _ZYGOTE_DELAY_S + _ZYGOTE_SPREAD_S * os.urandom(1)[0] / 255


class NodeOptions(msgspec.Struct, kw_only=True):
    """Attributes:
    control: host:port of the control store.
    session_dir: private directory of this node.
    sockets_dir: private directory of this node's Unix sockets, whose paths must be short; "": in the session's.
    secret_file: holds the cluster's secret.
    host: address under which other nodes reach this one.
    resources: amounts; CPU and memory have defaults.
    store_bytes: shared memory for objects; 0: a default.
    head: this node is the cluster's head.
    instance_id: the autoscaler's name of this machine.
    node_type: that of the cluster's specification.
    node_id: hex; "": random.
    name: what users call this node; "": its host.
    exit_with_driver: end when the driver has left.
    remove_session_dir: leave no logs either.
    control_reconnect_s: end after this time without a control store.
    zygote_delay_s: delay of the zygote's start, unless a worker is wanted before.
    """

    control: str
    session_dir: str
    secret_file: str
    host: str = "127.0.0.1"
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    store_bytes: int = 0
    head: bool = False
    instance_id: str = ""
    node_type: str = ""
    node_id: str = ""
    name: str = ""
    exit_with_driver: bool = False
    remove_session_dir: bool = False
    control_reconnect_s: float = 7.0
    zygote_delay_s: float = 0.0
    sockets_dir: str = ""
