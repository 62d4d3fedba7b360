"""Data sets that stream through a cluster within a bounded amount of memory, with Ray Data's API.

`dataset.Dataset` builds a plan (`_plan`, pure), the executor runs it (`_exec`) on blocks (`_block`), which are Arrow
tables. `read_api` and `io` read and write. Names are imported on first use: pyarrow, pandas and torch only load when
they are needed. This package uses the engine's public API, `runtime._extension` and `runtime._controllers`.
"""

from __future__ import annotations

import importlib
from typing import Any

from runtime.data._elsewhere import INSTEAD, absent
from runtime.data._libraries import require

_PUBLIC = {
    "runtime.data.aggregate": ("AggregateFn", "AggregateFnV2"),
    "runtime.data.context": ("DataContext", "ExecutionOptions", "ExecutionResources"),
    "runtime.data.dataset": (
        "ActorPoolStrategy",
        "Dataset",
        "MaterializedDataset",
        "Schema",
        "TaskPoolStrategy",
    ),
    "runtime.data.datasource": (
        "BlockMetadata",
        "Datasink",
        "Datasource",
        "ReadTask",
        "SaveMode",
        "WriteResult",
    ),
    "runtime.data.datatype": ("DataType",),
    "runtime.data.from_api": (
        "from_arrow",
        "from_arrow_refs",
        "from_blocks",
        "from_dask",
        "from_huggingface",
        "from_items",
        "from_numpy",
        "from_numpy_refs",
        "from_pandas",
        "from_pandas_refs",
        "from_tf",
        "from_torch",
    ),
    "runtime.data.iterator": ("DataIterator",),
    "runtime.data.preprocessor": ("Preprocessor",),
    "runtime.data.read_api": (
        "FileShuffleConfig",
        "range",
        "range_tensor",
        "read_audio",
        "read_avro",
        "read_binary_files",
        "read_csv",
        "read_datasource",
        "read_delta",
        "read_iceberg",
        "read_images",
        "read_json",
        "read_lance",
        "read_numpy",
        "read_orc",
        "read_parquet",
        "read_sql",
        "read_text",
        "read_tfrecords",
        "read_webdataset",
    ),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
_SUBMODULES = frozenset(
    "aggregate block context dataset datasource datatype expressions grouped iterator preprocessor preprocessors "
    "read_api".split()
)

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name, f"runtime.data.{name}" if name in _SUBMODULES else None)
    if module not in (None, "runtime.data.context"):
        require(("pyarrow", "numpy"), "runtime.data")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"runtime.data.{name}")
    elif name in INSTEAD:
        value = absent(name)
    else:
        raise AttributeError(f"module 'runtime.data' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})
