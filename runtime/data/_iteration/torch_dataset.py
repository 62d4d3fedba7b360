"""Pairs of features and labels for `DataIterator.to_torch`, and the torch data set that gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from runtime.data._iteration.tensors import tensor_of
from runtime.data._libraries import load

Batch = Mapping[str, Any]


def check_features(columns: Any, dtypes: Any) -> None:
    """Raises TypeError or ValueError unless `dtypes` goes with `columns`; see `DataIterator.to_torch`."""
    groups: Iterable[Any]
    kind: type
    if isinstance(columns, Mapping):
        kind, groups = Mapping, columns.values()
    elif columns and not isinstance(columns[0], str):
        kind, groups = Sequence, columns
    elif isinstance(dtypes, (Mapping, list, tuple)):
        raise TypeError(
            f"feature_column_dtypes must be one type for one tensor, not {type(dtypes).__name__}."
        )
    else:
        return
    if not all(groups):
        raise ValueError("feature_columns has a tensor without columns.")
    if not isinstance(dtypes, (Mapping, list, tuple)):  # one type, or none
        return
    if not isinstance(dtypes, kind):
        raise TypeError(f"feature_column_dtypes must have the form of feature_columns, not {dtypes!r}.")
    if len(dtypes) != len(columns) or (isinstance(columns, Mapping) and set(dtypes) != set(columns)):
        raise ValueError(f"feature_column_dtypes {dtypes!r} and feature_columns {columns!r} differ.")


def features(batch: Batch, columns: Any, dtypes: Any, unsqueezes: bool) -> Any:
    """One tensor, or a list or dict of them, as `columns` is; each with its columns side by side."""
    if isinstance(columns, Mapping):
        return {
            name: beside(batch, group, _part(dtypes, name), unsqueezes) for name, group in columns.items()
        }
    if columns and not isinstance(columns[0], str):
        return [
            beside(batch, group, _part(dtypes, number), unsqueezes) for number, group in enumerate(columns)
        ]
    return beside(batch, columns, dtypes, unsqueezes)


def _part(dtypes: Any, key: Any) -> Any:
    return dtypes[key] if isinstance(dtypes, (Mapping, list, tuple)) else dtypes


def beside(batch: Batch, columns: Sequence[str], dtype: Any, unsqueezes: bool) -> Any:
    """Columns of a batch in one tensor, along dimension 1 if they are unsqueezed."""
    import torch

    tensors = [tensor_of(name, batch[name], dtype) for name in columns]
    if unsqueezes:
        tensors = [tensor.unsqueeze(1) for tensor in tensors]
    return torch.cat(tensors, dim=1) if len(tensors) > 1 else tensors[0]


def iterable_dataset(begin: Callable[[], Iterator[Any]]) -> Any:
    """A `torch.utils.data.IterableDataset` whose every pass is `begin()`."""
    data = load("torch.utils.data", "to_torch")

    class Batches(data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[Any]:
            return begin()

    return Batches()
