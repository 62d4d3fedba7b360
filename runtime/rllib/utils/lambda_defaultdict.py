"""Dicts that make missing values from their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any


class LambdaDefaultDict(defaultdict[Any, Any]):
    """A dict whose missing values are `default_factory(key)`.

    Args:
        default_factory: makes the value of a key on first use.

    Raises:
        TypeError: it cannot be called.
    """

    def __init__(self, default_factory: Callable[[Any], Any], *args: Any, **kwargs: Any) -> None:
        if not callable(default_factory):
            raise TypeError(f"default_factory must be a function of the key, not {default_factory!r}")
        super().__init__(None, *args, **kwargs)
        self._make = default_factory

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make, dict(self))

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self._make(key)
        return value
