"""The zygote as a real process, and as an object with an entry of the test's own in a fork."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime._node.zygote import Zygote, describe_exit
from runtime._node.zygote_spawn import SpawnedZygote, spawn_zygote
from tests.processes import is_alive


class Events:
    """Remembers what a zygote reports."""

    def __init__(self) -> None:
        self.forked: dict[int, tuple[int, str, str]] = {}
        self.exited: dict[int, int] = {}
        self.lost: list[str] = []
        self.news = asyncio.Event()

    def worker_forked(self, token: int, pid: int, out: str, err: str) -> None:
        self.forked[token] = (pid, out, err)
        self.news.set()

    def worker_not_forked(self, token: int, error: str) -> None:
        raise AssertionError(error)

    def worker_exited(self, pid: int, status: int) -> None:
        self.exited[pid] = status
        self.news.set()

    def zygote_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.news.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.news.clear()
                await self.news.wait()


def request(folder: Path, token: int, **start: Any) -> dict[str, Any]:
    """A worker that finds no agent at its socket and therefore ends by itself."""
    return {
        "token": token,
        "start": {
            "agent_socket": str(folder / "nobody.sock"),
            "startup_token": token,
            "worker_id": "00" * 28,
            "node_id": "00" * 28,
            "session_dir": str(folder),
            "node_host": "127.0.0.1",
            "job_id": "00000001",
            **start,
        },
        "env": {},
        "cwd": str(folder),
        "path": [],
        "out": str(folder / f"{token}-{{pid}}.out"),
        "err": str(folder / f"{token}-{{pid}}.err"),
    }


async def started(folder: Path) -> tuple[Zygote, Events]:
    (folder / "logs").mkdir()
    events = Events()
    zygote = Zygote(events, spawn_zygote(str(folder)))
    await zygote.start()
    await zygote.wait_ready()
    return zygote, events


def test_a_worker_that_fails_is_reported_and_leaves_its_traceback(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        zygote, events = await started(tmp_path)
        try:
            zygote.fork(request(tmp_path, 1))
            await events.until(lambda: events.exited)
            pid, _, err = events.forked[1]
            return events.exited[pid], err
        finally:
            await zygote.stop()

    status, err = asyncio.run(scenario())
    assert status == 1
    assert "nobody.sock" in Path(err).read_text()
    assert Path(err).stat().st_mode & 0o777 == 0o600


def test_the_end_of_the_zygote_is_noticed(tmp_path: Path) -> None:
    async def scenario() -> str:
        zygote, events = await started(tmp_path)
        os.kill(zygote.pid, signal.SIGKILL)
        await events.until(lambda: events.lost)
        return events.lost[0]

    assert "SIGKILL" in asyncio.run(scenario())


def test_a_zygote_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.setattr("runtime._node.zygote_spawn.daemon_environment", lambda: _with_path(str(broken)))

    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="broken on purpose"):
            await started(tmp_path)

    asyncio.run(scenario())


def _with_path(first: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([first, os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize("options", [[], ["-P"]], ids=["script's folder in the path", "safe path"])
def test_another_python_keeps_its_own_import_path(tmp_path: Path, options: list[str]) -> None:
    folder = tmp_path / "its own" / "runtime" / "_process"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "zygote.py").write_text("def main():\n    print('found', __file__)")
    (tmp_path / "logs").mkdir()
    own = {"PYTHONPATH": str(tmp_path / "its own")}
    spawned = spawn_zygote(str(tmp_path), [sys.executable, "-S", *options], own)
    with spawned.connection:
        assert spawned.process.wait(60) == 0, Path(spawned.log_path).read_text()
    assert f"found {folder / 'zygote.py'}" in Path(spawned.log_path).read_text()


def test_the_zygote_ends_when_its_agent_closes_the_socket(tmp_path: Path) -> None:
    async def scenario() -> int:
        zygote, _ = await started(tmp_path)
        zygote._stopping = True
        assert zygote._transport is not None
        zygote._transport.close()
        return await asyncio.to_thread(zygote._process.wait, 60)

    assert asyncio.run(scenario()) == 0


def test_the_zygote_ends_in_order_when_its_agent_is_killed_before_it_has_read_all(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    spawned = spawn_zygote(str(tmp_path))
    with spawned.connection:
        assert select.select([spawned.connection], [], [], 60)[
            0
        ]  # it says that it is ready, and nobody reads that
    assert spawned.process.wait(60) == 0, Path(spawned.log_path).read_text()


def test_the_loop_runs_on_while_a_zygote_is_slow_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime._node.zygote._END_S", 0.2)

    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    ours, theirs = socket.socketpair()

    async def scenario() -> None:
        zygote = Zygote(Events(), SpawnedZygote(process, ours, str(tmp_path / "log")))
        await zygote.start()
        stopping = asyncio.create_task(zygote.stop())
        await asyncio.sleep(0)
        assert process.poll() is None
        await stopping
        assert process.poll() == -signal.SIGKILL

    with theirs:
        asyncio.run(scenario())


def test_a_pid_that_is_no_child_is_never_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        zygote, events = await started(tmp_path)
        try:
            zygote.kill(os.getppid())
            zygote.fork(request(tmp_path, 1))
            await events.until(lambda: events.exited)
            assert is_alive(os.getppid())
        finally:
            await zygote.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by signal 9 (SIGKILL), which may have been the system's OOM killer, for want of memory"),
        (-15, "killed by signal 15 (SIGTERM)"),
        (-99, "killed by signal 99"),
    ],
)
def test_exits_are_described(status: int, text: str) -> None:
    assert describe_exit(status) == text
