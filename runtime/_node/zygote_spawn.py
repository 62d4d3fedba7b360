"""Starting the zygote's process. Imports little, so that a session can start it before anything else."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runtime._system import location

_LIBRARIES = ("cloudpickle", "msgspec", "psutil")
_SCRIPT = """\
# The zygote, for Pythons that are started by another command than the node agent's. Modules that such a Python does
# not have itself, this library among them, come from where the node agent has them.
import sys

if not sys.flags.safe_path:
    sys.path.pop(0)  # the folder of this file, which holds no modules for others
sys.path += PATHS

from runtime._process.zygote import main

main()
"""


class SpawnedZygote(NamedTuple):
    """A zygote that is coming up, and our end of its socket. The process leads a session."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    log_path: str


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
    # It need not be our child: the socket tells it our end.
    arguments = ["--fd", str(theirs.fileno()), "--parent", "0" if command else str(os.getpid())]
    program = (
        [*command, _script(session_dir)]
        if command
        else [sys.executable, "-P", "-m", "runtime._process.zygote"]
    )
    try:
        with open(log_path, "ab") as output:
            process = subprocess.Popen(
                [*program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd=cwd or "/",
                start_new_session=True,  # `end_session` ends what is in it
                env={**daemon_environment(), **(variables or {})},
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return SpawnedZygote(process, ours, log_path)


def _script(session_dir: str) -> str:
    """The zygote's file, for what `command` names may run a script only."""
    path = os.path.join(session_dir, "zygote_script.py")
    draft = f"{path}.{os.urandom(4).hex()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(_SCRIPT.replace("PATHS", repr(_paths())))
    os.replace(draft, path)
    return path


def _paths() -> list[str]:
    """Where this library is, and what it needs, for another Python of this version."""
    specs = [importlib.util.find_spec(name) for name in _LIBRARIES]
    folders = [place for spec in specs if spec is not None for place in spec.submodule_search_locations or ()]
    return list(dict.fromkeys([location.ROOT, *map(os.path.dirname, folders)]))


def daemon_environment() -> dict[str, str]:
    """The environment for our own processes: this one's, and these packages importable from any directory."""
    if location.is_installed():
        return dict(os.environ)
    paths = [location.ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
