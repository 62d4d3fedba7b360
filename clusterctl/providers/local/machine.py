"""One local machine: its folder, its init process, the environment of what runs on it.

<root>/<id>/machine.json   what it is (tags, type, faults to rehearse)
            creator.json   pid and start time of whoever makes it
            init.json      pid and start time of its init
            home/ tmp/     HOME and TMPDIR of everything on it
            s/             session folder of the node's daemons: sockets, logs, state
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autoscaler.provider import Machine, MachineState, MachineTags, Transient
from clusterctl import processes

_INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "LD_LIBRARY_PATH", "PYTHONPATH", "USER", "LOGNAME"),
    *("CLUSTERCTL_LOG_LEVEL", "CLUSTERCTL_TEST_RUN"),
)
_BOOT_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """What `machine.json` says, and where."""

    id: str
    folder: Path
    node_type: str
    tags: Mapping[str, str]
    zone: str
    launched_s: float
    vanish_after_s: float | None = None

    @property
    def session_dir(self) -> str:
        return str(self.folder / "s")

    @property
    def is_head(self) -> bool:
        return self.tags.get(MachineTags.ROLE) == MachineTags.HEAD

    def create(self) -> bool:
        """Makes the folder in one step; False when the machine was there already."""
        draft = self.folder.with_name(f".{self.id}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(draft)
        for part in ("home", "tmp"):
            (draft / part).mkdir(parents=True, mode=0o700)
        draft.chmod(0o700)
        record = {
            "id": self.id,
            "node_type": self.node_type,
            "tags": dict(self.tags),
            "zone": self.zone,
            "launched_s": self.launched_s,
            "vanish_after_s": self.vanish_after_s,
            "is_head": self.is_head,
        }
        (draft / "machine.json").write_text(json.dumps(record), encoding="utf-8")
        creator = {"pid": os.getpid(), "start_ticks": processes.start_ticks(os.getpid())}
        (draft / "creator.json").write_text(json.dumps(creator), encoding="utf-8")
        (draft / "home" / ".bashrc").write_text(_BASHRC.format(node_type=self.node_type, id=self.id))
        try:
            draft.rename(self.folder)
        except OSError:
            shutil.rmtree(draft)
            return False
        return True

    def boot(self) -> None:
        """Starts the machine's init; does nothing when it runs."""
        if self.state() is MachineState.RUNNING:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder / "s" / "daemon.json")
        script = str(Path(__file__).with_name("init.py"))
        # The middle process ends at once, so that the init is nobody's child and needs no waiting for.
        middle = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DETACH, sys.executable, script, str(self.folder)],
            env=self.environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_BOOT_S,
            check=False,
            start_new_session=True,
        )
        if middle.returncode:
            raise Transient(
                f"machine {self.id} did not start: {middle.stderr.decode(errors='replace').strip()}"
            )
        pid = int(middle.stdout)
        ticks = processes.start_ticks(pid)
        self._write("init.json", {"pid": pid, "start_ticks": ticks if ticks is not None else -1})

    def state(self) -> MachineState:
        """What the disk and the process table say."""
        try:
            record = json.loads((self.folder / "init.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            young = time.time() - self.launched_s < _BOOT_S
            return MachineState.PENDING if young and self._is_being_made() else MachineState.STOPPED
        alive = processes.is_alive(record["pid"], record["start_ticks"])
        return MachineState.RUNNING if alive else MachineState.STOPPED

    def _is_being_made(self) -> bool:
        """Whether whoever makes it lives; otherwise nobody boots it any more."""
        try:
            creator = json.loads((self.folder / "creator.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return False
        return processes.is_alive(creator["pid"], creator["start_ticks"])

    def remove(self) -> None:
        """Deletes the folder, with everything that the machine had. Whoever is killed in the middle leaves no machine,
        but a draft, which the next clean-up removes."""
        gone = self.folder.with_name(f".{self.id}.gone.{os.getpid()}")
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def listed(self) -> Machine:
        """The machine as the provider lists it."""
        return Machine(
            id=self.id,
            state=self.state(),
            node_type=self.node_type,
            tags=self.tags,
            address="127.0.0.1",
            public_address="127.0.0.1",
            zone=self.zone,
            launched_s=self.launched_s,
        )

    def environment(self) -> dict[str, str]:
        """The environment of everything that runs on the machine."""
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        interpreter = os.path.dirname(sys.executable)
        path = env.get("PATH", os.defpath).split(os.pathsep)
        env["PATH"] = os.pathsep.join([interpreter, *(part for part in path if part != interpreter)])
        env.update(
            {
                processes.TAG: self.id,
                "HOME": str(self.folder / "home"),
                "TMPDIR": str(self.folder / "tmp"),
                "TMUX_TMPDIR": str(self.folder / "tmp"),  # each machine has sessions of its own
                "SCREENDIR": str(self.folder / "tmp" / "screen"),
                "CLUSTERCTL_TMPDIR": str(self.folder),
                "CLUSTERCTL_SESSION_DIR": self.session_dir,
                "CLUSTERCTL_PYTHON": sys.executable,
                "PYTHONUNBUFFERED": "1",
                "CLUSTERCTL_SHARES_HOST": "1",  # what else runs there is not ours
            }
        )
        return env

    def _write(self, name: str, record: object) -> None:
        draft = self.folder / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.rename(self.folder / name)


def read(folder: Path) -> LocalMachine | None:
    """The machine of a folder; None when there is none (any more)."""
    try:
        record = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return LocalMachine(
        id=record["id"],
        folder=folder,
        node_type=record["node_type"],
        tags=record["tags"],
        zone=record["zone"],
        launched_s=record["launched_s"],
        vanish_after_s=record["vanish_after_s"],
    )


_DETACH = """
import os, sys
pid = os.fork()
if pid:
    print(pid)
    sys.stdout.flush()
    os._exit(0)
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for target in (0, 1, 2):
    os.dup2(null, target)
os.execv(sys.argv[1], [sys.argv[1], "-I", "-S", *sys.argv[2:]])
"""

_BASHRC = """\
PS1='({node_type} {id}) \\w\\$ '
"""
