"""Reads a source as a data set would: its tasks one after the other, each after a trip through pickle."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pyarrow as pa


def blocks(source: Any, parallelism: int = -1, **options: Any) -> list[pa.Table]:
    tasks = [
        cloudpickle.loads(cloudpickle.dumps(task)) for task in source.get_read_tasks(parallelism, **options)
    ]
    return [block for task in tasks for block in task()]


def rows(source: Any, parallelism: int = -1, **options: Any) -> list[dict[str, Any]]:
    return [row for block in blocks(source, parallelism, **options) for row in block.to_pylist()]
