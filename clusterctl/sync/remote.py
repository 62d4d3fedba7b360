"""Runs this package's own modules on a machine that has Python and nothing else: their text is sent along.

Here is also what they do there: each function takes what comes on the input and prints lines of JSON, marked so that
what else the machine prints is not taken for one.
"""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MARK = "\x1e"
STATE = "~/.clusterctl-node/sync"
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

    stream = sys.stdin.buffer
    for mount in json.loads(stream.readline()):
        journal = receiver.Journal(f"{receiver.where(STATE)}/{mount['key']}")
        receiver.Receiver(receiver.where(mount["target"]), stream, journal).run()


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
