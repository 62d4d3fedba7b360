"""How a head ends: in order, whatever fails."""

from __future__ import annotations

import asyncio
import pathlib
import socket
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoscaler.provider import Capabilities
from clusterctl.head import ending, server
from clusterctl.head.first import HeadError
from clusterctl.head.jobs import JobSupervisor
from clusterctl.head.supervision import GaveUp
from clusterctl.startup.config import HeadConfig
from runtime._session.daemons import Daemon, DaemonError


def head(tmp_path: pathlib.Path) -> server.Head:
    secret = tmp_path / "secret"
    secret.write_text("s")
    return server.Head(HeadConfig(cluster_id="c-1", cluster_name="c"), str(secret), str(tmp_path))


@pytest.mark.parametrize("error", [GaveUp("the node agent ended 6 times"), KeyError("a fault")])
def test_a_part_that_fails_lets_the_head_end_in_order(tmp_path: pathlib.Path, error: Exception) -> None:
    async def fail() -> None:
        raise error

    async def test() -> server.Head:
        one = head(tmp_path)
        async with asyncio.TaskGroup() as group:
            group.create_task(one._or_stop(fail(), "API"))
            await one._stop.wait()
        return one

    assert str(error) in asyncio.run(test())._failure


def test_whatever_keeps_a_head_from_its_work_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Control:
        @classmethod
        def over_tcp(cls, *_: Any, **__: Any) -> Control:
            return cls()

        async def start(self) -> None:
            pass

        async def close(self) -> None:
            pass

    async def damaged(self: JobSupervisor) -> None:
        raise ValueError("the record of a job is damaged")

    monkeypatch.setattr(server, "ControlClient", Control)
    monkeypatch.setattr(JobSupervisor, "recover", damaged)
    monkeypatch.setattr(server, "_end_daemons", lambda daemons: None)
    monkeypatch.setattr(server.Head, "_start_agent", lambda self, address: None)

    async def test() -> None:
        store: Future[Any] = Future()
        store.set_result(SimpleNamespace(ready={"address": "127.0.0.1:1"}))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await head(tmp_path).run(listener, store, lambda words: None)

    with pytest.raises(HeadError, match="the record of a job is damaged"):
        asyncio.run(test())


def test_the_last_act_is_done_whatever_failed_before(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []

    def broken(daemons: list[Any]) -> None:
        raise RuntimeError("a daemon does not end")

    monkeypatch.setattr(server, "_end_daemons", broken)

    async def test() -> None:
        one = head(tmp_path)
        one._last_act = lambda: acts.append("its machine")
        store: Future[Daemon] = Future()
        store.set_exception(DaemonError("the control store does not come up"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await one.run(listener, store, lambda words: None)

    with pytest.raises((HeadError, RuntimeError)):
        asyncio.run(test())
    assert acts == ["its machine"]


def test_an_end_that_has_begun_is_not_called_off_by_what_fails_in_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        capabilities = Capabilities()

        def list(self) -> list[Any]:
            raise OSError("no space left on device")

    scaling = SimpleNamespace(provider=Full(), report=lambda: SimpleNamespace(instances=()))
    jobs = SimpleNamespace(close_if_unused=lambda: True)
    monkeypatch.setattr(ending, "_AGAIN_S", 0.0)

    async def test() -> server.Head:
        one = head(tmp_path)
        scaler: asyncio.Task[None] = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
        assert await one._end_cluster(cast(Any, scaling), scaler, cast(Any, jobs), down=True, now=False)
        assert scaler.cancelled()
        return one

    one = asyncio.run(test())
    assert one._stop.is_set()
    assert one._last_act is not None
    one._last_act()  # which raises nothing either
