"""Columns over the memory of arrays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block.arrays import of_numpy


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5),
        np.arange(10, dtype=np.uint8)[::2],
        np.array([1.5, np.nan]),
        np.array([1, 2], ">i4"),
        np.array([], np.float32),
        np.array([True, False, True]),
        np.array(["a", "bc"]),
        np.array(["2024-01-01", "NaT"], "datetime64[s]"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_the_column_is_as_pyarrow_makes_it(values: np.ndarray) -> None:
    native = values.astype(values.dtype.newbyteorder("="))
    column = of_numpy(native)
    expected = pa.array(native)
    assert column.type == expected.type
    assert str(column) == str(expected)


def test_numbers_are_not_copied() -> None:
    values = np.arange(1000)
    assert of_numpy(values).buffers()[1].address == values.ctypes.data


def test_batches_of_numbers_do_not_import_pandas() -> None:
    program = """
import sys
import numpy as np
from runtime.data._block.batch import from_batch, rows, to_batch
table = from_batch({"a": np.arange(4), "b": np.ones((4, 2))})
assert list(rows(table))[1]["a"] == 1
to_batch(table, "numpy")
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
