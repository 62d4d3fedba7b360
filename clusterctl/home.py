"""What the operator's side remembers: `$CLUSTERCTL_HOME`, by default `~/.clusterctl`, for this user only.

    owner                    a random id, for clusters whose owner no cloud tells
    terminals/               per terminal, the name of its current cluster
    clusters/<name>/         one folder per cluster
        cluster.json         a `ClusterRecord`
        secret               the cluster's secret, mode 0600
        logs/                setup log of the head
        let_in               machines of one's own that have, or may have, the cluster's key; outlives its lives
    cache/                   runtimes for machines, and prices that clouds were asked for
    failed/<name>.log        how the head of a cluster was set up that did not come up, and is gone
    imported/<id>.yaml       the YAML of a cluster that came from another machine
    locks/<name>             held while a command changes the cluster

All of it can be lost: the machines' tags suffice to take a cluster down. On a cloud they name its principal. Elsewhere
the owner's id is lost with the rest, and `down --adopt` takes the cluster over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from autoscaler.provider import LaunchRequest, Machine
from clusterctl.errors import Busy, CliError, NotFound, UsageProblem
from clusterctl.spec.definition import ClusterSpec
from runtime._session import current_cluster
from runtime._system import files, settings


class Launch(msgspec.Struct, frozen=True):
    """Machines that the platform is asked for by `up` itself: written down before it is asked."""

    request: LaunchRequest
    asked_s: float


class ClusterRecord(msgspec.Struct, kw_only=True):
    """One cluster as the operator's side knows it."""

    name: str
    cluster_id: str
    state: str  # STARTING | UP | STOPPED
    spec: ClusterSpec
    spec_file: str
    spec_hash: str
    provider_settings: dict[str, str]
    created_s: float
    head: Machine | None = None  # as it was listed when it was set up
    control_address: str = ""
    api_url: str = ""
    is_behind: bool = False  # its API is reached by entering the head's machine
    files_digest: str = ""  # of the mounts that the head has
    stops_itself: bool = False  # it may end while nobody looks: see `autostop`
    launches: list[Launch] = []  # of an `up` that has not come to its end
    is_renamed: bool = False  # its name is another than the YAML's

    @property
    def up_command(self) -> str:
        """The command line that brings this cluster up, and no other."""
        name = f" -n {self.name}" if self.is_renamed else ""
        return f"clusterctl up {shlex.quote(self.spec_file)}{name}"


STARTING = "STARTING"
UP = "UP"
STOPPED = "STOPPED"
LET_IN = "let_in"
_WHOSE = {
    current_cluster.By.ENVIRONMENT: f", which {current_cluster.VARIABLE} names",
    current_cluster.By.TERMINAL: ", the current one of this terminal",
}
_GLANCE_S = 0.5
"""Who only asks whether a cluster is being changed has its lock for a moment."""
_LOCK_POLL_S = 0.1


def spec_hash(spec: ClusterSpec) -> str:
    """The digest of everything a spec says, defaults included."""
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]


class Home:
    """The operator's state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = str(root / "cache")

    @classmethod
    def find(cls, environ: Mapping[str, str] | None = None) -> Home:
        """The folder that the environment names, made when it is missing.

        Raises:
            UsageProblem: there is none, or it cannot be written.
        """
        env = os.environ if environ is None else environ
        configured = settings.OPERATOR_HOME.get(env)
        if configured:
            root = Path(configured).absolute()
        elif env.get("HOME"):
            root = Path(env["HOME"]) / ".clusterctl"
        else:
            raise UsageProblem(
                "neither CLUSTERCTL_HOME nor HOME is set, so there is no folder for the clusters' keys",
                "Set one of them.",
            )
        try:
            for folder in (root, root / "clusters", root / "locks"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            root.chmod(0o700)
            if not os.access(
                root, os.W_OK
            ):  # nothing is written to find out: a full disk must not keep `down` away
                raise PermissionError(errno.EACCES, "it cannot be written")
        except OSError as error:
            raise UsageProblem(
                f"the state folder {root} cannot be used: {error.strerror or error}",
                "Set CLUSTERCTL_HOME to a folder you may write.",
            ) from error
        return cls(root)

    def folder(self, name: str) -> Path:
        return self.root / "clusters" / name

    def provider_settings(self, name: str) -> dict[str, str]:
        """What a cluster's provider is told before it has settings of its own."""
        return {
            "owner_file": str(self.root / "owner"),
            "folder": str(self.folder(name)),
            "cache": self.cache,
        }

    def adopted_settings(self, cluster_id: str) -> dict[str, str]:
        """The same for a cluster of another owner, which is taken over to be ended."""
        return {"folder": str(self.root / "adopted" / cluster_id)}

    def imported_file(self, cluster_id: str) -> Path:
        """The YAML of a cluster that another machine exported. It outlives the cluster."""
        return self.root / "imported" / f"{cluster_id}.yaml"

    def names(self) -> list[str]:
        """Known clusters."""
        return sorted(entry.parent.name for entry in (self.root / "clusters").glob("*/cluster.json"))

    def read(self, name: str) -> ClusterRecord | None:
        """The record of a cluster; None when it is not known here."""
        try:
            return msgspec.json.decode((self.folder(name) / "cluster.json").read_bytes(), type=ClusterRecord)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.MsgspecError as error:
            raise CliError(
                f"the record of cluster '{name}' is damaged: {error}",
                f"Remove {self.folder(name)}, then run `clusterctl down` with the cluster's YAML.",
            ) from error

    def again(self, record: ClusterRecord) -> ClusterRecord | None:
        """The record as it is now; None: its cluster has ended, and another may have its name."""
        now = self.read(record.name)
        return now if now is not None and now.cluster_id == record.cluster_id else None

    def write(self, record: ClusterRecord) -> None:
        """Stores a record, whole or not at all."""
        folder = self.folder(record.name)
        (folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(folder / "cluster.json", msgspec.json.format(msgspec.json.encode(record), indent=2))

    def write_head_config(self, name: str, config: bytes) -> str:
        """Stores the configuration that travels to a cluster's head; returns its file."""
        path = self.folder(name) / "head.json"
        _replace(path, config)
        return str(path)

    def write_ssh_config(self, name: str, text: str) -> str:
        """Stores the entries by which `ssh` enters a cluster's machines; returns their file."""
        path = self.folder(name) / "ssh_config"
        _replace(path, text.encode())
        return str(path)

    @property
    def ssh_configs(self) -> str:
        """The pattern of these files of all clusters."""
        return str(self.folder("*") / "ssh_config")

    def new_secret(self, name: str) -> str:
        """Makes a cluster's secret anew; returns its file."""
        path = self.folder(name) / "secret"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, secrets.token_hex(32).encode())
        return str(path)

    def secret_file(self, name: str) -> str:
        return str(self.folder(name) / "secret")

    def digests_file(self, name: str) -> str:
        """Where digests of what travels to the cluster are kept; it outlives the cluster."""
        return str(self.root / "cache" / f"digests-{name}.json")

    def secret(self, name: str) -> str:
        """A cluster's secret.

        Raises:
            NotFound: it is gone.
        """
        try:
            return (self.folder(name) / "secret").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise NotFound(
                f"the secret of cluster '{name}' is gone from {self.folder(name)}",
                "Without it the cluster cannot be used: run `clusterctl down`, then `clusterctl up`.",
            ) from None

    def keep_setup_log(self, name: str) -> str:
        """Keeps the log of the head's set-up when the cluster is forgotten; returns where, "" if there is none."""
        log, kept = self.folder(name) / "logs" / "head-setup.log", self.root / "failed" / f"{name}.log"
        try:
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            log.replace(kept)
        except OSError:
            return ""  # it never got so far, or the disk is full: its last lines are in the error
        return str(kept)

    def forget(self, name: str) -> None:
        """Removes all that is known of a cluster."""
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def renew(self, name: str) -> None:
        """Removes all that is known of a life of a cluster, whose next one has the same machines to clean up."""
        for entry in self.folder(name).glob("*"):
            if entry.name == LET_IN:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def current(self) -> current_cluster.Choice:
        """The cluster that commands mean without `--cluster`."""
        return current_cluster.choose(self.root, self.names())

    def set_current(self, name: str) -> bool:
        """Makes a cluster the current one of this terminal; False when there is no terminal."""
        return current_cluster.remember(self.root, name)

    def resolve(self, cluster: str | None) -> ClusterRecord:
        """The record that a `--cluster NAME|FILE` means, or the current cluster's.

        Raises:
            NotFound: there is no such cluster; the message lists those there are.
        """
        known = self.names()
        listing = f"Known clusters: {', '.join(known)}." if known else "No cluster is up."
        name, whose = cluster or "", ""
        if cluster and cluster.endswith((".yaml", ".yml")):
            from clusterctl.spec.load import load_file

            name = load_file(cluster).cluster_name
        elif not cluster:
            name, by = self.current()
            whose = _WHOSE.get(by, "")
        if not name:
            raise NotFound(
                "there is no current cluster, and several are known"
                if known
                else "there is no current cluster",
                f"{listing} Name one with --cluster, {current_cluster.VARIABLE} or `clusterctl cluster use NAME`."
                if known
                else f"{listing} Bring one up with `clusterctl up FILE`.",
            )
        record = self.read(name) if "/" not in name else None
        if record is None:
            advice = (
                "Name one with --cluster, or `clusterctl cluster use NAME`."
                if whose and known
                else "See `clusterctl up --help`."
            )
            raise NotFound(f"there is no cluster '{name}'{whose}", f"{listing} {advice}")
        return record

    @contextlib.contextmanager
    def locked(self, name: str, command: str, patience_s: float = _GLANCE_S) -> Iterator[None]:
        """Keeps other commands from changing the cluster.

        Args:
            patience_s: so long another one is waited for.

        Raises:
            Busy: another one does; the message says which process.
        """
        descriptor = os.open(self.root / "locks" / name, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + patience_s
        try:
            while not _lock(descriptor):
                if time.monotonic() < deadline:
                    time.sleep(_LOCK_POLL_S)
                    continue
                raise Busy(
                    f"cluster '{name}' is being changed by {_holder(descriptor)}",
                    "Wait until it has finished, or stop it with Ctrl-C, and run the command again.",
                )
            with contextlib.suppress(OSError):  # on a full disk it is held all the same, without a name
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"`clusterctl {command}` (process {os.getpid()})".encode())
            yield
        finally:
            os.close(descriptor)

    def changed_by(self, name: str) -> str:
        """Which command changes the cluster now; "" none. To ask keeps no command away."""
        try:
            descriptor = os.open(self.root / "locks" / name, os.O_RDONLY)
        except FileNotFoundError:
            return ""
        try:
            return "" if _lock(descriptor, fcntl.LOCK_SH) else _holder(descriptor)
        finally:
            os.close(descriptor)


def new_record(home: Home, spec: ClusterSpec, spec_file: str, is_renamed: bool = False) -> ClusterRecord:
    """A record of a cluster that is about to be made."""
    return ClusterRecord(
        name=spec.cluster_name,
        cluster_id=f"{spec.cluster_name}-{secrets.token_hex(4)}",
        state=STARTING,
        spec=spec,
        spec_file=os.path.abspath(spec_file),
        spec_hash=spec_hash(spec),
        provider_settings=home.provider_settings(spec.cluster_name),
        created_s=time.time(),
        is_renamed=is_renamed,
    )


def _lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    """Who has the lock, as it wrote."""
    return os.read(descriptor, 200).decode(errors="replace").strip() or "another clusterctl"


def _replace(path: Path, data: bytes) -> None:
    """Writes a private file, whole or not at all."""
    try:
        files.replace(str(path), data)
    except OSError as error:
        raise CliError(
            f"{path} cannot be written: {error.strerror or error}",
            "Nothing of it was changed. Make it writable, or make room there, and run the command again.",
        ) from error
