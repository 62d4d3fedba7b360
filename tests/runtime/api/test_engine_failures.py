"""A part of the engine that fails must not stop the program, nor the other parts."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from runtime._process.core_worker import current
from tests.polling import eventually
from tests.under_test import OWN, ray

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.skipif(not OWN, reason="it breaks this engine's own parts"),
]


@ray.remote
def one() -> int:
    return 1


def fail(*_: Any) -> Any:
    raise RuntimeError("a part of the engine failed")


@pytest.mark.parametrize("part", ["store", "waiter", "tasks"])
def test_a_failing_tick_stops_neither_get_nor_the_other_ticks(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = current()
    ticks: list[str] = []
    for name in ("store", "waiter", "tasks"):
        real = getattr(core, name).tick

        def tick(*args: Any, name: str = name, real: Any = real) -> Any:
            ticks.append(name)
            return fail() if name == part else real(*args)

        monkeypatch.setattr(getattr(core, name), "tick", tick)
    assert ray.get(one.remote(), timeout=30) == 1
    assert eventually(lambda: {"store", "waiter", "tasks"} <= set(ticks))
    ref = one.remote()  # nobody waits: the background thread serves
    assert eventually(lambda: ref._entry.value is not None)


def test_a_lost_worker_is_told_to_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    @ray.remote
    class Actor:
        def pid(self) -> int:
            return os.getpid()

    actor = Actor.remote()
    pid = ray.get(actor.pid.remote())
    monkeypatch.setattr(current().tasks, "link_lost", fail)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.pid.remote(), timeout=30)
    monkeypatch.undo()
    assert ray.get(one.remote(), timeout=30) == 1
