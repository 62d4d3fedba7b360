"""Unpickling of values, with every failure translated into one error: the value is what is broken."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runtime import exceptions
from runtime._wire import serialization


def unpickle(
    data: bytes | memoryview, buffers: Sequence[Any] = (), writable: Callable[[Any], Any] | None = None
) -> tuple[Any, list[Any]]:
    """Rebuilds a value. Returns it with the references made on the way. See `serialization.deserialize`.

    Raises:
        RaySystemError: the classes inside raised, or a module is missing here.
    """
    try:
        return serialization.deserialize(data, buffers, writable)
    except exceptions.RayError:
        raise
    except Exception as error:
        raise cannot_unpickle(error) from error


def unpickle_all(pickles: Iterable[bytes]) -> tuple[list[Any], list[Any]]:
    """The same for many values without buffers."""
    try:
        return serialization.deserialize_all(pickles)
    except exceptions.RayError:
        raise
    except Exception as error:
        raise cannot_unpickle(error) from error


def cannot_unpickle(error: Exception) -> exceptions.RaySystemError:
    """What to raise for an error of unpickling, where it is caught."""
    return exceptions.RaySystemError(error, traceback.format_exc())
