"""The head's server for remote drivers: kept alive, tried ever more rarely where it cannot work, and told of."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from clusterctl.head import remote_drivers
from clusterctl.head.remote_drivers import FAILING, LISTENING, NONE, STARTING, PortInUse, RemoteDrivers
from runtime._session.daemons import Daemon, DaemonError
from tests.polling import eventually

HOST = "127.0.0.1"


def daemon(program: str) -> Daemon:
    return Daemon(subprocess.Popen([sys.executable, "-S", "-c", program]), {}, "some.log")


def kept(
    drivers: RemoteDrivers, start: Callable[[], Daemon], now: Callable[[], float], count: int
) -> list[float]:
    """The pauses after the first `count` failures. At each the server must not be advertised."""
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        assert drivers.state == FAILING
        assert drivers.listens_at == ""
        pauses.append(pause_s)
        if len(pauses) == count:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(drivers.keep(start, sleep, now))
    return pauses


def test_a_server_that_does_not_start_is_tried_ever_more_rarely() -> None:
    drivers = RemoteDrivers(HOST, 0)
    assert (drivers.state, drivers.listens_at) == (STARTING, "")

    def start() -> Daemon:
        raise DaemonError("it ended before it was ready:\nTraceback ...\nImportError: no grpc here\n")

    assert kept(drivers, start, lambda: 0.0, 7) == [2, 4, 8, 16, 32, 60, 60]
    assert drivers.report() == {
        "address": drivers.address,
        "state": FAILING,
        "problem": "it does not start: ImportError: no grpc here",
    }


@pytest.mark.parametrize(("lives_s", "pauses"), [(1.0, [2, 4, 8]), (1000.0, [2, 2, 2])])
def test_only_a_server_that_stayed_is_restarted_as_soon_as_the_first_time(
    lives_s: float, pauses: list[float]
) -> None:
    drivers = RemoteDrivers(HOST, 0)
    clock = iter(range(1000))
    found = kept(drivers, lambda: daemon("raise SystemExit(3)"), lambda: next(clock) * lives_s, 3)
    assert found == pauses
    assert drivers.problem == "it ended with status 3; see some.log"


def test_it_is_advertised_while_it_listens() -> None:
    drivers = RemoteDrivers(HOST, 0)
    started: list[Daemon] = []

    def start() -> Daemon:
        started.append(daemon("import time; time.sleep(300)"))
        return started[0]

    async def test() -> None:
        keeper = asyncio.create_task(drivers.keep(start))
        assert await asyncio.to_thread(eventually, lambda: drivers.state != STARTING)
        assert (drivers.state, drivers.listens_at) == (LISTENING, drivers.address)
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)

    asyncio.run(test())
    assert started[0].process.poll() is not None


def test_without_grpc_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_drivers, "is_available", lambda: False)
    drivers = RemoteDrivers(HOST, 0)
    assert (drivers.address, drivers.state) == ("", NONE)
    assert "gRPC" in drivers.problem


def test_a_port_that_another_program_has_is_an_error_only_if_it_was_asked_for() -> None:
    with socket.create_server((HOST, 0)) as taken:
        with pytest.raises(PortInUse):
            RemoteDrivers(HOST, taken.getsockname()[1])
        assert RemoteDrivers(HOST, 0).port != taken.getsockname()[1]


@pytest.mark.parametrize("asked_for", [False, True])
def test_a_port_that_is_taken_before_the_server_listens(asked_for: bool) -> None:
    drivers = RemoteDrivers(HOST, 0)
    if asked_for:
        drivers = RemoteDrivers(HOST, drivers.port)
    tried: list[int] = []
    taken: list[socket.socket] = []

    def start() -> Daemon:
        tried.append(drivers.port)
        if not taken:
            taken.append(socket.create_server((HOST, drivers.port)))
            raise DaemonError("the address is in use")
        return daemon("raise SystemExit(3)")

    kept(drivers, start, lambda: 0.0, 1)
    taken[0].close()
    assert len(set(tried)) == (1 if asked_for else 2)
    assert drivers.address == f"{HOST}:{tried[-1]}"
