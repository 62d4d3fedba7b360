"""How instances of a class travel, where pickle alone cannot or should not do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime._wire import serialization


def register_serializer(
    cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """Makes instances of exactly `cls` travel as `deserializer(serializer(value))`, when this process sends them.

    Args:
        cls: the class.
        serializer: turns an instance into something that can be pickled.
        deserializer: turns that into an instance again; it can be pickled itself.
    """
    serialization.register_serializer(cls, serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Undoes `register_serializer`; unknown classes are fine."""
    serialization.deregister_serializer(cls)
