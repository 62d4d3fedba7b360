"""How a daemon comes up: it says one JSON line on a pipe when it is up, or why it is not.

What every way of starting one shares. Imports little: a machine that joins a cluster pays for it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from runtime._core.accelerators import HARDWARE, split_ids
from runtime._system import files, settings

START_TIMEOUT_S = 30.0
_TAIL_BYTES = 3000
_LAST_WORDS_S = 2.0


class DaemonError(RuntimeError):
    """A daemon did not come up. The message is its own, or the end of its log."""


def log_file(session_dir: str, name: str) -> str:
    """The path of a daemon's log, in a folder that is there."""
    folder = os.path.join(session_dir, "logs")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, f"{name}.log")


def node_amounts(
    num_cpus: float | None,
    num_gpus: float | None,
    memory: float | None,
    resources: Mapping[str, float] | None,
) -> dict[str, float]:
    """The resources that a node is started with.

    Raises:
        ValueError: more devices than this process may see.
    """
    named = {"CPU": num_cpus, "GPU": num_gpus, "memory": memory}
    for kind in HARDWARE.values():
        wanted = num_gpus if kind.resource == "GPU" else (resources or {}).get(kind.resource)
        visible = split_ids(settings.VISIBLE_DEVICES[kind.variable].get())
        if wanted is not None and visible is not None and wanted > len(visible):
            raise ValueError(
                f"A node with {wanted} {kind.resource} cannot start here: {kind.variable} shows only {visible}."
            )
    return {**(resources or {}), **{name: amount for name, amount in named.items() if amount is not None}}


def end(process: subprocess.Popen[bytes]) -> None:
    """Lets a daemon that failed clean up after itself, then makes sure that it is gone."""
    try:
        process.wait(_LAST_WORDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_ready(
    process: subprocess.Popen[bytes], read_end: int, log_path: str, timeout_s: float
) -> dict[str, Any]:
    """Waits for a daemon's line.

    Args:
        read_end: of the pipe; it is closed.

    Raises:
        DaemonError: it did not come up.
    """
    deadline = time.monotonic() + timeout_s
    said = b""
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        while not said.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise DaemonError(f"it did not come up within {timeout_s:g} s. {_tail(log_path)}")
            chunk = pipe.read(65536)
            if not chunk:
                status = _exit_status(process)
                raise DaemonError(f"it ended before it was up ({status}). {_tail(log_path)}")
            said += chunk
    ready: dict[str, Any] = json.loads(said)
    if "error" in ready:
        raise DaemonError(str(ready["error"]))
    return ready


def _exit_status(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(5.0)
    except subprocess.TimeoutExpired:
        return "its pipe closed, but it runs"
    return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


def _tail(log_path: str) -> str:
    try:
        text = files.tail(log_path, _TAIL_BYTES)
    except OSError as error:
        return f"It left no log: {error}"
    return f"Its log ends with:\n{text}" if text else "Its log is empty."
