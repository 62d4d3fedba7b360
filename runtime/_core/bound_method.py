"""Finds the method of an actor that a call names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def bound_method(actor: Any, name: str) -> Callable[..., Any]:
    """The class's method `name`, bound to `actor`.

    `getattr` would prefer an instance attribute of the same name: `self.items = []` would hide `def items(self)`.

    Raises:
        AttributeError: the class has no such method.
    """
    cls = type(actor)
    for base in cls.__mro__:
        if name in base.__dict__:
            member = base.__dict__[name]
            bind = getattr(type(member), "__get__", None)
            method: Callable[..., Any] = member if bind is None else bind(member, actor, cls)
            return method
    raise AttributeError(f"the actor's class {cls.__qualname__} has no method {name!r}")
