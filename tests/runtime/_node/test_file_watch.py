from __future__ import annotations

import asyncio
from pathlib import Path

from runtime._node.file_watch import FileWatch

LIMIT_S = 30.0


class Told:
    """How often something was told of, and whether it has been since one looked last."""

    def __init__(self) -> None:
        self.times = 0
        self.again = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self.again.set()

    async def next(self) -> None:
        await asyncio.wait_for(self.again.wait(), LIMIT_S)
        self.again.clear()


def test_a_file_that_grows_is_told_of_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        told = Told()
        watch = FileWatch(told)
        path = tmp_path / "log"
        path.write_text("old")
        assert watch.add(str(path))
        with path.open("a") as file:
            for _ in range(3):
                file.write("new")
                file.flush()
        await told.next()
        path.write_text("newer")
        await asyncio.sleep(0)
        assert told.times == 1
        assert watch.add(str(path))
        path.write_text("newest")
        await told.next()
        watch.close()

    asyncio.run(scenario())


def test_reading_a_file_says_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        told = Told()
        watch = FileWatch(told)
        quiet, loud = tmp_path / "quiet", tmp_path / "loud"
        for path in (quiet, loud):
            path.write_text("old")
            assert watch.add(str(path))
        quiet.read_text()
        loud.write_text("new")
        await told.next()
        assert told.times == 1
        watch.close()

    asyncio.run(scenario())


def test_what_is_not_there_is_not_watched(tmp_path: Path) -> None:
    async def scenario() -> None:
        watch = FileWatch(lambda: None)
        assert not watch.add(str(tmp_path / "nothing"))
        watch.remove(str(tmp_path / "nothing"))
        watch.close()

    asyncio.run(scenario())


def test_a_file_that_was_removed_can_be_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        watch = FileWatch(lambda: None)
        path = tmp_path / "log"
        path.write_text("old")
        assert watch.add(str(path))
        path.unlink()
        watch.remove(str(path))
        assert not watch.add(str(path))
        watch.close()
        watch.close()

    asyncio.run(scenario())
