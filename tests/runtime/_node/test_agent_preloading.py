"""Workers of zygotes with preloaded modules, on a real node."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from runtime._node import worker_pool, zygote_host
from runtime._node.agent import NodeAgent
from runtime._node.zygote_host import ZygoteHost
from runtime._wire.messages.base import ResourceRequest
from runtime._wire.messages.node import LeaseDemand, LeaseFailed, LeaseGranted, LeaseReturn

from .conftest import MakeWorld
from .world import Client

NOTE = "import os\nwith open(os.environ['AP_NOTES'], 'a') as notes:\n    notes.write(f'{__name__} {os.getpid()}\\n')\n"
MODULES = {
    "ap_slow": NOTE,
    "ap_other": NOTE,
    "ap_threads": f"{NOTE}from threading import Event, Thread\nThread(target=Event().wait, daemon=True).start()\n",
    "ap_fails": f"{NOTE}raise OSError('no library for it')\n",
    "ap_kills": f"{NOTE}import signal\nif os.getsid(0) == os.getpid():\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    "ap_hangs": f"{NOTE}import time\nif os.getsid(0) == os.getpid():\n    time.sleep(600)\n",
}


class Notes:
    """Which processes have imported what."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, module: str) -> list[int]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == module]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Modules that nodes can import."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), known])))
    monkeypatch.setenv("AP_NOTES", str(tmp_path / "notes"))
    return Notes(tmp_path / "notes")


def demand(driver: Client, key: bytes, *modules: str, **variables: str) -> None:
    env = {"preload": modules, "env_vars": variables}
    driver.channel.send(LeaseDemand(key, 1, ResourceRequest({}), json.dumps(env)))


async def lease(driver: Client, key: bytes, *modules: str, **variables: str) -> LeaseGranted:
    demand(driver, key, *modules, **variables)
    return (await driver.wait(LeaseGranted))[0]


def host_of(agent: NodeAgent, granted: LeaseGranted) -> ZygoteHost:
    worker = agent.pool.table.get(granted.worker.worker_id)
    assert worker is not None
    host: ZygoteHost = worker.host
    return host


def preloading(agent: NodeAgent) -> list[tuple[str, ...]]:
    found = [host.interpreter.preload for host in agent.pool._hosts.values()]
    return [preload.modules for preload in found if preload is not None]


def test_workers_of_equal_environments_share_one_import_which_ends_when_unused(
    world: MakeWorld, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "UNUSED_S", 0.2)

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            one, two = await w.driver(agent), await w.driver(agent)
            granted = [await lease(one, b"1", "ap_slow"), await lease(two, b"2", "ap_slow")]
            hosts = {id(host_of(agent, each)) for each in granted}
            assert len(hosts) == 1
            assert len(notes.of("ap_slow")) == 1
            for driver, each in zip((one, two), granted, strict=True):
                driver.channel.send(LeaseReturn(each.lease_id))
            await w.until(lambda: not preloading(agent))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("ap_threads", "it has 2 threads after the imports"),
        ("ap_kills", "SIGKILL"),
        ("ap_hangs", "the imports were not done after"),
    ],
)
def test_what_must_not_be_forked_is_imported_by_each_worker(
    world: MakeWorld,
    notes: Notes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: str,
    why: str,
) -> None:
    if module == "ap_hangs":
        monkeypatch.setattr(zygote_host, "PRELOAD_S", 0.3)

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            with caplog.at_level(logging.WARNING, "runtime._node.worker_pool"):
                granted = [await lease(driver, key, module) for key in (b"1", b"2")]
            assert not preloading(agent)
            workers = [agent.pool.table.get(each.worker.worker_id) for each in granted]
            assert {worker.pid for worker in workers if worker is not None} <= set(notes.of(module))
            lines = [record.message for record in caplog.records if "themselves" in record.message]
            assert len(lines) == 1
            assert lines[0].startswith(f"workers import {module} themselves: ")
            assert why in lines[0]

    asyncio.run(scenario())


def test_a_module_that_cannot_be_imported_fails_what_waits_for_it(world: MakeWorld, notes: Notes) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            for module, says in (
                ("ap_fails", "OSError: no library for it"),
                ("ap_nowhere", "No module named"),
            ):
                demand(driver, module.encode(), "ap_slow", module)
                [failed] = await driver.wait(LeaseFailed)
                assert f"Failed to import {module}, which runtime_env['preload'] names" in failed.message
                assert says in failed.message
            assert len(notes.of("ap_fails")) == 2  # in the zygote, then for the traceback in a worker

    asyncio.run(scenario())


def test_a_killed_zygote_of_another_python_is_started_and_imports_again(
    world: MakeWorld, notes: Notes
) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            env = json.dumps({"preload": ["ap_slow"], "py_executable": sys.executable})
            for key in (b"1", b"2"):
                driver.channel.send(LeaseDemand(key, 1, ResourceRequest({}), env))
            first, _ = await driver.wait(LeaseGranted, 2)
            host = host_of(agent, first)
            assert host.interpreter.command
            assert len(notes.of("ap_slow")) == 1
            assert host._zygote is not None
            os.kill(host._zygote.pid, signal.SIGKILL)
            await w.until(lambda: agent.pool.table.get(first.worker.worker_id) is None)
            driver.channel.send(LeaseDemand(b"3", 1, ResourceRequest({}), env))
            [again] = await driver.wait(LeaseGranted)
            assert host_of(agent, again) is host
            assert len(notes.of("ap_slow")) == 2

    asyncio.run(scenario())


def test_their_number_is_limited(world: MakeWorld, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_MAX_PRELOADING_ZYGOTES", "1")

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            first = await lease(driver, b"1", "ap_slow")
            beyond = await lease(driver, b"2", "ap_other")
            assert preloading(agent) == [("ap_slow",)]
            assert host_of(agent, beyond).interpreter.preload is None
            worker = agent.pool.table.get(first.worker.worker_id)
            assert worker is not None
            agent.pool.stop_worker(worker, "for this test", True)
            await agent.pool.ending(worker)
            await lease(driver, b"3", "ap_other", AP_OTHER="1")
            assert preloading(agent) == [("ap_other",)]
            assert Counter(map(len, (notes.of("ap_slow"), notes.of("ap_other")))) == {1: 1, 2: 1}
            assert not agent.pool.end_unused_zygotes()
            [worker] = [worker for worker in agent.pool.table if worker.host.interpreter.preload is not None]
            agent.pool.stop_worker(worker, "for this test", True)
            await agent.pool.ending(worker)
            assert agent.pool.end_unused_zygotes()
            assert preloading(agent) == []

    asyncio.run(scenario())
