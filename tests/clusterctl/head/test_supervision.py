"""Restarts of the head's daemons, with real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from clusterctl.head.supervision import MAX_RESTARTS, WITHIN_S, GaveUp, Restarts, keep_alive
from runtime._session.daemons import Daemon


def daemon(program: str) -> Daemon:
    return Daemon(subprocess.Popen([sys.executable, "-S", "-c", program]), {}, "some.log")


def test_restarts_are_bounded_within_a_window() -> None:
    restarts = Restarts()
    assert all(restarts.allow(float(i)) for i in range(MAX_RESTARTS))
    assert not restarts.allow(float(MAX_RESTARTS))
    assert restarts.allow(WITHIN_S + MAX_RESTARTS + 1.0)


def test_a_daemon_that_ends_is_restarted() -> None:
    async def test() -> None:
        replaced: asyncio.Queue[Daemon] = asyncio.Queue()
        first = daemon("pass")
        keeper = asyncio.create_task(
            keep_alive("daemon", first, lambda: daemon("import time; time.sleep(300)"), replaced.put_nowait)
        )
        second = await replaced.get()
        assert second.process.poll() is None
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        second.kill()

    asyncio.run(test())


def test_a_daemon_that_ends_again_and_again_is_given_up() -> None:
    async def test() -> None:
        with pytest.raises(GaveUp, match=r"some\.log"):
            await keep_alive("daemon", daemon("pass"), lambda: daemon("pass"))

    asyncio.run(test())
