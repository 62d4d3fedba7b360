"""Public interfaces of data sources and sinks, with Ray's names (`ray.data.datasource`)."""

from __future__ import annotations

from runtime.data.io.interfaces import (
    BlockMetadata,
    Datasink,
    Datasource,
    ReadTask,
    SaveMode,
    TaskContext,
    WriteResult,
)
from runtime.data.io.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
)

__all__ = [
    "BlockMetadata",
    "Datasink",
    "Datasource",
    "PartitionStyle",
    "Partitioning",
    "PathPartitionFilter",
    "PathPartitionParser",
    "ReadTask",
    "SaveMode",
    "TaskContext",
    "WriteResult",
]
