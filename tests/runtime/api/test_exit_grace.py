"""Actors that are to end, and user code in them that does not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.polling import eventually
from tests.processes import is_alive
from tests.under_test import OWN, exceptions, init, ray


@pytest.fixture(scope="module", autouse=True)
def impatient(no_leaks: None) -> Iterator[None]:
    init(num_cpus=4, _system_config={"actor_graceful_shutdown_timeout_ms": 500})
    yield
    ray.shutdown()


@ray.remote(num_cpus=0)
class Coroutines:
    async def spin(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None:
        ray.actor.exit_actor()


@ray.remote(num_cpus=0, max_concurrency=2)
class Threads:
    def spin(self) -> None:
        while True:
            time.sleep(0.1)

    def leave(self) -> None:
        ray.actor.exit_actor()


@pytest.mark.skipif(not OWN, reason="the other engine waits for ever")
@pytest.mark.parametrize("kind", [Coroutines, Threads], ids=["coroutines", "threads"])
def test_calls_beside_the_one_that_exits_have_a_while_to_end(kind: type) -> None:
    actor = kind.remote()  # type: ignore[attr-defined]
    spinning = actor.spin.remote()
    assert ray.wait([spinning], timeout=0.2)[0] == []
    for ref in (actor.leave.remote(), spinning):
        with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
            ray.get(ref, timeout=30)


@pytest.mark.skipif(not OWN, reason="the other engine takes longer than it was told")
def test_the_last_handler_has_a_while_to_end(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        def pid(self) -> int:
            return os.getpid()

        def __ray_shutdown__(self) -> None:
            (tmp_path / "began").touch()
            while True:
                time.sleep(0.1)

    actor = Slow.remote()
    pid = ray.get(actor.pid.remote())
    del actor
    assert eventually((tmp_path / "began").exists)
    assert eventually(lambda: not is_alive(pid))
