"""The tensors of collective operations: as arrays, compared with each other, and filled in place."""

from __future__ import annotations

import weakref
from typing import Any


def view_of(tensor: Any) -> Any:
    """The tensor as a numpy array over the same memory.

    Raises:
        TypeError: the argument is neither an array nor a tensor in main memory.
    """
    import numpy

    if isinstance(tensor, numpy.ndarray):
        return tensor
    if hasattr(tensor, "detach") and getattr(getattr(tensor, "device", None), "type", "") == "cpu":
        return tensor.detach().numpy()
    raise TypeError(
        f"Collective operations take numpy arrays and torch tensors in main memory, not {type(tensor).__name__}."
    )


def check_equal(operation: str, rank: int, sent: Any, target: Any) -> None:
    """Checks that a received tensor fits its target: tensors are neither broadcast nor cast.

    Raises:
        RuntimeError: shape or dtype differ. The message names operation and member.
    """
    if sent.shape != target.shape or sent.dtype != target.dtype:
        raise RuntimeError(
            f"All tensors of {operation} must have the same shape and dtype: rank {rank} sent {sent.shape} of "
            f"{sent.dtype}, and the tensor here has {target.shape} of {target.dtype}."
        )


def fill(target: Any, value: Any) -> None:
    """Copies an array into another one of the same shape and dtype.

    An array that is an argument of a task is read-only, because it lies in memory that other processes read. It gets
    its own memory first, so the result is in the caller's array and no other process sees a change. Existing views of
    it keep the old elements.

    Raises:
        ValueError: the array is read-only and is not an argument of a task.
    """
    if target.flags.writeable:
        target[...] = value
        return
    if not _is_unpickled(target):
        raise ValueError(
            "The result cannot be written to this array: it is read-only, and part of another one or frozen by the "
            "program. Pass a copy: tensor = tensor.copy()."
        )
    weakref.finalize(target, _keep, target.base)  # older views may point to its memory
    target.__setstate__((1, target.shape, target.dtype, False, value.tobytes()))  # numpy's own way to refill


def _is_unpickled(array: Any) -> bool:
    """Whether this is all of an array that was rebuilt over read-only memory, as arguments and results are."""
    import numpy

    base = array.base
    return (
        type(array) is numpy.ndarray
        and type(base) is numpy.ndarray
        and base.nbytes == array.nbytes
        and not base.flags.owndata
        and not array.dtype.hasobject
    )


def _keep(_memory: Any) -> None:
    """What `finalize` holds goes with its array."""
