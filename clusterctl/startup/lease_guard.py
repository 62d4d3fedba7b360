"""Runs on a worker's machine, from the first step of its set-up on: when the head has not answered for long, it shuts
the machine down, which would cost for ever otherwise. Nothing but the standard library, for any Python there is.

    python3 lease_guard.py FILE MINUTES

FILE has HOST:PORT of the head's control store, and may change. A second guard for the same file ends at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time

_PERIOD_S = 30.0
_CONNECT_S = 10.0
_AGAIN_S = 60.0
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def main(file: str, minutes: float) -> int:
    """Guards until the machine is down."""
    with open(file, encoding="ascii") as locked:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        run_shutdown("-c")  # what it was told when it booted, in case nobody comes
        answered = time.monotonic()
        while os.path.exists(file):
            if head_answers(file):
                answered = time.monotonic()
            elif time.monotonic() - answered >= minutes * 60:
                print("the head has not answered for", minutes, "min: shutting down", flush=True)
                shut_down()
                time.sleep(_AGAIN_S)
            time.sleep(min(_PERIOD_S, minutes * 15))
    return 0


def head_answers(file: str) -> bool:
    """Whether somebody listens where the file says."""
    try:
        with open(file, encoding="ascii") as words:
            host, _, port = words.read().strip().rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
            return True
    except (OSError, ValueError):
        return False


def shut_down() -> None:
    """Shuts the machine down, as its user may."""
    if not run_shutdown("-h", "now"):
        _run("poweroff")


def run_shutdown(*words: str) -> bool:
    """Whether `shutdown` is there and did it."""
    return _run("shutdown", *words)


def _run(name: str, *words: str) -> bool:
    path = os.pathsep.join((os.environ.get("PATH", ""), _PATH))
    program = shutil.which(name, path=path)
    if program is None:
        return False
    sudo = [] if os.geteuid() == 0 else [shutil.which("sudo", path=path) or "sudo", "-n"]
    try:
        return subprocess.run([*sudo, program, *words], stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError as error:
        print(error, flush=True)
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
