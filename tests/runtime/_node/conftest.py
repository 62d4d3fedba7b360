"""The `world` fixture: nodes for one test, and a check that nothing of them is left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.runtime._node.world import MakeWorld, World


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    """Makes worlds; afterwards no process, session directory or record of them may be left."""
    root = Path(tmp_path_factory.mktemp("w"))
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", str(root))
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    @asynccontextmanager
    async def make() -> AsyncIterator[World]:
        made = World(root)
        await made.control.start()
        try:
            yield made
        finally:
            await made.close()

    yield make
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    _, alive = psutil.wait_procs(left, timeout=60)
    assert not alive
    assert not list(root.rglob("*.json"))
    assert not [path for path in root.iterdir() if path.name.startswith("n")]
