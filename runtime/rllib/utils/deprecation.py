"""Deprecated names and arguments."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...util.annotations import RayDeprecationWarning

DEPRECATED_VALUE = "__deprecated__"


def deprecation_warning(
    old: str, new: str | None = None, *, help: str | None = None, error: bool | type[Exception] | None = None
) -> None:
    """Warns that `old` is deprecated.

    Args:
        old: the deprecated name.
        new: what to use in its place.
        help: text in place of "Use `new`".
        error: True raises a ValueError, an exception class raises that, in place of a warning.
    """
    advice = help or (f"Use `{new}`." if new else "")
    text = f"`{old}` is deprecated. {advice}".strip()
    if error:
        raise (ValueError if error is True else error)(text)
    warnings.warn(text, RayDeprecationWarning, stacklevel=3)


def Deprecated(
    old: str | None = None,
    *,
    new: str | None = None,
    help: str | None = None,
    error: bool | type[Exception] = False,
) -> Callable[[Any], Any]:
    """Decorates a deprecated class or function: making or calling it warns, or raises with `error`."""

    def decorate(obj: Any) -> Any:
        name = old or obj.__name__
        if isinstance(obj, type):
            init = obj.__init__  # type: ignore[misc]

            @functools.wraps(init)
            def warned_init(self: Any, *args: Any, **kwargs: Any) -> None:
                deprecation_warning(name, new, help=help, error=error)
                init(self, *args, **kwargs)

            obj.__init__ = warned_init  # type: ignore[misc]
            return obj

        @functools.wraps(obj)
        def warned(*args: Any, **kwargs: Any) -> Any:
            deprecation_warning(name, new, help=help, error=error)
            return obj(*args, **kwargs)

        return warned

    return decorate
