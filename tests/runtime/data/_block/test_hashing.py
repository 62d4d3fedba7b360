"""Hashes of rows: alike for equal values however they are stored, the same in every process, and spread."""

from __future__ import annotations

import datetime
import decimal
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import hashing, objects, tensor

VALUES: dict[str, pa.Array] = {
    "int": pa.array([1, -5, None, 2**40]),
    "uint64": pa.array([1, 2**64 - 1, None, 7], pa.uint64()),
    "bool": pa.array([True, False, None, True]),
    "float": pa.array([1.0, float("nan"), None, -0.0]),
    "half": pa.array(np.array([1, 2, 3, 4], np.float16)),
    "text": pa.array(["", "a", None, "ß" * 5]),
    "long": pa.array(["x" * 127, "x" * 128, None, "x" * 1000]),
    "large": pa.array(["abcdefgh", "abcdefghi", None, "z"], pa.large_string()),
    "bytes": pa.array([b"", b"\0", None, b"\0\0"]),
    "fixed": pa.array([b"ab", b"cd", None, b"\0\0"], pa.binary(2)),
    "view": pa.array(["a", "b", None, "a long string that is not inlined"], pa.string_view()),
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "decimal": pa.array([decimal.Decimal("1.5"), decimal.Decimal("-1.5"), None, decimal.Decimal(0)]),
    "decimal256": pa.array([decimal.Decimal("1.5"), None, None, decimal.Decimal(9)], pa.decimal256(50, 2)),
    "date": pa.array([datetime.date(2026, 1, 1), None, None, datetime.date(1950, 1, 1)]),
    "time": pa.array([datetime.time(1), None, None, datetime.time(2)]),
    "timestamp": pa.array([1, None, 3, -4], pa.timestamp("us", "UTC")),
    "interval": pa.array([(1, 2, 3), None, (1, 2, 4), (0, 0, 0)], pa.month_day_nano_interval()),
    "list": pa.array([[1, 2], [], None, [2, 1]]),
    "large list": pa.array([["a"], [None], None, ["a", "b"]], pa.large_list(pa.string())),
    "fixed list": pa.array([[1, 2], [2, 1], None, [0, 0]], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 1)], [], None, [("b", 1)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None, {"a": 1, "b": "y"}]),
    "null": pa.nulls(4),
    "tensor": tensor.from_numpy(np.arange(8).reshape(4, 2)),
    "ragged": tensor.from_arrays([np.ones(1), np.ones(2), None, np.zeros(2)]),
    "object": objects.from_objects([{1}, "a", None, 3.5]),
}
SCRIPT = """
import importlib.util
spec = importlib.util.spec_from_file_location("cases", {file!r})
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
print([cases.hashing.hash_column(column).tolist() for column in cases.VALUES.values()])
"""


@pytest.mark.parametrize("name", VALUES)
def test_chunks_and_offsets_do_not_matter(name: str) -> None:
    column = VALUES[name]
    hashes = hashing.hash_column(column)
    assert len(hashes) == 4
    chunked = pa.chunked_array([column.slice(0, 1), column.slice(1, 0), column.slice(1)])
    assert hashing.hash_column(chunked).tolist() == hashes.tolist()
    again = pa.concat_arrays([column, column]).slice(3, 4)
    assert hashing.hash_column(again).tolist() == np.roll(hashes, 1).tolist()
    assert hashing.hash_column(pa.chunked_array([], column.type)).tolist() == []


@pytest.mark.parametrize("name", VALUES)
def test_different_values_hash_differently(name: str) -> None:
    column = VALUES[name]
    distinct = {repr(value) for value in column.to_pylist()}
    assert len(set(hashing.hash_column(column).tolist())) == len(distinct)


def test_equal_values_of_other_types_hash_alike() -> None:
    numbers = [pa.array([1, -2], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())]
    assert len({tuple(hashing.hash_column(column)) for column in numbers}) == 1
    words = ["a", "", None, "a longer one"]
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary())
    texts = [pa.array(words, kind) for kind in kinds]
    texts.append(pa.array(words).dictionary_encode())
    assert len({tuple(hashing.hash_column(column)) for column in texts}) == 1
    floats = [pa.array([0.0, 1.5], kind) for kind in (pa.float32(), pa.float64())]
    assert len({tuple(hashing.hash_column(column)) for column in floats}) == 1


def test_zeros_and_nans_are_one() -> None:
    odd = np.array([0.0, -0.0, np.nan, -np.nan])
    odd.view(np.uint64)[3] ^= 1  # another payload
    hashes = hashing.hash_column(pa.array(odd)).tolist()
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]


def test_a_null_and_its_neighbour_are_told_apart_in_lists() -> None:
    column = pa.array([[1, None], [None, 1], [1], [[]][0], [None]])
    assert len(set(hashing.hash_column(column).tolist())) == 5


def test_the_order_of_keys_matters_and_all_count() -> None:
    table = pa.table({"a": [1, 2, 1], "b": [2, 1, 1]})
    assert len(set(hashing.hash_rows(table, ["a", "b"]).tolist())) == 3
    assert hashing.hash_rows(table, ["a"]).tolist() == hashing.hash_column(table["a"]).tolist()


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_other_processes_hash_alike(hash_seed: str) -> None:
    script = SCRIPT.format(file=__file__)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    made = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    stable = dict(zip(VALUES, eval(made.stdout), strict=True))
    assert stable == {name: hashing.hash_column(column).tolist() for name, column in VALUES.items()}


def test_hashes_do_not_change_with_versions() -> None:
    """A reducer may be newer than a map that ran before an upgrade."""
    assert hashing.hash_column(pa.array([1, None])).tolist() == [10451216379200822465, 7959387129412676716]
    assert (
        hashing.hash_column(pa.array(["runtime"])).tolist()
        == hashing.hash_column(pa.array(["runtime"], pa.large_string())).tolist()
    )


def test_strings_of_all_lengths() -> None:
    rng = np.random.default_rng(5)
    texts = [rng.bytes(length) for length in range(300)]
    hashes = hashing.hash_column(pa.array(texts))
    assert len(set(hashes.tolist())) == 300
    for index in (0, 1, 7, 8, 9, 127, 128, 299):
        assert hashing.hash_column(pa.array([texts[index]]))[0] == hashes[index]
        inside = pa.array([b"###", texts[index], b"#"]).slice(1, 1)
        assert hashing.hash_column(inside)[0] == hashes[index]


def test_hashes_are_spread() -> None:
    for column in (pa.array(np.arange(10_000)), pa.array([str(number) for number in range(10_000)])):
        hashes = hashing.hash_column(column)
        assert len(np.unique(hashes)) == 10_000
        for shift in (0, 32, 60):
            counts = np.bincount((hashes >> np.uint64(shift)).astype(np.int64) & 15, minlength=16)
            assert counts.min() > 500
