"""The check of what runs under the engine's lock finds each way to it, and each thing that must not happen there."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "lock_check.py"

ENGINE = """
from __future__ import annotations

import functools
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Message: ...


class Connection:
    on_close: Callable[[Connection], None] | None = None

    def call(self, request: Message, callback: Callable[[Message], None]) -> None: ...


class Pump:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.on_wait: Callable[[], float] | None = None


class Bad:
    def act(self) -> None:
        {bad}

    @property
    def shown(self) -> str:
        {bad}


class Acts(Protocol):
    def act(self) -> None: ...


class Part:
    def __init__(self, pump: Pump, connection: Connection, bad: Bad, some: Acts) -> None:
        self._pump = pump
        self._connection = connection
        self._bad = bad
        self._by_name: dict[str, Bad] = {{}}
        self._some = some
        {setup}

    def go(self) -> None:
        {go}

    def helper(self) -> None:
        self._bad.act()

    def find(self) -> Bad:
        return self._bad
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def findings(
    script: ModuleType, root: pathlib.Path, setup: str = "pass", go: str = "pass", bad: str = "print()"
) -> list[str]:
    folder = root / "engine"
    folder.mkdir()
    (folder / "__init__.py").write_text(ENGINE.format(setup=setup, go=go, bad=bad))
    found = script.Check(script.Program(root, ["engine"])).run()
    return [f"{one.function} {one.what}" for one in found]


@pytest.mark.parametrize(
    "go",
    [
        "with self._pump.lock: self._bad.act()",
        "with self._pump.lock: self.helper()",
        "with self._pump.lock: self.find().act()",
        "with self._pump.lock: self._by_name['x'].act()",
        "with self._pump.lock: [bad.act() for bad in self._by_name.values()]",
        "with self._pump.lock: self._some.act()",
        "with self._pump.lock: (found := self._bad).act()",
        "with self._pump.lock: self.unknown(self._bad.act)",
        "with self._pump.lock: self.unknown(lambda: self._bad.act())",
        "with self._pump.lock: self.unknown(functools.partial(self._bad.act))",
        "self._connection.call(Message(), lambda _: self._bad.act())",
        "'Under the lock.'; self._bad.act()",
    ],
)
def test_every_way_under_the_lock_is_followed(script: ModuleType, tmp_path: pathlib.Path, go: str) -> None:
    assert "engine.Bad.act prints" in findings(script, tmp_path, go=go)


@pytest.mark.parametrize(
    "setup",
    [
        "pump.on_wait = self.helper",
        "connection.on_close = lambda _: self.helper()",
        "self._handlers = {Message: self.helper}",
    ],
)
def test_handlers_and_callbacks_run_under_the_lock(
    script: ModuleType, tmp_path: pathlib.Path, setup: str
) -> None:
    assert "engine.Bad.act prints" in findings(script, tmp_path, setup=setup)


def test_properties_are_followed(script: ModuleType, tmp_path: pathlib.Path) -> None:
    assert findings(script, tmp_path, go="with self._pump.lock: self._bad.shown") == [
        "engine.Bad.shown prints"
    ]


@pytest.mark.parametrize(
    "go",
    [
        "self._bad.act()",
        "with self._pump.lock: pass\n        self._bad.act()",
        "with self._pump.lock: threading.Thread(target=self._bad.act).start()",
        "with self._pump.lock: self.loop.call_soon_threadsafe(self._bad.act)",
    ],
)
def test_what_runs_without_the_lock_or_on_another_thread_may_do_it(
    script: ModuleType, tmp_path: pathlib.Path, go: str
) -> None:
    assert findings(script, tmp_path, go=go) == []


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ("print('x')", "prints"),
        ("sys.stdout.write('x')", "prints"),
        ("pickle.loads(b'')", "unpickles"),
        ("from importlib import import_module; import_module('x')", "imports"),
        ("time.sleep(1)", "sleeps"),
        ("socket.create_connection(('', 0))", "uses a socket"),
        ("sock = socket.socket; sock.send(b'')", "uses a socket"),
        ("future = self.unknown; future.set_result(1)", "runs the callbacks of a future"),
    ],
)
def test_what_must_not_happen_under_the_lock(
    script: ModuleType, tmp_path: pathlib.Path, bad: str, what: str
) -> None:
    go = "with self._pump.lock: self._bad.act()"
    assert findings(script, tmp_path, go=go, bad=bad) == [f"engine.Bad.act {what}"]


def test_an_exception_holds_for_one_call_only_and_is_known_to_be_used(
    script: ModuleType, tmp_path: pathlib.Path
) -> None:
    findings(script, tmp_path, go="with self._pump.lock: self._bad.act()", bad="print(pickle.loads(b''))")
    check = script.Check(script.Program(tmp_path, ["engine"]), [("engine.Bad.act", "print")])
    assert [one.what for one in check.run()] == ["unpickles"]
    assert check.used == {("engine.Bad.act", "print")}


def test_nothing_of_the_engine_does_it() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "function",
    [
        "runtime._transport.connection.Connection._deliver",
        "runtime._process.metrics.",
        "runtime._ownership.",
        "runtime._executor.receiver.Receiver._on_push",
        "runtime._owner.links.Links._peer_lost",
        "runtime._process.printing.Printing.put",
    ],
)
def test_the_engines_entry_points_are_seen(function: str) -> None:
    command = [sys.executable, str(SCRIPT), "--why", function]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout, f"{function} does not run under the lock any more, or the check does not see how"
