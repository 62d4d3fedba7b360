"""Tensors of collective operations that cannot be written to, or do not fit."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN

if not OWN:
    pytest.skip("the module's own functions", allow_module_level=True)

from runtime.util.collective.tensors import check_equal, fill, view_of


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


def test_nothing_is_broadcast_or_cast() -> None:
    check_equal("allgather", 1, np.ones(2), np.zeros(2))
    for other in (np.ones(1), np.ones((1, 2)), np.ones(2, dtype=np.float32)):
        with pytest.raises(
            RuntimeError, match=r"All tensors of allgather must have the same shape and dtype"
        ):
            check_equal("allgather", 1, other, np.zeros(2))


def test_what_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="not list"):
        view_of([1])
