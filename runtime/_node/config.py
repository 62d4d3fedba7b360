"""What a node agent is started with."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from runtime._core.accelerators import HARDWARE, split_ids
from runtime._core.labels import ACCELERATOR_TYPE, MARKET_TYPE, NODE_GROUP, NODE_ID, REGION, ZONE
from runtime._core.resources import to_units
from runtime._store.disk import FULL_FROM
from runtime._store.spiller import SPILL_THRESHOLD, SpillSettings
from runtime._system import files
from runtime._transport.channel import Channel, Handler

from .gpus import find_gpus
from .zygote_spawn import SpawnedZygote

MAX_DEFAULT_STORE_BYTES = 8 << 30
_STORE_SHARE = 0.3
_MEMORY_SHARE = 0.7
_LABELS_FROM = {
    NODE_GROUP: "RAY_NODE_TYPE_NAME",
    MARKET_TYPE: "RAY_NODE_MARKET_TYPE",
    REGION: "RAY_NODE_REGION",
    ZONE: "RAY_NODE_ZONE",
}
"""Labels that whoever started the machine tells by environment variables."""


class AgentConfig(msgspec.Struct):
    """Settings of one node.

    Attributes:
        node_id: 28 bytes.
        session_dir: private directory for logs and working directories of this node.
        sockets_dir: private directory for its Unix sockets; "": `sockets` in the session's.
        host: address under which other nodes reach this one.
        total: resources in wire units.
        store_bytes: size of the shared memory for objects.
        secret: the cluster's secret.
        control_address: host:port of the control store, "" when it lives in this process.
        connect_control: opens a connection to the control store.
        listen_tcp: serve other agents.
        exit_with_driver: stop when the first driver has left, or none came in time.
        name: what the user calls it; "": its host.
        zygote: one that was started before everything else.
        zygote_delay_s: so long after the start it comes otherwise, unless a worker is wanted before.
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
    zygote_delay_s: float = 0.0
    name: str = ""
    sockets_dir: str = ""

    @property
    def cpu_count(self) -> int:
        """Whole CPUs of the node, at least one."""
        return max(1, self.total.get("CPU", 0) // 10_000)


def settings() -> dict[str, str]:
    """What this process's environment says under the names of Ray's `_system_config`: those in small letters."""
    prefix = "RAY_"
    return {
        name.removeprefix(prefix): value
        for name, value in os.environ.items()
        if name.startswith(prefix) and name[len(prefix) :][:1].islower()
    }


def spill_settings(config: AgentConfig) -> SpillSettings:
    """Where and when objects are spilled: what the environment says under Ray's names, else below the session's
    directory from 0.8 on."""
    given = settings()
    directory = given.get("object_spilling_directory", "")
    if not directory and (described := given.get("object_spilling_config", "")):
        path = json.loads(described).get("params", {}).get("directory_path", "")
        directory = path if isinstance(path, str) else next(iter(path), "")
    root = directory.removeprefix("file://") or config.session_dir
    return SpillSettings(
        os.path.join(os.path.abspath(root), f"ray_spilled_objects_{config.node_id.hex()}"),
        float(given.get("object_spilling_threshold", str(SPILL_THRESHOLD))),
        given.get("automatic_object_spilling_enabled", "1").lower() not in ("0", "false"),
        disk_full_from=float(given.get("local_fs_capacity_threshold", str(FULL_FROM))),
    )


def exit_grace_s() -> float:
    """How long a process that ends by itself may take, user code included."""
    return int(settings().get("actor_graceful_shutdown_timeout_ms", "30000")) / 1000


def memory_bytes() -> int:
    """Memory that this machine, or the control group we run in, has."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = files.read("/sys/fs/cgroup/memory.max").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def default_store_bytes() -> int:
    """30 % of the memory that is there, at most 8 GiB."""
    return min(int(memory_bytes() * _STORE_SHARE), MAX_DEFAULT_STORE_BYTES)


def node_inventory(
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    *,
    node_id: bytes,
    host: str,
    is_head: bool,
    store_bytes: int,
) -> tuple[dict[str, int], dict[str, str]]:
    """What a node offers: its resources in wire units, and its labels.

    What is given goes before what this machine has, and what the environment says (RAY_OVERRIDE_RESOURCES and
    RAY_OVERRIDE_LABELS, JSON) before both.

    Raises:
        ValueError: an amount or a label is wrong.
    """
    given = {**resources, **_override("RAY_OVERRIDE_RESOURCES")}
    amounts: dict[str, float] = {"CPU": float(len(os.sched_getaffinity(0)))}
    amounts["memory"] = float(int(memory_bytes() * _MEMORY_SHARE))
    gpu_type = ""
    if "GPU" not in given:
        count, gpu_type = find_gpus()
        visible = split_ids(os.environ.get(HARDWARE["GPU"].variable))
        amounts["GPU"] = float(count if visible is None else min(count, len(visible)))
        if amounts["GPU"] and gpu_type:
            amounts[f"accelerator_type:{gpu_type}"] = 1.0
    amounts.update(given)
    amounts["object_store_memory"] = float(store_bytes)
    amounts[f"node:{host}"] = 1.0
    if is_head:
        amounts["node:__internal_head__"] = 1.0
    found = {key: os.environ.get(name, "") for key, name in _LABELS_FROM.items()}
    if amounts.get("GPU"):
        found[ACCELERATOR_TYPE] = gpu_type
    own = {key: value for key, value in found.items() if value}
    return to_units(amounts), {**own, **labels, **_override("RAY_OVERRIDE_LABELS"), NODE_ID: node_id.hex()}


def _override(variable: str) -> dict[str, Any]:
    text = os.environ.get(variable)
    if not text:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{variable} is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{variable} must be a JSON object, not {text!r}")
    return values
