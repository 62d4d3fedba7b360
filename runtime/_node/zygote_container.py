"""Starts a zygote in a container. It is given its socket to the agent and the node's shared memory as open files: from
inside a container, files of processes outside cannot be opened."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from .environments import container as containers
from .environments.place import Container, Interpreter
from .zygote_spawn import SpawnedZygote

_FIRST = 3
_SCRIPT = """
import os
os.set_inheritable(4, False)  # programs that workers start have no use for it
from runtime._process.zygote import main
main()
"""
_HAND_OVER = """\
import fcntl, os, sys
given = [int(number) for number in sys.argv[1].split(",")]
held = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 16) for number in given]
for number in given:
    os.close(number)
for number, descriptor in enumerate(held, 3):
    os.dup2(descriptor, number)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Podman hands on descriptors by their count, from 3 on."""


def spawn_in_container(
    session_dir: str, interpreter: Interpreter, container: Container, store_fd: int
) -> SpawnedZygote:
    """Starts a zygote in a container. Both end with this process.

    Args:
        store_fd: the node's shared memory.

    Raises:
        OSError: it cannot be started.
    """
    log_path = os.path.join(session_dir, "logs", f"zygote-{os.urandom(4).hex()}.log")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    script = containers.path_setup() + _SCRIPT
    arguments = ["-P", "-c", script, "--fd", str(_FIRST), "--parent", "0"]
    [python] = interpreter.command
    command = containers.run_command(container, python, arguments, dict(interpreter.variables), 2)
    handed = [theirs.fileno(), store_fd]
    try:
        with open(log_path, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _HAND_OVER, ",".join(map(str, handed)), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=handed,
                cwd="/",
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return SpawnedZygote(process, ours, log_path)
