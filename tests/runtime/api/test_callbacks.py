"""What a program hooks into the engine may raise, block or import: nobody else notices."""

from __future__ import annotations

import asyncio
import io
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.under_test import OWN, init, ray

pytestmark = pytest.mark.skipif(not OWN, reason="about this engine's threads")


@pytest.fixture
def session() -> Iterator[None]:
    init(num_cpus=2)
    yield
    ray.shutdown()


def works() -> None:
    """The engine serves tasks, objects, actors and waits."""

    @ray.remote
    def add(left: int, right: int) -> int:
        return left + right

    ref = add.remote(1, 2)
    assert ray.get(ref, timeout=60) == 3
    assert ray.wait([add.remote(ref, 1)], timeout=60)[0]
    assert ray.get(ray.put("kept"), timeout=60) == "kept"
    assert add.remote(3, 4).future().result(60) == 7


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("kind", ["done callback", "on_completed"])
def test_a_callback_that_raises_harms_nobody(kind: str, error: BaseException, tmp_path: pathlib.Path) -> None:
    called = threading.Event()

    def callback(_result: Any) -> None:
        called.set()
        raise error

    @ray.remote
    def wait_for_file() -> None:
        while not (tmp_path / "go").exists():
            time.sleep(0.01)

    ref = wait_for_file.remote()
    if kind == "done callback":
        ref.future().add_done_callback(callback)
    else:
        ref._on_completed(callback)
    (tmp_path / "go").touch()
    assert called.wait(60)
    works()


@pytest.mark.usefixtures("session")
def test_a_callback_on_an_event_loop_that_raises_harms_nobody() -> None:
    called = threading.Event()

    def callback(_result: Any) -> None:
        called.set()
        raise ValueError("no")

    asyncio.run(_with_callback(ray.put(1), callback))
    assert called.wait(60)
    works()


async def _with_callback(ref: Any, callback: Any) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    future = ref.as_future()
    future.add_done_callback(callback)
    assert await future == 1
    await asyncio.sleep(0)


@pytest.mark.usefixtures("session")
def test_callbacks_that_block_harm_nobody() -> None:
    release = threading.Event()
    blocked = threading.Semaphore(0)

    def callback(_result: Any) -> None:
        blocked.release()
        release.wait(60)

    try:
        for number in range(12):
            ray.put(number)._on_completed(callback)
        for _ in range(12):
            assert blocked.acquire(timeout=60), "each callback runs although those before it block"
        works()
    finally:
        release.set()


@pytest.mark.usefixtures("session")
def test_an_event_loop_that_blocks_in_a_callback_stops_only_itself() -> None:
    release = threading.Event()
    blocked = threading.Event()

    def callback(_result: Any) -> None:
        blocked.set()
        release.wait(60)

    thread = threading.Thread(target=lambda: asyncio.run(_with_callback(ray.put(1), callback)))
    thread.start()
    assert blocked.wait(60)
    works()
    release.set()
    thread.join(60)
    assert not thread.is_alive()


class Hook(io.StringIO):
    """A program's own `sys.stdout`, which does something with each text."""

    def __init__(self, action: Any) -> None:
        super().__init__()
        self._action = action
        self.seen = threading.Event()

    def write(self, text: str) -> int:
        if "marked" in text:
            self.seen.set()
            self._action()
        return len(text)


@ray.remote
def speak() -> None:
    print("marked")


@pytest.mark.parametrize("action", ["raise", "block", "call the engine"])
def test_a_stream_of_the_program_that_misbehaves_harms_nobody(
    action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def act() -> None:
        if action == "raise":
            raise ValueError("no")
        if action == "block":
            release.wait(60)
        else:
            works()

    out = Hook(act)
    monkeypatch.setattr(sys, "stdout", out)
    init(num_cpus=2)
    try:
        ray.get(speak.remote(), timeout=60)
        assert out.seen.wait(60)
        works()
    finally:
        release.set()
        ray.shutdown()


IMPORTING = """
import builtins, sys, threading
import runtime as ray

builtins.gate = threading.Lock()
ray.init(num_cpus=2)
started, done = threading.Event(), threading.Event()

def callback(_result):
    started.set()
    import blocked_module
    done.set()

with builtins.gate:  # until the end of this block the import does not return
    ray.put(1)._on_completed(callback)
    assert started.wait(60)

    @ray.remote
    def one():
        return 1

    assert ray.get([one.remote() for _ in range(100)], timeout=60) == [1] * 100
    assert one.remote().future().result(60) == 1
    assert not done.is_set()
assert done.wait(60)
print("worked")
"""


def test_a_callback_that_imports_harms_nobody(tmp_path: pathlib.Path) -> None:
    (tmp_path / "blocked_module.py").write_text("import builtins\nwith builtins.gate:\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IMPORTING)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert "worked" in done.stdout
