"""The tensors of collective operations: as flat arrays, combined with each other, and filled in place."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from .types import ReduceOp


class Operand:
    """A tensor of one call.

    Args:
        tensor: a numpy array, or a torch tensor in main memory.
        is_written: whether the call writes to it; `commit` ends that.

    Attributes:
        shape, dtype: of the tensor; `dtype` is a name.
        is_torch: whether it is torch's.
        flat: its elements in C order: the tensor's own memory if that can be used, a copy otherwise. Types that numpy
            does not have appear as integers of their size.

    Raises:
        TypeError: the argument is neither an array nor a tensor in main memory, or its elements are objects.
        ValueError: it is written to, and cannot be.
    """

    __slots__ = ("_array", "_is_copy", "_torch_dtype", "dtype", "flat", "is_torch", "shape")

    def __init__(self, tensor: Any, is_written: bool) -> None:
        import numpy

        self._torch_dtype: Any = None
        array = tensor
        self.is_torch = not isinstance(tensor, numpy.ndarray)
        if self.is_torch:
            array, self._torch_dtype = _of_torch(tensor)
        if array.dtype.hasobject:
            raise TypeError(f"Collective operations move numbers, not elements of dtype {array.dtype}.")
        self._array = array
        self.shape = tuple(array.shape)
        self.dtype = _name(self._torch_dtype or array.dtype)
        if is_written and not array.flags.writeable:
            check_refillable(array)
        self._is_copy = not array.flags.c_contiguous or (is_written and not array.flags.writeable)
        self.flat = array.flatten() if self._is_copy else array.reshape(-1)

    def commit(self) -> None:
        """The elements of `flat` go into the tensor, if they are not there."""
        if self._is_copy:
            fill(self._array, self.flat.reshape(self.shape))

    def combine(self, op: ReduceOp, a: Any, b: Any, out: Any) -> None:
        """Writes the combination of two arrays like `flat` into a third, which may be one of them."""
        if self._torch_dtype is not None:
            import torch

            torch_of: dict[ReduceOp, Any] = {
                ReduceOp.SUM: torch.add,
                ReduceOp.AVERAGE: torch.add,
                ReduceOp.PRODUCT: torch.mul,
                ReduceOp.MAX: torch.maximum,
                ReduceOp.MIN: torch.minimum,
            }
            torch_of[op](self.as_torch(a), self.as_torch(b), out=self.as_torch(out))
            return
        import numpy

        _ufunc(numpy, op)(a, b, out=out)

    def divide(self, array: Any, count: int) -> None:
        """Divides the elements of an array like `flat`, in place; integers are cut off."""
        if self._torch_dtype is not None:
            self.as_torch(array).div_(count)
        else:
            array[...] = (array / count).astype(array.dtype)

    def as_torch(self, array: Any) -> Any:
        """An array like `flat` as a tensor of the dtype, over the same memory if that can be written."""
        import torch

        if not array.flags.writeable:
            array = array.copy()  # torch has no read-only tensors, and warns
        tensor = torch.from_numpy(array)
        return tensor if self._torch_dtype is None else tensor.view(self._torch_dtype)


@functools.cache
def _name(dtype: Any) -> str:
    return str(dtype)


def _ufunc(numpy: Any, op: ReduceOp) -> Any:
    if op is ReduceOp.SUM or op is ReduceOp.AVERAGE:
        return numpy.add
    if op is ReduceOp.PRODUCT:
        return numpy.multiply
    return numpy.maximum if op is ReduceOp.MAX else numpy.minimum


def _of_torch(tensor: Any) -> tuple[Any, Any]:
    """A torch tensor's memory as an array, and its dtype if numpy does not have that.

    Raises:
        TypeError: it is none, or not in main memory.
    """
    if not hasattr(tensor, "detach") or getattr(getattr(tensor, "device", None), "type", "") != "cpu":
        raise TypeError(
            f"Collective operations take numpy arrays and torch tensors in main memory, not {type(tensor).__name__}."
        )
    import torch

    plain = tensor.detach()
    try:
        return plain.numpy(), None
    except TypeError:
        same_size = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()]
        return plain.view(same_size).numpy(), tensor.dtype


def check_refillable(array: Any) -> None:
    """Checks that `fill` can write to a read-only array.

    Raises:
        ValueError: it cannot.
    """
    if not _is_unpickled(array):
        raise ValueError(
            "The result cannot be written to this array: it is read-only, and part of another one or frozen by the "
            "program. Pass a copy: tensor = tensor.copy()."
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
    check_refillable(target)
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
