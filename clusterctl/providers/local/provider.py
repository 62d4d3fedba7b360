"""The provider protocol over local machines. What exists is what the disk and the process table say."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from autoscaler.provider import (
    Capabilities,
    Capacity,
    Config,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Prepared,
    Problem,
    ProviderError,
    Shell,
    Transient,
)
from clusterctl import processes
from clusterctl.artefacts.target import Target
from clusterctl.providers import ownership
from clusterctl.providers.ownership import OWNER_TAG, ForeignCluster, Owner
from clusterctl.providers.protocol import ForHead
from clusterctl.shell.local import LocalShell
from runtime._system import settings

from . import machine as machines
from .config import LocalNodeConfig
from .machine import LocalMachine

_SOCKET_ROOM = 48
"""Bytes of a Unix socket's path (107 at most) that sockets below a machine's folder need."""


def default_root() -> str:
    """`<tmp>/clusterctl-<uid>/m`: short, private, gone when the last machine is."""
    base = settings.TEMPORARY_ROOT.get() or tempfile.gettempdir()
    return os.path.join(base, f"clusterctl-{os.getuid()}", "m")


class LocalMachines:
    """The machines of one cluster on this host. See `autoscaler.provider.Provider` for the contract."""

    def __init__(self, cluster_id: str, owner: Owner, root: str = "", listing_lag_s: float = 0.0) -> None:
        self._cluster_id = cluster_id
        self._owner = owner
        self._root = Path(root or default_root())
        self._lag_s = listing_lag_s

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(stop_start=True, listing_lag_s=self._lag_s, restarts_head=False)

    def settings(self) -> Mapping[str, str]:
        return {"root": str(self._root), **self._owner.settings()}

    def for_head(self) -> ForHead:
        return ForHead(self.settings())

    @property
    def head_extras(self) -> None:
        return None

    def default_resources(self) -> dict[str, float]:
        """All CPUs of the host; of its memory only a part, because several machines share it."""
        memory = psutil.virtual_memory().total
        return {
            "CPU": float(len(os.sched_getaffinity(0))),
            "memory": float(memory // 4),
            "object_store_memory": float(memory // 8),
        }

    def check(self, node_types: Sequence[NodeType]) -> list[Problem]:
        problems = []
        length = len(str(self._root)) + 9
        if length + _SOCKET_ROOM > 107:
            problems.append(
                Problem(
                    f"the machines' folder {self._root} is too long for Unix sockets",
                    f"Set provider.root (or CLUSTERCTL_TMPDIR) to at most {98 - _SOCKET_ROOM} bytes.",
                )
            )
        parent = next(folder for folder in (self._root, *self._root.parents) if folder.exists())
        if not os.access(parent, os.W_OK | os.X_OK):
            problems.append(
                Problem(
                    f"the machines' folder {self._root} cannot be made: {parent} is not writable",
                    "Set provider.root (or CLUSTERCTL_TMPDIR) to a folder you may write.",
                )
            )
        for node_type in node_types:
            try:
                _node_config(node_type)
            except Config as error:
                problems.append(Problem(str(error), "Correct node_config of the type."))
        return problems

    def targets(self, node_types: Sequence[NodeType]) -> Mapping[str, Target]:
        return {}  # they have this very interpreter

    def check_offline(self, node_types: Sequence[NodeType]) -> list[Problem]:
        return self.check(node_types)

    def prepare(self, node_types: Sequence[NodeType]) -> Prepared:
        return Prepared({"machines": str(self._root)})

    def offers(self, node_type: NodeType) -> list[Offer]:
        if node_type.zones and "local" not in node_type.zones:
            return []
        return [Offer(zone="local", resources=dict(node_type.resources))]

    def create(self, request: LaunchRequest) -> LaunchResult:
        config = _node_config(request.node_type)
        if config.create_latency_s:
            time.sleep(config.create_latency_s)
        made: list[Machine] = []
        errors: list[ProviderError] = []
        with self._locked():
            present = [other for other in self._all() if other.node_type == request.node_type.name]
            for index in range(request.count):
                machine = self._describe(request, index, config)
                exists = any(other.id == machine.id for other in present)
                if not exists and config.capacity is not None and len(present) >= config.capacity:
                    errors.append(
                        Capacity(
                            f"this host has no more machines of type {request.node_type.name}: "
                            f"node_config.capacity is {config.capacity}"
                        )
                    )
                    continue
                if not exists:
                    machine.create()
                    present.append(machine)
                try:
                    machine.boot()
                except (ProviderError, OSError) as error:
                    machine.remove()
                    errors.append(error if isinstance(error, ProviderError) else Transient(str(error)))
                    continue
                made.append(machine.listed())
        return LaunchResult(tuple(made), tuple(errors))

    def list(self) -> list[Machine]:
        horizon = time.time() - self._lag_s
        return [
            machine.listed() for machine in self._all() if not self._lag_s or machine.launched_s <= horizon
        ]

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        mine = {machine.id: machine for machine in self._all()}
        result: dict[str, ProviderError | None] = {
            id: None if id in mine else NotFound(f"there is no machine {id}") for id in ids
        }
        ending = [mine[id] for id in ids if id in mine]
        stuck = processes.end([machine.id for machine in ending])
        for machine in ending:
            if stuck:
                result[machine.id] = Transient(f"processes {sorted(stuck)} do not end", 1.0)
            else:
                machine.remove()
        return result

    def stop(self, ids: Sequence[str]) -> None:
        """Ends what runs on the machines, init included, and keeps their folders."""
        processes.end([machine.id for machine in self._all() if machine.id in ids], grace_s=1.0)

    def start(self, ids: Sequence[str]) -> None:
        """Boots stopped machines."""
        for machine in self._all():
            if machine.id in ids:
                machine.boot()

    def clusters(self, name: str) -> Sequence[str]:
        """Ids of the clusters of that name and our owner that have machines."""
        found = set()
        for machine in self._every():
            if (
                machine.tags.get(OWNER_TAG) == self._owner.id
                and machine.tags.get(MachineTags.CLUSTER_NAME) == name
            ):
                found.add(machine.tags[MachineTags.CLUSTER_ID])
        return sorted(found)

    def foreign(self, name: str) -> Sequence[ForeignCluster]:
        of_name = (m.listed() for m in self._every() if m.tags.get(MachineTags.CLUSTER_NAME) == name)
        return ownership.foreign(of_name, self._owner)

    def shell(self, machine: Machine) -> Shell:
        found = machines.read(self._root / machine.id)
        if found is None:
            raise NotFound(f"there is no machine {machine.id}")
        return LocalShell(str(found.folder / "home"), found.environment())

    def cleanup(self) -> None:
        """Removes drafts whose creator is dead (or was interrupted here), and the root once it is empty."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._root):
                creator = entry.name.rpartition(".")[2]
                abandoned = creator == str(os.getpid()) or not (
                    creator.isdigit() and processes.runs(int(creator))
                )
                if entry.name.startswith(".") and abandoned:
                    shutil.rmtree(entry.path, ignore_errors=True)
        for folder in (self._root, self._root.parent):
            with contextlib.suppress(OSError):  # others' machines are in it, or it is gone
                folder.rmdir()

    # -- inside

    def _describe(self, request: LaunchRequest, index: int, config: LocalNodeConfig) -> LocalMachine:
        digest = hashlib.sha256(f"{self._cluster_id}/{request.token}/{index}".encode()).hexdigest()[:8]
        tags = {
            **request.tags_of(index),
            MachineTags.CLUSTER_ID: self._cluster_id,
            **self._owner.tags(),
        }
        return LocalMachine(
            id=digest,
            folder=self._root / digest,
            node_type=request.node_type.name,
            tags=tags,
            zone=request.offer.zone,
            launched_s=time.time(),
            vanish_after_s=config.vanish_after_s,
        )

    def _every(self) -> Iterator[LocalMachine]:
        try:
            names = sorted(os.listdir(self._root))
        except FileNotFoundError:
            return
        for name in names:
            machine = None if name.startswith(".") else machines.read(self._root / name)
            if machine is not None:
                yield machine

    def _all(self) -> Sequence[LocalMachine]:
        return [m for m in self._every() if m.tags.get(MachineTags.CLUSTER_ID) == self._cluster_id]

    def _make_root(self) -> None:
        for folder in (self._root.parent, self._root):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._root.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._root} belongs to another user")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One creator at a time on this host, so that capacities hold."""
        while True:
            self._make_root()
            try:
                descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:  # another cluster's clean-up took it just now
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self._root.exists() and self._root.stat().st_ino == os.fstat(descriptor).st_ino:
                break
            os.close(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)


def _node_config(node_type: NodeType) -> LocalNodeConfig:
    try:
        return msgspec.convert(dict(node_type.node_config), LocalNodeConfig)
    except msgspec.ValidationError as error:
        raise Config(f"node_config of {node_type.name}: {error}") from error
