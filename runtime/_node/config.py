"""What a node agent is started with."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from runtime._core.accelerator_facts import TpuSlice, known_by_amount
from runtime._core.accelerators import HARDWARE, split_ids
from runtime._core.labels import ACCELERATOR_TYPE, MARKET_TYPE, NODE_GROUP, NODE_ID, REGION, ZONE
from runtime._core.resources import to_units
from runtime._store.spiller import SpillSettings
from runtime._system import files, settings
from runtime._transport.channel import Channel, Handler

from .gpus import find_gpus
from .zygote_spawn import SpawnedZygote

MAX_DEFAULT_STORE_BYTES = 8 << 30
_STORE_SHARE = 0.3
_MEMORY_SHARE = 0.7
_LABELS_FROM = {
    NODE_GROUP: settings.NODE_TYPE,
    MARKET_TYPE: settings.NODE_MARKET,
    REGION: settings.NODE_REGION,
    ZONE: settings.NODE_ZONE,
}
"""Labels that environment variables set."""


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
        zygote_delay_s: otherwise, delay of its start, unless a worker is wanted before.
        remove_session_dir: leave nothing of the session at the end, logs included.
        workers_group: folder of the control group that workers enter; "": none.
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
    workers_group: str = ""

    @property
    def cpu_count(self) -> int:
        """Whole CPUs of the node."""
        return self.total.get("CPU", 0) // 10_000


def spill_settings(config: AgentConfig) -> SpillSettings:
    """Where and when objects are spilled. The default folder is the session's.

    Raises:
        SettingError: an environment variable has a wrong value.
    """
    directory = settings.SPILLING_DIRECTORY.get()
    if not directory:
        path = settings.SPILLING_CONFIG.get().get("params", {}).get("directory_path", "")
        directory = path if isinstance(path, str) else next(iter(path), "")
    root = directory.removeprefix("file://") or config.session_dir
    return SpillSettings(
        os.path.join(os.path.abspath(root), f"ray_spilled_objects_{config.node_id.hex()}"),
        settings.SPILLING_THRESHOLD.get(),
        settings.SPILLING.get(),
        disk_full_from=settings.DISK_FULL_FROM.get(),
        report_bytes=settings.VERBOSE_SPILLING.get(),
    )


def exit_grace_s() -> float:
    """How long an exiting process may take, user code included."""
    return settings.EXIT_GRACE_MS.get() / 1000


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


def _tpu_slice() -> TpuSlice:
    return TpuSlice(
        settings.TPU_ACCELERATOR_TYPE.get(),
        settings.TPU_NAME.get(),
        settings.TPU_WORKER_ID.get(),
        settings.TPU_TOPOLOGY.get(),
    )


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
    given = {**resources, **settings.OVERRIDE_RESOURCES.get()}
    amounts: dict[str, float] = {"CPU": float(len(os.sched_getaffinity(0)))}
    amounts["memory"] = float(int(memory_bytes() * _MEMORY_SHARE))
    gpu_type = ""
    if "GPU" not in given:
        count, gpu_type = find_gpus()
        visible = split_ids(settings.VISIBLE_DEVICES[HARDWARE["GPU"].variable].get())
        amounts["GPU"] = float(count if visible is None else min(count, len(visible)))
        if amounts["GPU"] and gpu_type:
            amounts[f"accelerator_type:{gpu_type}"] = 1.0
    amounts.update(given)
    amounts["object_store_memory"] = float(store_bytes)
    amounts[f"node:{host}"] = 1.0
    if is_head:
        amounts["node:__internal_head__"] = 1.0
    found = {key: setting.get() for key, setting in _LABELS_FROM.items()}
    for kind in known_by_amount(amounts, _tpu_slice()):
        found |= kind.labels
        amounts = {**kind.resources, **amounts}
    if amounts.get("GPU"):
        found[ACCELERATOR_TYPE] = gpu_type
    own = {key: value for key, value in found.items() if value}
    return to_units(amounts), {**own, **labels, **settings.OVERRIDE_LABELS.get(), NODE_ID: node_id.hex()}
