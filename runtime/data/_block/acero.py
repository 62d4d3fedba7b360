"""Arrow's execution engine, taken from where the public module `pyarrow.acero` has it.

Importing that one also loads Arrow's data sets of files and, where it is installed, pandas: a quarter of a second of
CPU time in every worker that groups or joins.
"""

from __future__ import annotations

try:
    from pyarrow._acero import (
        AggregateNodeOptions,
        Declaration,
        HashJoinNodeOptions,
        TableSourceNodeOptions,
    )
except ImportError:  # a version of pyarrow that keeps it elsewhere
    from pyarrow.acero import (
        AggregateNodeOptions,
        Declaration,
        HashJoinNodeOptions,
        TableSourceNodeOptions,
    )

__all__ = ["AggregateNodeOptions", "Declaration", "HashJoinNodeOptions", "TableSourceNodeOptions"]
