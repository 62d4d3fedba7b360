"""Writes tables to a sink as a data set would."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from runtime.data.datasource import TaskContext, WriteResult


def write(sink: Any, *tasks: Sequence[pa.Table]) -> None:
    """Writes the blocks of each task, and commits."""
    commit(sink, start(sink, *tasks))


def start(sink: Any, *tasks: Sequence[pa.Table]) -> list[Any]:
    """What the tasks return, before the commit."""
    sink.on_write_start(None)
    return [attempt(sink, index, blocks) for index, blocks in enumerate(tasks)]


def attempt(sink: Any, index: int, blocks: Sequence[pa.Table]) -> Any:
    """What a task returns, on another process's copy of the sink."""
    there = cloudpickle.loads(cloudpickle.dumps(sink))
    return there.write(iter(blocks), TaskContext(index))


def commit(sink: Any, returned: list[Any]) -> None:
    sink.on_write_complete(WriteResult(0, 0, returned))


def files(folder: pathlib.Path) -> list[str]:
    """All files in a folder, hidden ones included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
