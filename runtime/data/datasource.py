"""Public interfaces of data sources and sinks, with Ray's names (`ray.data.datasource`)."""

from __future__ import annotations

from runtime.data.io.filenames import FilenameProvider
from runtime.data.io.files import FileBasedDatasource, FileShuffleConfig
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
from runtime.data.io.sinks import BlockBasedFileDatasink, RowBasedFileDatasink

__all__ = [
    "BlockBasedFileDatasink",
    "BlockMetadata",
    "Datasink",
    "Datasource",
    "FileBasedDatasource",
    "FileShuffleConfig",
    "FilenameProvider",
    "PartitionStyle",
    "Partitioning",
    "PathPartitionFilter",
    "PathPartitionParser",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "TaskContext",
    "WriteResult",
]
