"""Who looks after the keeper of a head."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterctl.head import keeping
from clusterctl.head.keeping import LOCK, keep_keeper
from clusterctl.startup.record import DaemonRecord, remember
from tests.polling import eventually, stays

STARTED = "started"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(keeping, "_LOOK_S", 0.01)
    (tmp_path / "logs").mkdir()
    remember(
        str(tmp_path),
        DaemonRecord(pid=os.getpid(), start_ticks=1, role="head", control_address="127.0.0.1:4321"),
    )
    return str(tmp_path)


def keep(session: str, command: tuple[str, ...], seen: Callable[[], bool]) -> None:
    """Has keepers started until something was seen."""

    async def scenario() -> None:
        watch = asyncio.create_task(keep_keeper(session, command))
        try:
            assert await asyncio.to_thread(seen)
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    asyncio.run(scenario())


def keepers(session: str) -> int:
    path = Path(session, STARTED)
    return path.read_text().count("x") if path.exists() else 0


def a_keeper(session: str, then: str = "") -> tuple[str, ...]:
    return ("sh", "-c", f"printf x >> {session}/{STARTED}; {then}")


def test_a_keeper_that_ends_is_followed_by_another(session: str) -> None:
    keep(session, a_keeper(session), lambda: eventually(lambda: keepers(session) >= 3))


def test_a_keeper_that_is_coming_up_is_waited_for(session: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "enough")

    def seen() -> bool:
        return eventually(lambda: keepers(session)) and stays(lambda: keepers(session) == 1)

    keep(session, a_keeper(session, f"read word < {tmp_path}/enough"), seen)
    with open(tmp_path / "enough", "w"):  # it ends
        pass


def test_a_keeper_of_before_is_enough(session: str) -> None:
    with open(f"{session}/{LOCK}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keep(session, a_keeper(session), lambda: stays(lambda: keepers(session) == 0))


def test_a_head_that_is_told_to_end_needs_none(session: str) -> None:
    os.remove(f"{session}/daemon.json")
    keep(session, a_keeper(session), lambda: stays(lambda: keepers(session) == 0))
