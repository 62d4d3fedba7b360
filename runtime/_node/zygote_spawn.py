"""Starting the zygote's process. Imports little, so that a session can start it before anything else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

_SCRIPT = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_worker", "zygote_script.py"
)


class ChildProcess(Protocol):
    """What is used of `subprocess.Popen`, of which not every child comes."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class SpawnedZygote(NamedTuple):
    """A zygote that is coming up, and our end of its socket.

    `rests`: it comes up when it is first asked for a worker, or after a while, so nobody waits for that.
    """

    process: ChildProcess
    connection: socket.socket
    log_path: str
    rests: bool = False


def spawn_zygote(
    session_dir: str,
    command: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    cwd: str = "",
) -> SpawnedZygote:
    """Starts a zygote; it dies with this process.

    Args:
        command: starts Python, perhaps through other programs; empty: the Python of this process.
        variables: further environment variables.
        cwd: its current directory; default: the root.

    Raises:
        OSError: it cannot be started.
    """
    name = f"zygote-{os.urandom(4).hex()}.log" if command else "zygote.log"
    log_path = os.path.join(session_dir, "logs", name)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    # By its file: what `command` names may run a script only. It need not be our child: the socket tells it our end.
    arguments = ["--fd", str(theirs.fileno()), "--parent", "0" if command else str(os.getpid())]
    program = [*command, _SCRIPT] if command else [sys.executable, "-P", "-m", "runtime._worker.zygote"]
    try:
        with open(log_path, "ab") as output:
            process = subprocess.Popen(
                [*program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd=cwd or "/",
                env={**daemon_environment(), **(variables or {})},
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return SpawnedZygote(process, ours, log_path)


def daemon_environment() -> dict[str, str]:
    """The environment for our own processes: this one's, and these packages importable from any directory."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.basename(root) in ("site-packages", "dist-packages"):
        return dict(os.environ)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
