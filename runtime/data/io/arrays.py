"""NumPy's `.npy` files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data.block import BlockAccessor
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.sinks import BlockBasedFileDatasink

if TYPE_CHECKING:
    import pyarrow as pa


class NumpyDatasource(FileBasedDatasource):
    """A row per element of the first axis, in the column "data".

    Args:
        numpy_load_args: Arguments of `numpy.load`, for example allow_pickle.
    """

    _COLUMN = "data"

    def __init__(self, paths: Any, *, numpy_load_args: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(paths, **options)
        self._load_args = dict(numpy_load_args or {})

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import numpy as np

        from runtime.data._block import batch

        values = np.load(io.BytesIO(f.read()), **self._load_args)
        yield batch.from_batch({self._COLUMN: np.atleast_1d(values)})


class NumpyDatasink(BlockBasedFileDatasink):
    """Writes a column to `.npy` files.

    Args:
        column: The column.
    """

    def __init__(self, path: str, *, column: str, **options: Any) -> None:
        super().__init__(path, file_format="npy", **options)
        self._column = column

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        import numpy as np

        table = block.to_arrow()
        if self._column not in table.column_names:
            raise ValueError(f"There is no column {self._column!r} to write, but {table.column_names}.")
        buffer = io.BytesIO()
        np.save(buffer, block.to_numpy(self._column))
        file.write(buffer.getbuffer())
