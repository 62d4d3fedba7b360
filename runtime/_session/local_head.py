"""A local cluster with a head, for drivers that ask for the job API: `init(include_dashboard=True)`.

The head is `clusterctl`'s, with its control store and node agent as processes of their own, so it comes up later than a
local session without one. It ends with the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from runtime._node import registry
from runtime._system import files

from .coming_up import DaemonError, node_amounts
from .daemons import Daemon, start_module
from .directories import new_session_dir, write_secret
from .discovery import find_agent

USUAL_PORT = 8265
_START_TIMEOUT_S = 45.0
_HOST = "127.0.0.1"


def start_local_head(
    *,
    api_port: int | None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    object_store_memory: int | None = None,
    memory: float | None = None,
    host: str = _HOST,
    node_name: str = "",
    session_dir: str | None = None,
    env_vars: Mapping[str, str] | None = None,
) -> Daemon:
    """Starts a head with one node; `ready` holds "unix_path" of the node's agent, "control_address" and "api_url".

    Args:
        api_port: where its API listens; default: 8265, or another if that is in use.

    Raises:
        DaemonError: it did not come up.
    """
    amounts: dict[str, Any] = node_amounts(num_cpus, num_gpus, memory, resources)
    if object_store_memory is not None:
        amounts["object_store_memory"] = object_store_memory
    session = session_dir or new_session_dir()
    config = {
        "cluster_id": f"local-{os.urandom(4).hex()}",
        "cluster_name": "local",
        "host": host,
        "api_port": _usual_port() if api_port is None else api_port,
        "resources": amounts,
        "labels": dict(labels or {}),
        "node_name": node_name,
        "is_temporary": True,
    }
    config_file = os.path.join(session, "head.json")
    with open(config_file, "w", encoding="utf-8") as file:
        json.dump(config, file)
    arguments = ["--config", config_file, "--secret-file", write_secret(session), "--session-dir", session]
    # A driver on a cluster's machine: these would lead to the files of that machine's own node.
    own = {"CLUSTERCTL_SESSION_DIR": "", "CLUSTERCTL_SOCKETS_DIR": ""}
    try:
        daemon = start_module(
            "clusterctl.head",
            arguments,
            session,
            "head",
            False,
            _START_TIMEOUT_S,
            {**(env_vars or {}), **own},
        )
        agent = find_agent(daemon.ready["control_address"])
        if agent is None:
            daemon.stop()
            raise DaemonError("the head's node ended as soon as it was up")
    except DaemonError:
        _remove(session)
        raise
    cut = daemon.cut_lifeline

    def finish() -> None:
        cut()
        _remove(session)  # the head does so itself, unless it was killed

    daemon.cut_lifeline = finish
    daemon.ready["unix_path"] = agent.unix_path
    return daemon


def _usual_port() -> int:
    """8265, or 0, which means any, if that is in use."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT


def _remove(session: str) -> None:
    files.remove_tree(session)
    registry.remove_empty(os.path.dirname(session))
