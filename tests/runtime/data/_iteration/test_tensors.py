"""Tensors of batches: their types, memory and way to a device; pairs for training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._iteration.tensors import Copies, device_of, moved, tensors_of
from runtime.data._iteration.torch_dataset import check_features, features
from runtime.data.collate_fn import (
    ArrowBatchCollateFn,
    DefaultCollateFn,
    NumpyBatchCollateFn,
    PandasBatchCollateFn,
    batch_format_of,
    is_tensor_batch_type,
)

torch = pytest.importorskip("torch")


def read_only(values: Any) -> Any:
    values.flags.writeable = False
    return values


def test_tensors_have_memory_of_their_own() -> None:
    view, own = read_only(np.arange(3)), np.arange(3)
    made = tensors_of({"view": view, "own": own})
    made["view"][0] = 7
    assert view.tolist() == [0, 1, 2]
    assert made["own"].data_ptr() == own.ctypes.data


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
def test_types(dtype: str) -> None:
    wanted = getattr(torch, dtype)
    made = tensors_of({"a": read_only(np.arange(3)), "b": np.ones(2, np.float32)}, {"a": wanted})
    assert made["a"].dtype == wanted
    assert made["a"].to(torch.int64).tolist() == ([0, 1, 1] if dtype == "bool" else [0, 1, 2])
    assert made["b"].dtype == torch.float32


def test_rows_of_one_shape_are_stacked_and_texts_have_no_type() -> None:
    rows = np.empty(2, object)
    rows[:] = [np.ones(3), np.zeros(3)]
    assert tensors_of({"x": rows})["x"].shape == (2, 3)
    with pytest.raises(TypeError, match="'x'"):
        tensors_of({"x": np.array(["a", "b"])})
    ragged = np.empty(2, object)
    ragged[:] = [np.ones(3), np.zeros(2)]
    with pytest.raises(TypeError, match="'x'"):
        tensors_of({"x": ragged})


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    copies, values = Copies(), np.arange(1 << 16)
    first = torch.from_numpy(copies.of(values))
    part = first[10:20]
    address = first.data_ptr()
    del first
    assert torch.from_numpy(copies.of(values + 1)).data_ptr() != address  # a view is left
    assert part.tolist() == list(range(10, 20))
    del part
    again = torch.from_numpy(copies.of(values + 2))
    assert again[0] == 2
    assert len(copies._kept) == 2
    small = np.arange(3)
    assert copies.of(small) is not small
    assert len(copies._kept) == 2


def test_batches_go_to_a_device() -> None:
    device = device_of("auto")
    assert device == device_of(device)
    batch = {"a": torch.ones(2), "b": [torch.zeros(1), "text"], "c": (1, torch.ones(1))}
    there = moved(batch, torch.device("meta"))
    assert there["a"].device.type == there["b"][0].device.type == there["c"][1].device.type == "meta"
    assert there["b"][1] == "text"
    assert moved(batch["a"], torch.device("cpu")) is batch["a"]


def test_functions_say_which_batches_they_want() -> None:
    class OfTable(ArrowBatchCollateFn):
        def __call__(self, batch: pa.Table) -> Any:
            return batch

    class OfFrame(PandasBatchCollateFn):
        def __call__(self, batch: Any) -> Any:
            return batch

    class OfArrays(NumpyBatchCollateFn):
        def __call__(self, batch: dict[str, Any]) -> Any:
            return batch

    formats = [batch_format_of(each) for each in (OfTable(), OfFrame(), OfArrays(), len, None)]
    assert formats == ["pyarrow", "pandas", "numpy", "numpy", "numpy"]
    made = DefaultCollateFn(dtypes=torch.float32)(pa.table({"x": [1, 2]}))
    assert made["x"].tolist() == [1.0, 2.0]
    with pytest.raises(TypeError):
        NumpyBatchCollateFn()  # type: ignore[abstract]


def test_what_is_a_batch_of_tensors() -> None:
    one = torch.ones(1)
    for batch in (one, [one, one], {"x": one}, {"x": [one]}, [[one], [one, one]], (one,)):
        assert is_tensor_batch_type(batch)
    for other in (1, [one, 1], {"x": 1}, "x", [{"x": one}]):
        assert not is_tensor_batch_type(other)


def test_features_have_the_form_of_their_columns() -> None:
    batch = {"a": np.arange(3), "b": np.arange(3) + 10.0}
    assert features(batch, ["a", "b"], torch.float32, True).tolist() == [[0, 10], [1, 11], [2, 12]]
    assert features(batch, ["a"], None, False).shape == (3,)
    made = features(batch, {"x": ["a"], "y": ["a", "b"]}, {"x": torch.int32, "y": torch.float64}, True)
    assert (made["x"].dtype, made["x"].shape, made["y"].shape) == (torch.int32, (3, 1), (3, 2))
    assert [each.shape for each in features(batch, [["a"], ["b"]], None, True)] == [(3, 1), (3, 1)]


@pytest.mark.parametrize(
    ("columns", "dtypes", "error"),
    [
        ({"x": ["a"]}, [torch.int32], TypeError),
        ({"x": ["a"]}, {"y": torch.int32}, ValueError),
        ({"x": []}, None, ValueError),
        ([["a"]], {"x": torch.int32}, TypeError),
        ([["a"], ["b"]], [torch.int32], ValueError),
        (["a"], [torch.int32], TypeError),
    ],
)
def test_types_that_do_not_go_with_their_columns(columns: Any, dtypes: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_features(columns, dtypes)
