"""When the interpreter calls the `__del__` of the user's objects."""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Callable
from typing import Any

_QUIET: tuple[Any, ...] = (object, typing.Generic)


def finish(instance: Any) -> bool:
    """From now on nothing calls `__del__` of an object by itself: somebody has called it already.

    Returns:
        False: an object of this class cannot be changed so.
    """
    return _become(instance, _nothing)


def call_when_unused(instance: Any, do: Callable[[Any], None]) -> bool:
    """Calls `do` with an object in the place of its `__del__`, once nothing refers to it any more. On the thread that
    drops the last reference. The object may live on in what `do` starts.

    Returns:
        False: an object of this class cannot be changed so.
    """

    def unused(last: Any) -> None:
        finish(last)
        do(last)

    return _become(instance, unused)


def _nothing(_instance: Any) -> None:
    pass


def _become(instance: Any, destroy: Callable[[Any], None]) -> bool:
    """The object's class becomes one like it with another `__del__`, as the interpreter looks for it there."""
    kind = type(instance)
    if type(kind) not in (type, abc.ABCMeta) or any(
        "__init_subclass__" in vars(base) for base in kind.__mro__ if base not in _QUIET
    ):
        return False  # the class may note its subclasses
    names = {
        "__slots__": (),
        "__del__": destroy,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    try:
        instance.__class__ = types.new_class(
            kind.__name__, (kind,), exec_body=lambda body: body.update(names)
        )
    except TypeError:  # a class that can have no subclasses, or whose objects cannot change theirs
        return False
    return True
