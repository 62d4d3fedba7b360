"""Tensors of collective operations that cannot be written to, or do not fit."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN

if not OWN:
    pytest.skip("the module's own functions", allow_module_level=True)

from runtime.util.collective.tensors import Operand, fill
from runtime.util.collective.types import ReduceOp


def sent(array: Any) -> Any:
    """The array as it comes out of an argument."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(array, 5, buffer_callback=buffers.append)
    copy = pickle.loads(data, buffers=[bytes(buffer) for buffer in buffers])
    assert not copy.flags.writeable
    return copy


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3.0),
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.ones((300, 5))),
        np.array(5, dtype=np.int16),
        np.zeros((0, 3)),
    ],
    ids=lambda array: str(array.shape),
)
def test_an_argument_gets_the_elements(array: Any) -> None:
    target = sent(array)
    memory = target.base
    before = memory.tobytes()
    fill(target, array + 1)
    assert np.array_equal(target, array + 1)
    assert target.flags.writeable
    assert memory.tobytes() == before
    target += 1


def test_older_views_keep_the_elements_and_their_memory() -> None:
    target = sent(np.arange(2000.0))
    row, buffer = target[:3], memoryview(target)
    fill(target, np.zeros(2000))
    fill(target, np.ones(2000))
    assert row.tolist() == [0, 1, 2]
    assert buffer[5] == 5
    assert target.sum() == 2000


def test_writable_arrays_and_their_views_are_filled_where_they_are() -> None:
    whole = np.zeros((2, 2))
    fill(whole[1], np.ones(2))
    assert whole.tolist() == [[0, 0], [1, 1]]


def frozen() -> Any:
    array = np.ones(4)
    array.flags.writeable = False
    return array


class Special(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    "array",
    [frozen(), frozen().reshape(2, 2), sent(np.ones((2, 2)))[0], sent(np.ones(4)).view(Special)],
    ids=["frozen", "view of a frozen one", "row of an argument", "another class"],
)
def test_what_else_is_read_only_is_refused(array: Any) -> None:
    with pytest.raises(ValueError, match=r"read-only.* Pass a copy: tensor = tensor\.copy\(\)"):
        fill(array, np.zeros(array.shape))
    assert array.all()


def test_what_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="not list"):
        Operand([1], is_written=False)
    with pytest.raises(TypeError, match="dtype object"):
        Operand(np.array([None]), is_written=False)


def test_contiguous_memory_is_used_where_it_is() -> None:
    array = np.zeros((2, 3))
    operand = Operand(array, is_written=True)
    operand.flat[4] = 5
    assert array[1, 1] == 5
    assert not Operand(sent(array), is_written=False).flat.flags.owndata


@pytest.mark.parametrize(
    "make", [lambda a: a.T, lambda a: a[::2, ::2], sent], ids=["turned", "strided", "sent"]
)
def test_other_memory_is_written_at_the_end(make: Any) -> None:
    target = make(np.arange(12.0).reshape(4, 3))
    expected = target + 1
    operand = Operand(target, is_written=True)
    operand.flat += 1
    assert not np.array_equal(target, expected)
    operand.commit()
    assert np.array_equal(target, expected)


def test_read_only_is_known_before_anything_moves() -> None:
    with pytest.raises(ValueError, match="Pass a copy"):
        Operand(frozen(), is_written=True)
    Operand(frozen(), is_written=False)


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
)
@pytest.mark.parametrize("op", list(ReduceOp))
def test_combining(dtype: str, op: ReduceOp) -> None:
    a, b = np.array([1, 0, 3], dtype), np.array([1, 2, 0], dtype)
    expected = {
        ReduceOp.SUM: a + b,
        ReduceOp.AVERAGE: a + b,
        ReduceOp.PRODUCT: a * b,
        ReduceOp.MIN: np.minimum(a, b),
        ReduceOp.MAX: np.maximum(a, b),
    }[op]
    operand = Operand(a, is_written=True)
    operand.combine(op, operand.flat, sent(b), operand.flat)
    assert np.array_equal(a, expected)
    operand.divide(operand.flat, 2)
    assert np.array_equal(a, (expected / 2).astype(dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int64", "uint8"])
def test_torch_tensors_share_their_memory(dtype: str) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    tensor = torch.tensor([1, 2, 3], dtype=getattr(torch, dtype), requires_grad=dtype == "float32")
    operand = Operand(tensor, is_written=True)
    operand.combine(ReduceOp.SUM, operand.flat, sent(operand.flat), operand.flat)
    assert tensor.tolist() == [2, 4, 6]
    operand.combine(
        ReduceOp.MAX, operand.flat, Operand(torch.full((3,), 5).to(tensor.dtype), False).flat, operand.flat
    )
    assert tensor.tolist() == [5, 5, 6]
    operand.divide(operand.flat, 2)
    assert tensor.tolist()[2] == 3
    assert operand.dtype.endswith(dtype)


def test_torch_tensors_of_other_layouts() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T
    operand = Operand(tensor, is_written=True)
    assert operand.shape == (3, 2)
    operand.combine(ReduceOp.SUM, operand.flat, operand.flat, operand.flat)
    operand.commit()
    assert tensor.tolist() == [[0, 6], [2, 8], [4, 10]]
    with pytest.raises(TypeError, match="main memory"):
        Operand(torch.empty(1, device="meta"), is_written=False)
