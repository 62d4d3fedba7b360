"""Columns over the memory of arrays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block.arrays import of_numpy, of_sequence, to_numpy


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


def test_batches_of_simple_values_do_not_import_pandas() -> None:
    program = """
import sys
import numpy as np
from runtime.data._block.batch import from_batch, from_rows, rows, to_batch
table = from_batch({"a": np.arange(4), "b": np.ones((4, 2))})
assert list(rows(table))[1]["a"] == 1
to_batch(table, "numpy")
for few in (3, 4):
    made = from_rows([{"i": 1, "f": 0.5, "s": "a", "b": True, "l": ["x", None], "n": None, "y": b"z"}] * few)
    assert list(rows(made))[2]["l"] == ["x", None]
    to_batch(made.select(["i", "f", "s", "b", "y"]), "numpy")
    from_batch({"a": [1, 2, None], "b": ["x", "y", "z"]})
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None, None],
        [1, -2, 1 << 62],
        [1, None, 3],
        [1.5, None, float("nan")],
        [True, None, False] * 7,
        ["a", "", None, "é\U0001f600"],
        [b"a", None, b"\xff"],
        [[1, 2], [], None, [None, 3]],
        [["a"], [None, "bc"]],
        [[[1], []], None, [[2, 3]]],
        [[], []],
        [np.int16(1), np.int16(2)],
        [np.float32(1.5)],
    ],
    ids=str,
)
def test_columns_of_python_values_are_as_pyarrow_makes_them(values: list[object]) -> None:
    column, expected = of_sequence(values), pa.array(values)
    assert column is not None
    column.validate(full=True)
    assert column.type == expected.type
    assert str(column) == str(expected)
    assert column.null_count == expected.null_count


@pytest.mark.parametrize(
    "values", [[1, 2.5], [1 << 63], ["\ud800"], [{"a": 1}], [[1], ["a"]], [(1, 2)]], ids=str
)
def test_other_values_are_left_to_pyarrow(values: list[object]) -> None:
    assert of_sequence(values) is None


@pytest.mark.parametrize("values", [["a", "", "é"], [b"", b"x"], [True, False, True] * 6])
def test_texts_and_booleans_come_back(values: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    column, kind = pa.array(values), pa.array(values).to_numpy(zero_copy_only=False).dtype
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    assert to_numpy(column.slice(1)).tolist() == values[1:]
    assert to_numpy(column).dtype == kind
