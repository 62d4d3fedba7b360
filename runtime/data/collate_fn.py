"""What makes something else of a batch: functions for `iter_torch_batches(collate_fn=)`, by the format they want."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Batch = TypeVar("Batch")


class CollateFn(ABC, Generic[Batch]):
    """Makes something of a batch. It is called in a thread, a batch at a time."""

    @abstractmethod
    def __call__(self, batch: Batch) -> Any:
        """Tensors, or a sequence, dict or nested sequence of tensors, which then are put on the device; or anything."""


class ArrowBatchCollateFn(CollateFn[Any]):
    """Of a `pyarrow.Table`."""


class NumpyBatchCollateFn(CollateFn[dict[str, Any]]):
    """Of a dict of arrays."""


class PandasBatchCollateFn(CollateFn[Any]):
    """Of a `pandas.DataFrame`."""


class DefaultCollateFn(ArrowBatchCollateFn):
    """A dict with a tensor for each column.

    Args:
        dtypes: of all tensors, or a dict by column.
        combine_chunks: no effect: a column is one tensor.
        num_workers: no effect.
    """

    def __init__(self, dtypes: Any = None, combine_chunks: bool = False, num_workers: int = 0) -> None:
        self.dtypes = dtypes
        self.combine_chunks = combine_chunks
        self.num_workers = num_workers

    def __call__(self, batch: pa.Table) -> dict[str, Any]:
        from runtime.data._block.batch import to_numpy
        from runtime.data._iteration.tensors import tensors_of

        return tensors_of(to_numpy(batch), self.dtypes)


def batch_format_of(collate_fn: Any) -> str:
    """The format of the batches that a function gets: numpy, unless its class says another."""
    if isinstance(collate_fn, ArrowBatchCollateFn):
        return "pyarrow"
    return "pandas" if isinstance(collate_fn, PandasBatchCollateFn) else "numpy"


def is_tensor_batch_type(batch: Any) -> bool:
    """Whether it is a tensor of torch, or a list, tuple or dict of such, also nested once."""
    import torch

    def is_sequence(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(isinstance(each, torch.Tensor) for each in value)

    if isinstance(batch, torch.Tensor):
        return True
    if isinstance(batch, Mapping):
        return all(isinstance(value, torch.Tensor) or is_sequence(value) for value in batch.values())
    return is_sequence(batch) or (isinstance(batch, (list, tuple)) and all(map(is_sequence, batch)))
