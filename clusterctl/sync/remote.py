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
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, cast

MARK = "\x1e"
STATE = "~/.clusterctl-node/sync"
SILENCE_S = 300
"""What did nothing for so long ends itself, by SIGALRM."""
_STALE_S = 10.0
"""A transfer that did nothing for so long gives way to another one to the same target."""
_TURN_TRIES = 1200
_TURN_AGAIN_S = 0.1
_FLOCK = "hhqqi"
"""Linux's `struct flock`: type, whence, start, length, process."""
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
            target = receiver.where(mount["target"])
            receiver.Receiver(target, cast(IO[bytes], stream), journal, stream.goes_on).run()


class _Watched:
    """The input. Where none comes for long the process ends: whoever sent it may be gone without a word.

    Attributes:
        lock: a file whose time of change says when something happened last.
    """

    def __init__(self) -> None:
        self.lock = ""
        self._told = 0.0

    def read(self, size: int) -> bytes:
        self.goes_on()
        return sys.stdin.buffer.read(size)

    def readline(self) -> bytes:
        self.goes_on()
        return sys.stdin.buffer.readline()

    def goes_on(self) -> None:
        """Something happens, or is waited for from now on."""
        signal.alarm(SILENCE_S)
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
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = _holder(lock)
                if holder and time.time() - os.stat(path).st_mtime > _STALE_S:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(holder, signal.SIGKILL)
                time.sleep(_TURN_AGAIN_S)
        else:
            raise OSError(errno.EBUSY, "another transfer to it is under way", target)
        os.utime(path)
        yield path


def _holder(lock: IO[str]) -> int:
    """The process that has the lock, as the kernel knows it; 0: none of this machine."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))
    return max(pid, 0) if kind != fcntl.F_UNLCK else 0


def tell() -> None:
    """Input: a source and rules. Says all entries of its manifest, however long it takes to read. Where nothing can be
    read for long the process ends."""
    from dataclasses import asdict

    from clusterctl.sync import manifest, receiver, rules

    request = json.loads(sys.stdin.readline())
    chosen = rules.rules(request["excludes"], request["ignore_files"])
    source = receiver.where(request["source"])

    def goes_on() -> None:
        signal.alarm(SILENCE_S)

    goes_on()
    found = manifest.read(source, chosen, manifest.DigestCache(goes_on=goes_on))
    signal.alarm(0)
    for entry in found.entries.values():
        say({"entry": asdict(entry)})


def send() -> None:
    """Input: a source, then the entries that are wanted. Says them as base64 of what a receiver reads."""
    from clusterctl.sync import manifest, receiver, sender

    source = receiver.where(json.loads(sys.stdin.readline()))
    wanted = {entry["path"]: manifest.Entry(**entry) for entry in json.loads(sys.stdin.readline())}
    there = sender.There()
    content = manifest.Manifest(os.path.realpath(source), wanted)
    for block in sender.stream(content, sender.changes(wanted, there, False), there):
        say({"data": base64.b64encode(block).decode()})
