"""Runs this package's own modules on a machine that has Python and nothing else: their text is sent along.

Here is also what they do there: each function takes what comes on the input and prints lines of JSON, marked so that
what else the machine prints is not taken for one.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, cast

MARK = "\x1e"
STATE = "~/.clusterctl-node/sync"
_SILENCE_S = 300
_STALE_S = 10.0
_TURN_TRIES = 1200
_TURN_AGAIN_S = 0.1
PYTHON = '"${CLUSTERCTL_BASE_PYTHON:-${CLUSTERCTL_PYTHON:-python3}}"'

_RECEIVING = (("clusterctl.sync", "receiver"),)
_SENDING = (
    ("runtime._packages", "ignore"),
    ("runtime._packages", "walk"),
    ("clusterctl.sync", "rules"),
    ("clusterctl.sync", "manifest"),
    ("clusterctl.sync", "sender"),
)
_START = """\
import json, os, sys, types
for name, text in json.loads(os.environ.pop("CLUSTERCTL_SYNC")):
    package = name.rpartition(".")[0]
    for parent in (package.partition(".")[0], package):
        if parent and parent not in sys.modules:
            sys.modules[parent] = types.ModuleType(parent)
            sys.modules[parent].__path__ = []
    module = types.ModuleType(name)
    module.__package__ = package
    sys.modules[name] = module
    if package:
        setattr(sys.modules[package], name.rpartition(".")[2], module)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(sys.modules["clusterctl.sync.remote"].main(sys.argv[1]))
"""


def command(action: str) -> tuple[str, Mapping[str, str]]:
    """Command and environment that run `action` (a function of this module) there."""
    from importlib.resources import files

    needed = [*(_SENDING if action in ("tell", "send") else ()), *_RECEIVING, ("clusterctl.sync", "remote")]
    text = [
        (f"{package}.{name}", (files(package) / f"{name}.py").read_text(encoding="utf-8"))
        for package, name in needed
    ]
    start = shlex.quote(_START)
    return f"exec {PYTHON} -I -S -c {start} {action}", {"CLUSTERCTL_SYNC": json.dumps(text)}


def main(action: str) -> int:
    """What runs there."""
    from clusterctl.sync.receiver import Damaged

    actions: dict[str, Callable[[], None]] = {"look": look, "apply": apply, "tell": tell, "send": send}
    try:
        actions[action]()
    except (OSError, Damaged) as error:
        name = getattr(error, "filename", None)
        reason = getattr(error, "strerror", None) or error
        say({"error": f"{name}: {reason}" if name else str(reason)})
        return 1
    return 0


def say(record: Mapping[str, Any]) -> None:
    """One line to the other side."""
    sys.stdout.write(f"{MARK}{json.dumps(record)}\n")


def look() -> None:
    """Input: the mounts. Says what is there of each."""
    from clusterctl.sync import receiver

    for line in receiver.look(json.loads(sys.stdin.readline()), receiver.where(STATE)):
        say(line)


def apply() -> None:
    """Input: the targets, then what a sender writes for each."""
    from clusterctl.sync import receiver

    stream = _Watched()
    for mount in json.loads(stream.readline()):
        file = f"{receiver.where(STATE)}/{mount['key']}"
        with _alone(file, mount["target"]) as lock:
            stream.lock = lock
            journal = receiver.Journal(file)
            receiver.Receiver(receiver.where(mount["target"]), cast(IO[bytes], stream), journal).run()


class _Watched:
    """The input. Where none comes for long the process ends: whoever sent it may be gone without a word.

    Attributes:
        lock: a file whose time of change says when something came last.
    """

    def __init__(self) -> None:
        self.lock = ""
        self._told = 0.0

    def read(self, size: int) -> bytes:
        self._wait()
        return sys.stdin.buffer.read(size)

    def readline(self) -> bytes:
        self._wait()
        return sys.stdin.buffer.readline()

    def _wait(self) -> None:
        signal.alarm(_SILENCE_S)
        if self.lock and time.monotonic() - self._told > 1:
            self._told = time.monotonic()
            os.utime(self.lock)


@contextlib.contextmanager
def _alone(file: str, target: str) -> Iterator[str]:
    """One transfer to a target at a time. One to which nothing comes any more is ended: its sender was cut off."""
    path = f"{file}.lock"
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        signal.alarm(0)  # this wait has a limit of its own
        for _ in range(_TURN_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.time() - os.stat(path).st_mtime > _STALE_S:
                    lock.seek(0)
                    with contextlib.suppress(ValueError, ProcessLookupError):
                        os.kill(int(lock.read()), signal.SIGKILL)
                time.sleep(_TURN_AGAIN_S)
        else:
            raise OSError(errno.EBUSY, "another transfer to it is under way", target)
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        yield path


def tell() -> None:
    """Input: a source and rules. Says all entries of its manifest."""
    from dataclasses import asdict

    for entry in _manifest(json.loads(sys.stdin.readline())).entries.values():
        say({"entry": asdict(entry)})


def send() -> None:
    """Input: a source and rules, then the paths that are wanted. Says them as base64 of what a receiver reads."""
    from clusterctl.sync import sender

    manifest = _manifest(json.loads(sys.stdin.readline()))
    wanted = {
        path: manifest.entries[path] for path in json.loads(sys.stdin.readline()) if path in manifest.entries
    }
    there = sender.There()
    for block in sender.stream(manifest, sender.changes(wanted, there, False), there):
        say({"data": base64.b64encode(block).decode()})


def _manifest(request: Mapping[str, Any]) -> Any:
    from clusterctl.sync import manifest, receiver, rules

    chosen: Sequence[str] = request["excludes"]
    cache = manifest.DigestCache()
    return manifest.read(
        receiver.where(request["source"]), rules.rules(chosen, request["ignore_files"]), cache
    )
