"""Tensor columns: there and back, with nulls, slices, several chunks and other shapes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import arrays, tensor

DTYPES = ["float32", "float64", "int8", "uint16", "int64", "bool", "float16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (4, 2, 3), (4, 1), (0, 3), (4, 0), (4, 2, 0)])
def test_fixed_tensors_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    column = tensor.from_numpy(array)
    assert len(column) == shape[0]
    back = tensor.to_numpy(column)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_a_fixed_tensor_is_not_copied() -> None:
    array = np.arange(12.0).reshape(4, 3)
    assert np.shares_memory(tensor.to_numpy(tensor.from_numpy(array)), array)


def test_slices_keep_their_offset() -> None:
    array = np.arange(24).reshape(6, 2, 2)
    column = tensor.from_numpy(array).slice(2, 3)
    np.testing.assert_array_equal(tensor.to_numpy(column), array[2:5])
    chunked = pa.chunked_array([column, tensor.from_numpy(array).slice(5)])
    np.testing.assert_array_equal(tensor.to_numpy(chunked), array[[2, 3, 4, 5]])


def test_chunks_whose_memory_adjoins_are_not_copied() -> None:
    array = np.arange(24).reshape(6, 2, 2)
    column = tensor.from_numpy(array)
    view = tensor.to_numpy(pa.chunked_array([column.slice(1, 2), column.slice(3, 1), column.slice(4)]))
    assert np.shares_memory(view, array)
    assert not view.flags.writeable
    np.testing.assert_array_equal(view, array[1:])
    for others in ([column.slice(3), column.slice(0, 3)], [column.slice(0, 2), column.slice(3)]):
        copied = tensor.to_numpy(pa.chunked_array(others))
        assert not np.shares_memory(copied, array)
        np.testing.assert_array_equal(copied, np.concatenate([tensor.to_numpy(each) for each in others]))


@pytest.mark.parametrize("shape", [(0, 3), (6, 0)])
def test_parts_without_bytes(shape: tuple[int, int]) -> None:
    none = np.zeros(shape)
    assert arrays.joined([none, none]).shape == (2 * shape[0], shape[1])


def test_a_view_of_adjoining_chunks_keeps_their_memory() -> None:
    column = tensor.from_numpy(np.arange(100_000).reshape(1000, 100))
    view = tensor.to_numpy(pa.chunked_array([column.slice(0, 500), column.slice(500)]))
    held = weakref.ref(column)
    del column
    gc.collect()
    assert held() is None
    np.testing.assert_array_equal(view.reshape(-1), np.arange(100_000))


def test_a_chunked_column_without_chunks() -> None:
    kind = tensor.from_numpy(np.zeros((1, 2, 3), np.float32)).type
    empty = tensor.to_numpy(pa.chunked_array([], kind))
    assert empty.shape == (0, 2, 3)
    assert empty.dtype == np.float32


def test_strided_and_swapped_arrays() -> None:
    array = np.arange(24, dtype=">i4").reshape(4, 6)[:, ::2]
    np.testing.assert_array_equal(tensor.to_numpy(tensor.from_numpy(array)), array)


def test_ragged_tensors_come_back() -> None:
    arrays = [np.ones((2, 3)), np.zeros((1, 4)), None, np.arange(5.0).reshape(5, 1), np.empty((0, 7))]
    column = tensor.from_arrays(arrays)
    assert tensor.is_ragged(column.type)
    for array, back in zip(arrays, tensor.to_numpy(column), strict=True):
        if array is None:
            assert back is None
        else:
            np.testing.assert_array_equal(back, array)
    back = tensor.to_numpy(column.slice(1, 3))
    np.testing.assert_array_equal(back[0], arrays[1])
    assert back[1] is None
    np.testing.assert_array_equal(back[2], arrays[3])
    assert [None if scalar.as_py() is None else scalar.as_py().shape for scalar in column] == [
        (2, 3),
        (1, 4),
        None,
        (5, 1),
        (0, 7),
    ]


def test_arrays_of_one_shape_are_fixed() -> None:
    column = tensor.from_arrays([np.ones(3, np.float32), np.zeros(3, np.float32)])
    assert tensor.is_fixed(column.type)


def test_numbers_of_dimensions_may_not_differ() -> None:
    with pytest.raises(TypeError, match=r"\[1, 2\]"):
        tensor.from_arrays([np.ones(3), np.ones((1, 3))])


def test_ragged_from_fixed_with_nulls() -> None:
    fixed = tensor.from_numpy(np.arange(6).reshape(3, 2)).take(pa.array([2, None, 0]))
    assert [None if row is None else row.tolist() for row in tensor.to_numpy(fixed)] == [[4, 5], None, [0, 1]]
    ragged = tensor.convert(pa.chunked_array([fixed]), tensor.RaggedTensorType(pa.float64(), 1))
    assert tensor.is_ragged(ragged.type)
    assert [None if row is None else row.tolist() for row in tensor.to_numpy(ragged)] == [
        [4, 5],
        None,
        [0, 1],
    ]


def test_tensors_survive_the_file_format() -> None:
    columns = {
        "fixed": tensor.from_numpy(np.arange(6).reshape(3, 2)),
        "ragged": tensor.from_arrays([np.ones(1), np.ones(2), None]),
    }
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    back = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert back.schema == table.schema
    assert back.equals(table)


def test_tensors_of_ray_are_adopted() -> None:
    storage = pa.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], pa.list_(pa.float64()))
    metadata = {"ARROW:extension:name": "ray.data.arrow_tensor", "ARROW:extension:metadata": "[2, 2]"}
    table = pa.table([storage], schema=pa.schema([pa.field("x", storage.type, metadata=metadata)]))
    adopted = tensor.adopt_foreign(table)
    assert tensor.to_numpy(adopted["x"]).tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
