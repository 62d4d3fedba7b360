"""A provider in one file: each machine is a folder of this host, with the processes that were started in it.

    PYTHONPATH=examples/providers clusterctl up examples/providers/directories.yaml

docs/adding-a-provider.md explains the protocol. A real platform differs in four places: `create`, `list` and
`terminate` call its API, and `shell` enters a machine (`clusterctl.providers.access.SshAccess` does it by SSH).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autoscaler import provider as protocol
from autoscaler.provider import Machine, MachineTags, NodeType
from clusterctl import processes
from clusterctl.artefacts.target import Target
from clusterctl.providers import ownership
from clusterctl.providers.ownership import OWNER_TAG, ForeignCluster, Ownership
from clusterctl.providers.protocol import ForHead, Seat
from clusterctl.shell.local import LocalShell
from clusterctl.spec.definition import ClusterSpec

ZONE = "here"


class Directories:
    """The machines of one cluster. `settings` are those of `settings()`, or those that a new cluster begins with. The
    seat makes no difference: operator and head are on the same host."""

    def __init__(self, spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat) -> None:
        self._config = spec.provider.config
        self._cluster_id = cluster_id
        self._ownership = Ownership(settings)
        self._root = Path(settings.get("root") or self._config.get("root") or default_root())

    # -- what the autoscaler asks, on the head

    @property
    def capabilities(self) -> protocol.Capabilities:
        return protocol.Capabilities(restarts_head=False)  # the crontab is the host's

    def check(self, node_types: Sequence[NodeType]) -> list[protocol.Problem]:
        problems = [
            protocol.Problem(f"provider.config has no setting '{name}'", "Remove it; there is only 'root'.")
            for name in self._config.keys() - {"root"}
        ]
        for kind in node_types:
            if kind.node_config:
                advice = "Remove node_config: a folder has no settings."
                problems.append(protocol.Problem(f"node type {kind.name} has a node_config", advice))
        return problems

    def prepare(self, node_types: Sequence[NodeType]) -> protocol.Prepared:
        return protocol.Prepared({"folders": str(self._root)})  # nothing is needed around them

    def offers(self, node_type: NodeType) -> list[protocol.Offer]:
        if node_type.zones and ZONE not in node_type.zones:
            return []
        return [protocol.Offer(zone=ZONE, resources=dict(node_type.resources))]

    def create(self, request: protocol.LaunchRequest) -> protocol.LaunchResult:
        made = []
        for index in range(request.count):
            # The name follows from the token: asked again, the same machine is found.
            token = f"{self._cluster_id}/{request.token}/{index}"
            folder = self._root / hashlib.sha256(token.encode()).hexdigest()[:8]
            for part in ("home", "tmp"):
                (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
            ours = {MachineTags.CLUSTER_ID: self._cluster_id, **self._ownership.owner.tags()}
            machine = Machine(
                id=folder.name,
                state=protocol.MachineState.RUNNING,
                node_type=request.node_type.name,
                tags={**request.tags_of(index), **ours},
                address="127.0.0.1",
                zone=request.offer.zone,
                launched_s=time.time(),
            )
            made.append(_read(folder) or _write(folder, machine))
        return protocol.LaunchResult(tuple(made))

    def list(self) -> list[Machine]:
        return [m for m in self._everyone() if m.tags[MachineTags.CLUSTER_ID] == self._cluster_id]

    def terminate(self, ids: Sequence[str]) -> dict[str, protocol.ProviderError | None]:
        ours = {machine.id for machine in self.list()}
        answers: dict[str, protocol.ProviderError | None] = {}
        for id in ids:
            if id not in ours:
                answers[id] = protocol.NotFound(f"there is no machine {id}")
                continue
            stuck = processes.end([id])
            if not stuck:
                shutil.rmtree(self._root / id, ignore_errors=True)
            answers[id] = protocol.Transient(f"processes {sorted(stuck)} do not end") if stuck else None
        return answers

    def shell(self, machine: Machine) -> protocol.Shell:
        folder = self._root / machine.id
        return LocalShell(str(folder / "home"), _environment(folder))

    def cleanup(self) -> None:
        if self._root.is_dir() and not any(self._root.iterdir()):  # other clusters' machines may be in it
            self._root.rmdir()

    # -- what the launcher asks besides, on the operator's machine

    def check_offline(self, node_types: Sequence[NodeType]) -> list[protocol.Problem]:
        return self.check(node_types)

    def stop(self, ids: Sequence[str]) -> None:
        raise protocol.Config("folders cannot be stopped: run `clusterctl down`")

    def start(self, ids: Sequence[str]) -> None:
        raise protocol.Config("folders are never stopped, so none can be started")

    def clusters(self, name: str) -> Sequence[str]:
        named = [m.tags for m in self._everyone() if m.tags[MachineTags.CLUSTER_NAME] == name]
        mine = [tags for tags in named if tags[OWNER_TAG] == self._ownership.owner.id]
        return sorted({tags[MachineTags.CLUSTER_ID] for tags in mine})

    def foreign(self, name: str) -> Sequence[ForeignCluster]:
        named = (m for m in self._everyone() if m.tags[MachineTags.CLUSTER_NAME] == name)
        return ownership.foreign(named, self._ownership.owner)

    def settings(self) -> Mapping[str, str]:
        return {"root": str(self._root), **self._ownership.owner.settings()}

    def for_head(self) -> ForHead:
        return ForHead(self.settings())

    def default_resources(self) -> dict[str, float]:
        return {
            "CPU": float(os.cpu_count() or 1),
            "memory": float(2**30),
            "object_store_memory": float(2**28),
        }

    def targets(self, node_types: Sequence[NodeType]) -> Mapping[str, Target]:
        return {}

    @property
    def head_extras(self) -> None:
        return None  # the machines have this very Python, so no runtime travels to them

    # -- inside

    def _everyone(self) -> Iterator[Machine]:
        folders = sorted(self._root.iterdir()) if self._root.is_dir() else []
        return (machine for machine in map(_read, folders) if machine is not None)


class JoiningDirectories(Directories):
    """The same platform, as if its machines booted an image that has the runtime: workers join by themselves."""

    @property
    def capabilities(self) -> protocol.Capabilities:
        return replace(super().capabilities, machines_join=True)

    def create(self, request: protocol.LaunchRequest) -> protocol.LaunchResult:
        result = super().create(request)
        for machine, token in zip(result.machines, request.join_tokens, strict=False):  # a head gets none
            if not processes.of_machines([machine.id])[machine.id]:
                folder = self._root / machine.id
                environment = {**os.environ, **_environment(folder), "CLUSTERCTL_JOIN_TOKEN": token}
                with (folder / "boot.log").open("ab") as log:
                    subprocess.Popen(
                        [sys.executable, "-m", "clusterctl", "start", "--block"],
                        env=environment,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
        return result


def default_root() -> str:
    """A short path, because a node has Unix sockets below it."""
    base = os.environ.get("CLUSTERCTL_TMPDIR") or tempfile.gettempdir()
    return os.path.join(base, f"directories-{os.getuid()}")


def _write(folder: Path, machine: Machine) -> Machine:
    """The machine exists from the moment when its record is whole."""
    draft = folder / f"draft-{os.getpid()}-{time.monotonic_ns()}"
    draft.write_text(json.dumps([machine.node_type, dict(machine.tags), machine.zone, machine.launched_s]))
    draft.replace(folder / "machine.json")
    return machine


def _read(folder: Path) -> Machine | None:
    try:
        node_type, tags, zone, launched_s = json.loads((folder / "machine.json").read_text())
    except FileNotFoundError:
        return None
    running, here = protocol.MachineState.RUNNING, "127.0.0.1"
    return Machine(folder.name, running, node_type, tags, here, zone=zone, launched_s=launched_s)


def _environment(folder: Path) -> dict[str, str]:
    """The environment of everything that runs on a machine; by the first variable its processes are found."""
    return {
        processes.TAG: folder.name,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "CLUSTERCTL_TMPDIR": str(folder / "tmp"),
        "CLUSTERCTL_SESSION_DIR": str(folder / "s"),
        "CLUSTERCTL_PYTHON": sys.executable,
        "CLUSTERCTL_SHARES_HOST": "1",  # other processes of the host are not the node's
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
    }
