"""Restarts of the head's daemons, with real processes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest

from clusterctl.head import supervision
from clusterctl.head.supervision import MAX_RESTARTS, WITHIN_S, GaveUp, Restarts, keep_alive, keep_going
from runtime._session.daemons import Daemon
from runtime._transport.channel import CallError


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


def test_a_daemon_that_the_system_does_not_start_is_tried_again() -> None:
    async def test() -> None:
        replaced: asyncio.Queue[Daemon] = asyncio.Queue()
        refusals = iter([OSError(28, "No space left on device")])

        def restart() -> Daemon:
            for refusal in refusals:
                raise refusal
            return daemon("import time; time.sleep(300)")

        keeper = asyncio.create_task(keep_alive("daemon", daemon("pass"), restart, replaced.put_nowait))
        second = await replaced.get()
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        second.kill()

    asyncio.run(test())


def test_a_part_of_the_head_that_fails_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervision, "_AGAIN_S", 0.0)
    failures: list[Exception] = [CallError("TIMEOUT", "the control store is away"), KeyError("a fault")]
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if failures:
            raise failures.pop(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(keep_going("watch over the mounts", work))
    assert begun == 3
    assert "the control store is away" in caplog.text
    assert "a fault" in caplog.text
