"""Tensors of torch for batches of arrays, and their way to a device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from runtime.data._libraries import load

KEPT_BYTES = 128 << 10
"""Arrays from so many bytes on: below, malloc keeps their memory itself."""
KEPT_ARRAYS = 32
"""More arrays than a thread prepares ahead and a consumer holds, as a rule."""


class Copies:
    """Copies arrays into the memory of earlier copies that nobody refers to any more.

    Batches are freed in another thread than the one that makes them, and malloc then returns their pages to the system:
    to get them again takes as long as the copy. Not thread-safe.
    """

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def of(self, values: Any) -> Any:
        """A copy of an array."""
        import numpy as np

        if values.nbytes < KEPT_BYTES:
            return values.copy()
        for kept in self._kept:
            # The list, `kept`, and the argument: a tensor, view or array over the memory would be one more.
            if sys.getrefcount(kept) == 3 and kept.shape == values.shape and kept.dtype == values.dtype:
                np.copyto(kept, values)
                return kept
        made = values.copy()
        self._kept = [*self._kept[-KEPT_ARRAYS + 1 :], made]
        return made


def device_of(device: Any) -> Any:
    """The device that a user means by "auto", a name or a `torch.device`: always one device, in any thread."""
    torch = load("torch", "iter_torch_batches")
    chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    if chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", torch.cuda.current_device())  # which each thread has its own of
    return chosen


def tensors_of(batch: Mapping[str, Any], dtypes: Any = None, copies: Copies | None = None) -> dict[str, Any]:
    """A tensor for each column, over memory of its own: arrays may be views of the object store.

    Args:
        dtypes: of all tensors, or a dict by column.
        copies: where copies come from.

    Raises:
        TypeError: torch has no type for a column.
    """
    by_column = isinstance(dtypes, Mapping)
    return {
        name: tensor_of(name, values, dtypes.get(name) if by_column else dtypes, copies)
        for name, values in batch.items()
    }


def tensor_of(name: str, values: Any, dtype: Any = None, copies: Copies | None = None) -> Any:
    """The tensor of one column; see `tensors_of`."""
    import numpy as np
    import torch

    if values.dtype == object:
        try:
            values = np.stack(list(values))
        except (TypeError, ValueError):
            pass
    if values.dtype.kind not in "biufc":
        raise TypeError(f"Column {name!r} has no type that torch knows: drop it, or give a collate_fn.")
    if dtype is not None and not dtype.is_complex and dtype != torch.bfloat16:
        made = torch.empty(values.shape, dtype=dtype)
        np.copyto(made.numpy(), values, casting="unsafe")  # one pass over memory, also if it is the same type
        return made
    if not values.flags.writeable:
        values = values.copy() if copies is None else copies.of(values)
    tensor = torch.from_numpy(values)
    return tensor if dtype is None else tensor.to(dtype)


def moved(batch: Any, device: Any, pin_memory: bool = False) -> Any:
    """Tensors, also in sequences and dicts, on a device; everything else as it is.

    Args:
        pin_memory: whether they go through pages that are locked, which makes the way to a GPU asynchronous.
    """
    import torch

    if isinstance(batch, torch.Tensor):
        if pin_memory and batch.device.type == "cpu" and not batch.is_pinned():
            batch = batch.pin_memory()
        return batch if batch.device == device else batch.to(device, non_blocking=pin_memory)
    if isinstance(batch, Mapping):
        return {key: moved(value, device, pin_memory) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device, pin_memory) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(value, device, pin_memory) for value in batch)
    return batch
