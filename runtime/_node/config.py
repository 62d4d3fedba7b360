"""What a node agent is started with."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtime._core.resources import to_units
from runtime._store.disk import FULL_FROM
from runtime._store.spiller import SPILL_THRESHOLD, SpillSettings
from runtime._transport.channel import Channel, Handler

from .zygote_spawn import SpawnedZygote

MAX_DEFAULT_STORE_BYTES = 8 << 30
_STORE_SHARE = 0.3
_MEMORY_SHARE = 0.7


@dataclass(slots=True)
class AgentConfig:
    """Settings of one node.

    Attributes:
        node_id: 28 bytes.
        session_dir: private directory for sockets, logs and working directories of this node.
        host: address under which other nodes reach this one.
        total: resources in wire units.
        store_bytes: size of the shared memory for objects.
        secret: the cluster's secret.
        control_address: host:port of the control store, "" when it lives in this process.
        connect_control: opens a connection to the control store.
        listen_tcp: serve other agents.
        exit_with_driver: stop when the first driver has left, or none came in time.
        zygote: one that was started before everything else.
        remove_session_dir: leave nothing of the session at the end, logs included.
    """

    node_id: bytes
    session_dir: str
    host: str
    total: dict[str, int]
    labels: dict[str, str]
    store_bytes: int
    secret: bytes
    control_address: str
    connect_control: Callable[[Handler], Awaitable[Channel]]
    is_head: bool = False
    instance_id: str = ""
    node_type: str = ""
    listen_tcp: bool = True
    exit_with_driver: bool = False
    remove_session_dir: bool = False
    control_reconnect_s: float = 7.0
    local: bool = False
    zygote: SpawnedZygote | None = None

    @property
    def cpu_count(self) -> int:
        """Whole CPUs of the node, at least one."""
        return max(1, self.total.get("CPU", 0) // 10_000)


def _setting(name: str, default: str) -> str:
    return os.environ.get(f"RAY_{name}", default)


def spill_settings(config: AgentConfig) -> SpillSettings:
    """Where and when objects are spilled: what the environment says under Ray's names, else below the session's
    directory from 0.8 on."""
    directory = _setting("object_spilling_directory", "")
    if not directory and (described := _setting("object_spilling_config", "")):
        given = json.loads(described).get("params", {}).get("directory_path", "")
        directory = given if isinstance(given, str) else next(iter(given), "")
    root = directory.removeprefix("file://") or config.session_dir
    return SpillSettings(
        os.path.join(os.path.abspath(root), f"ray_spilled_objects_{config.node_id.hex()}"),
        float(_setting("object_spilling_threshold", str(SPILL_THRESHOLD))),
        _setting("automatic_object_spilling_enabled", "1").lower() not in ("0", "false"),
        disk_full_from=float(_setting("local_fs_capacity_threshold", str(FULL_FROM))),
    )


def memory_bytes() -> int:
    """Memory that this machine, or the control group we run in, has."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def default_store_bytes() -> int:
    """30 % of the memory that is there, at most 8 GiB."""
    return min(int(memory_bytes() * _STORE_SHARE), MAX_DEFAULT_STORE_BYTES)


def node_resources(given: Mapping[str, float], store_bytes: int) -> dict[str, int]:
    """The node's resources in wire units: what was given, and this machine's own for the rest."""
    amounts: dict[str, float] = {"CPU": float(len(os.sched_getaffinity(0)))}
    amounts["memory"] = float(int(memory_bytes() * _MEMORY_SHARE))
    amounts.update(given)
    amounts["object_store_memory"] = float(store_bytes)
    return to_units(amounts)
