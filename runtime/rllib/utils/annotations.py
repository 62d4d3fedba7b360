"""Decorators that mark the stability of an API and methods made to be overridden. They change no behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...util.annotations import Deprecated, DeveloperAPI, PublicAPI

__all__ = [
    "Deprecated",
    "DeveloperAPI",
    "ExperimentalAPI",
    "OldAPIStack",
    "OverrideToImplementCustomLogic",
    "OverrideToImplementCustomLogic_CallToSuperRecommended",
    "PublicAPI",
    "is_overridden",
    "override",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def override(parent_cls: type) -> Callable[[_Function], _Function]:
    """Marks a method that overrides one of `parent_cls`.

    Raises:
        NameError: `parent_cls` has no attribute of the method's name.
    """

    def check(method: _Function) -> _Function:
        name = getattr(method, "__name__", "")
        if name and name not in dir(parent_cls):
            raise NameError(f"{name} overrides nothing: {parent_cls.__name__} has no such attribute")
        return method

    return check


def ExperimentalAPI(obj: _Function) -> _Function:
    """Marks an API that may change at any time."""
    return obj


def OldAPIStack(obj: _Function) -> _Function:
    """Marks a part of RLlib's old API stack."""
    return obj


def OverrideToImplementCustomLogic(obj: _Function) -> _Function:
    """Marks a method that users override; `is_overridden` tells whether they did."""
    obj.__is_overridden__ = False  # type: ignore[attr-defined]
    return obj


def OverrideToImplementCustomLogic_CallToSuperRecommended(obj: _Function) -> _Function:
    """Marks a method that users override and whose base they should call."""
    obj.__is_overridden__ = False  # type: ignore[attr-defined]
    return obj


def is_overridden(obj: Any) -> bool:
    """Whether a method is another than the one that was marked."""
    return getattr(obj, "__is_overridden__", True)
