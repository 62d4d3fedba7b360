"""Serializers for classes that pickle cannot or should not handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime._wire import serialization


def register_serializer(
    cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """Serializes instances of exactly `cls` with `serializer` in this process; receivers call `deserializer`.

    Args:
        cls: the class.
        serializer: turns an instance into a value that can be pickled.
        deserializer: turns that value into an instance again; must itself be picklable.
    """
    serialization.register_serializer(cls, serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Undoes `register_serializer`; does nothing for unknown classes."""
    serialization.deregister_serializer(cls)
