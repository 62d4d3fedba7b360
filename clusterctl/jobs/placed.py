"""Runs a job's command on a node that has what the command asks for. Started by the head in place of the command: a
program that makes an actor with those resources, which runs the command there and sends its output.

What the command starts is known by a mark in its environment, so that all of it ends with it, sessions of its own
included; what would be left if the actor's node lost its connection ends with the worker's process group.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

import runtime

VARIABLE = "CLUSTERCTL_PLACED_ENTRYPOINT"
"""In the environment of this program: a `Placement`."""
STOP_S = 6.0
"""So long the end of the command may take after it was asked for."""
_KILL_S = 2.0
_LOOK_S = 0.1
_CHUNK = 1 << 16


class Placement(msgspec.Struct, kw_only=True, frozen=True):
    """The command, the options of an actor that say what it asks of its node, the variables that it finds, and whether
    its Pythons find this engine as `ray`."""

    command: str
    wants: dict[str, Any]
    variables: dict[str, str]
    ray_compat: bool = False


class Entrypoint:
    """The command on its node. One thread reads what it prints, another may end it."""

    def __init__(self) -> None:
        self._mark = b""
        self._is_stopped = False

    def run(self, command: str, variables: Mapping[str, str], ray_compat: bool) -> Iterator[bytes | int]:
        """Begins with nothing, goes on with its output, and ends with its exit status, as `subprocess` has it."""
        import select
        import shutil
        import subprocess
        import tempfile

        from runtime.compat.ray import python_path

        yield b""
        mark = f"{variables['CLUSTERCTL_SUBMISSION_ID']}.{os.getpid()}"
        env = {**os.environ, **variables, "PYTHONUNBUFFERED": "1", "CLUSTERCTL_PLACED": mark}
        if ray_compat:
            env["PYTHONPATH"] = python_path(env.get("PYTHONPATH", ""))
        with tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True) as folder:
            if runtime.get_runtime_context().runtime_env.get("working_dir"):
                shutil.copytree(os.getcwd(), folder, symlinks=True, dirs_exist_ok=True)
            with subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process:
                self._mark = f"CLUSTERCTL_PLACED={mark}".encode()
                assert process.stdout is not None
                while process.poll() is None and not self._is_stopped:
                    if select.select([process.stdout], [], [], _LOOK_S)[0]:
                        yield os.read(process.stdout.fileno(), _CHUNK)
                if not self._is_stopped:
                    self._end(signal.SIGKILL, _KILL_S)  # what it left behind
                while rest := os.read(process.stdout.fileno(), _CHUNK):
                    yield rest
            yield process.returncode

    def stop(self, grace_s: float) -> None:
        """Ends everything that the command started: SIGTERM, and SIGKILL to what is left after the grace."""
        self._is_stopped = True
        self._end(signal.SIGTERM, grace_s)
        self._end(signal.SIGKILL, _KILL_S)

    def _end(self, number: signal.Signals, within_s: float) -> None:
        import contextlib
        import time

        deadline = time.monotonic() + within_s
        asked: set[int] = set()
        while (members := self._members()) and time.monotonic() < deadline:
            for pid in members - asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            asked |= members
            time.sleep(0.02)

    def _members(self) -> set[int]:
        """The processes that have the mark, but for zombies, which have no environment any more."""
        import contextlib

        found = set()
        for name in os.listdir("/proc") if self._mark else ():
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if self._mark in file.read().split(b"\0"):
                        found.add(int(name))
        return found


def place(placement: Placement) -> int:
    """Runs the command, passes its output on, and returns its exit status."""
    options = {"num_cpus": 0, **placement.wants, "max_concurrency": 2}
    there: Any = runtime.remote(Entrypoint).options(**options).remote()
    has_begun = False
    try:
        run = there.run.options(num_returns="streaming")
        for reference in run.remote(placement.command, placement.variables, placement.ray_compat):
            item = runtime.get(reference)
            if isinstance(item, int):
                return item
            has_begun = True
            os.write(sys.stdout.fileno(), item)
        raise RuntimeError("the command's node did not say how it ended")
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if has_begun:
            runtime.get(there.stop.remote(STOP_S / 3), timeout=STOP_S)
        raise


def main() -> None:
    """Ends as the command does, a signal included."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    placement = msgspec.json.decode(os.environ.pop(VARIABLE), type=Placement)
    runtime.init()
    try:
        status = place(placement)
    except KeyboardInterrupt:
        status = -signal.SIGTERM
    runtime.shutdown()
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main()
