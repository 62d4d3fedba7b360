"""Decorators that mark the stability of an API. They only set attributes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


class RayDeprecationWarning(DeprecationWarning):
    """A deprecated API was called."""


def PublicAPI(*args: Any, **kwargs: Any) -> Any:
    """Marks a stable API: `@PublicAPI` or `@PublicAPI(stability="beta")`."""
    stability = kwargs.get("stability", "stable")
    if stability not in ("stable", "beta", "alpha"):
        raise ValueError(f"stability={stability!r} must be stable, beta or alpha.")
    return _mark("PublicAPI", args)


def DeveloperAPI(*args: Any, **_kwargs: Any) -> Any:
    """Marks an API for developers of libraries."""
    return _mark("DeveloperAPI", args)


def Deprecated(*args: Any, message: str = "", warning: bool = False) -> Any:
    """Marks a deprecated API; with `warning`, calling it warns."""

    def wrap(target: Any) -> Any:
        _annotate("Deprecated", target)
        if not warning or isinstance(target, type):
            return target

        @functools.wraps(target)
        def warned(*call_args: Any, **call_kwargs: Any) -> Any:
            text = message or f"{target.__qualname__} is deprecated."
            warnings.warn(text, RayDeprecationWarning, stacklevel=2)
            return target(*call_args, **call_kwargs)

        return warned

    return wrap(args[0]) if len(args) == 1 and callable(args[0]) else wrap


def _mark(kind: str, args: tuple[Any, ...]) -> Any:
    if len(args) == 1 and callable(args[0]):
        return _annotate(kind, args[0])
    decorate: Callable[[Any], Any] = lambda target: _annotate(kind, target)  # noqa: E731
    return decorate


def _annotate(kind: str, target: Any) -> Any:
    target._annotated = target.__name__
    target._annotated_type = kind
    return target
