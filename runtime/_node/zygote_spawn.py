"""Starting the zygote's process. Imports little, so that a session can start it before anything else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import NamedTuple


class SpawnedZygote(NamedTuple):
    """A zygote that is coming up, and our end of its socket."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    log_path: str


def spawn_zygote(session_dir: str) -> SpawnedZygote:
    """Starts a zygote; it dies with this process.

    Raises:
        OSError: it cannot be started.
    """
    log_path = os.path.join(session_dir, "logs", "zygote.log")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    command = [sys.executable, "-P", "-m", "runtime._worker.zygote"]
    command += ["--fd", str(theirs.fileno()), "--parent", str(os.getpid())]
    try:
        with open(log_path, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=daemon_environment(),
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
