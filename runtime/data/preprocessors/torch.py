"""Transforms of torchvision on columns of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runtime.data.preprocessor import Preprocessor, output_columns_of


class TorchVisionPreprocessor(Preprocessor):
    """Applies a transform, e.g. of torchvision, to tensors. Needs no fitting.

    Args:
        columns: tensors.
        transform: of an array of numpy or, if they are told apart by it, a tensor of torch; returns either.
        output_columns: where the results go; the same columns by default.
        batched: whether the transform takes whole batches rather than single rows.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        transform: Callable[[Any], Any],
        output_columns: Sequence[str] | None = None,
        batched: bool = False,
    ) -> None:
        self.columns = list(columns)
        self.output_columns = output_columns_of(columns, output_columns)
        self.torchvision_transform = transform
        self.batched = batched

    def _transform_numpy(self, data: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            if name not in data:
                raise KeyError(f"there is no column {name!r}; columns are {', '.join(data)}")
            if self.batched:
                made[output] = np.asarray(self.torchvision_transform(data[name]))
            else:
                made[output] = _stacked([np.asarray(self.torchvision_transform(row)) for row in data[name]])
        return {**data, **made}


def _stacked(rows: list[Any]) -> Any:
    """Rows as one array; as a list where their shapes differ."""
    return np.stack(rows) if rows and len({row.shape for row in rows}) == 1 else rows
