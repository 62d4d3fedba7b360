"""Functions that make data sets of what exists in memory or in another library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from runtime.data.dataset import Dataset, MaterializedDataset

_BLOCKS = 16
"""Into how many blocks items are split at most where nobody says it, so that tasks can work on them side by side."""


def from_items(
    items: Iterable[Any], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Rows of dicts; other objects go into the column "item".

    Args:
        items: The rows.
        parallelism: The old name of `override_num_blocks`.
        override_num_blocks: How many blocks to make; 16 by default, if there are so many rows.
    """
    from runtime.data._block import batch

    rows = [item if isinstance(item, Mapping) else {"item": item} for item in items]
    return _given([batch.from_rows(part) for part in _parts(rows, _wanted(override_num_blocks, parallelism))])


def from_arrow(
    tables: pa.Table | bytes | Sequence[pa.Table | bytes], *, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Rows of Arrow tables, or of bytes in Arrow's IPC stream format; a block for each.

    Args:
        tables: One or several.
        override_num_blocks: Into how many blocks to split all of them instead.
    """
    import pyarrow as pa

    from runtime.data._block.views import without_views

    given = tables if isinstance(tables, list | tuple) else [tables]
    made = [pa.ipc.open_stream(table).read_all() if isinstance(table, bytes) else table for table in given]
    return _given([without_views(table) for table in made], override_num_blocks)


def from_blocks(blocks: Sequence[Any]) -> MaterializedDataset:
    """Rows of blocks: Arrow tables or pandas data frames."""
    from runtime.data.io.interfaces import as_table

    return _given([as_table(block) for block in blocks])


def from_pandas(
    dfs: pd.DataFrame | Sequence[pd.DataFrame], override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Rows of pandas data frames, without their index; a block for each.

    Args:
        dfs: One or several.
        override_num_blocks: Into how many blocks to split all of them instead.
    """
    from runtime.data._block import batch

    frames = dfs if isinstance(dfs, list | tuple) else [dfs]
    return _given([batch.from_batch(frame) for frame in frames], override_num_blocks)


def from_numpy(ndarrays: np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any]]) -> MaterializedDataset:
    """The elements of the first axis of arrays as rows, in the column "data"; a block for each array."""
    arrays = ndarrays if isinstance(ndarrays, list | tuple) else [ndarrays]
    return _given([_of_array(array) for array in arrays])


def from_arrow_refs(tables: Any) -> MaterializedDataset:
    """Rows of Arrow tables, or IPC streams, behind references; they stay where they are."""
    return _given_refs(tables, "arrow")


def from_pandas_refs(dfs: Any) -> MaterializedDataset:
    """Rows of pandas data frames behind references."""
    return _given_refs(dfs, "pandas")


def from_numpy_refs(ndarrays: Any) -> MaterializedDataset:
    """Elements of arrays behind references, in the column "data"."""
    return _given_refs(ndarrays, "numpy")


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """The elements of a `torch.utils.data.Dataset`, in the column "item".

    Args:
        dataset: With indices, or to iterate.
        local_read: No effect; the data set travels to the tasks.
    """
    from runtime.data.dataset import Dataset
    from runtime.data.io.memory import TorchDatasource

    return Dataset._from_datasource(TorchDatasource(dataset))


def from_tf(dataset: Any) -> MaterializedDataset:
    """The elements of a `tf.data.Dataset`; all of them are read at once."""
    return from_items(list(dataset.as_numpy_iterator()))


def from_huggingface(
    dataset: Any,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """The rows of a `datasets.Dataset` or `datasets.IterableDataset`.

    Args:
        dataset: A data set, not a dict of splits.
        parallelism: The old name of `override_num_blocks`.
        concurrency: How many tasks read at a time.
        override_num_blocks: How many blocks to make.

    Raises:
        TypeError: It is a dict of splits, or something else.
    """
    if isinstance(dataset, Mapping):
        raise TypeError(
            f"Choose one of the splits {sorted(dataset)}, for example dataset[{next(iter(dataset))!r}]."
        )
    if hasattr(dataset, "with_format") and hasattr(dataset, "__len__"):
        table = dataset.with_format("arrow")[:]
        wanted = _wanted(override_num_blocks, parallelism)
        return _given([table.replace_schema_metadata(None)], wanted or min(_BLOCKS, max(1, table.num_rows)))
    if hasattr(dataset, "with_format") and hasattr(dataset, "iter"):
        from runtime.data.dataset import Dataset
        from runtime.data.io.memory import ArrowStreamDatasource

        return Dataset._from_datasource(ArrowStreamDatasource(dataset), concurrency=concurrency)
    raise TypeError(
        f"from_huggingface takes a data set of the library `datasets`, not {type(dataset).__name__}."
    )


def from_dask(df: Any) -> MaterializedDataset:
    """The rows of a Dask data frame; a block for each partition, which are computed by Dask, one by one."""
    return from_pandas([partition.compute() for partition in df.partitions])


def _wanted(blocks: int | None, parallelism: int) -> int | None:
    wanted = blocks if blocks is not None else parallelism if parallelism not in (-1, None) else None
    if wanted is not None and wanted < 1:
        raise ValueError(f"override_num_blocks must be at least 1, not {wanted}.")
    return wanted


def _parts(rows: list[Any], wanted: int | None) -> list[list[Any]]:
    """The rows in so many parts of about the same size; none is empty unless all are."""
    parts = max(1, min(wanted or _BLOCKS, len(rows)))
    return [rows[len(rows) * i // parts : len(rows) * (i + 1) // parts] for i in range(parts)]


def _of_array(array: Any) -> pa.Table:
    from runtime.data._block import batch

    return batch.from_batch({"data": array})


def _given(tables: Sequence[pa.Table], wanted: int | None = None) -> MaterializedDataset:
    """The data set of tables, as they are or, all together, in so many blocks."""
    import runtime
    from runtime.data._block import schema_diff
    from runtime.data._plan.nodes import Given, GivenBlock
    from runtime.data.dataset import MaterializedDataset

    if wanted is not None:
        _wanted(wanted, -1)
        whole = tables[0] if len(tables) == 1 else schema_diff.concat(tables)
        parts = _parts(range(whole.num_rows), wanted)  # type: ignore[arg-type]
        tables = [whole.slice(part[0], len(part)) for part in parts] if whole.num_rows else [whole]
    blocks = tuple(GivenBlock(runtime.put(table), table.num_rows, table.nbytes) for table in tables)
    return MaterializedDataset(Given(blocks, tables[0].schema if tables else None))


def _given_refs(refs: Any, form: str) -> MaterializedDataset:
    """The data set of objects behind references; tasks make tables of them where they are, or only look at them."""
    import runtime
    from runtime.data._plan.nodes import Given, GivenBlock
    from runtime.data.dataset import MaterializedDataset

    given = list(refs) if isinstance(refs, list | tuple) else [refs]
    convert = runtime.remote(num_returns=2)(_converted)
    made = [convert.remote(form, ref) for ref in given]
    told = runtime.get([facts for _, facts in made])
    blocks = [
        GivenBlock(ref if is_table else table, rows, size)
        for ref, (table, _), (is_table, rows, size, _) in zip(given, made, told, strict=True)
    ]
    return MaterializedDataset(Given(tuple(blocks), told[0][3] if told else None))


def _converted(form: str, value: Any) -> tuple[pa.Table | None, tuple[bool, int, int, pa.Schema]]:
    """A table of the value, or None if it is one; whether it is one, its rows, bytes and schema."""
    import pyarrow as pa

    from runtime.data._block import batch

    if form == "numpy":
        table = _of_array(value)
    elif isinstance(value, bytes):
        table = batch.from_batch(pa.ipc.open_stream(value).read_all())
    else:
        table = batch.from_batch(value)
    is_table = table is value
    return (None if is_table else table), (is_table, table.num_rows, table.nbytes, table.schema)
