"""Invocation decorators: a function or method may wrap its own `.remote()` call.

`f.__ray_invocation_decorator__ = decorate` makes `f.remote(*args, **kwargs)` call `decorate(call)(args, kwargs)`, where
`call(args, kwargs)` submits the call and returns its references. The wrapper runs in the caller's process; what it
returns is what `.remote()` returns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

ATTRIBUTE = "__ray_invocation_decorator__"
Call = Callable[[Any, Any], Any]
"""Submits a call with these positional and keyword arguments."""
Decorator = Callable[[Call], Call]


def decorator_of(function: Any) -> Decorator | None:
    """The invocation decorator of a plain function or method, or None."""
    found: Decorator | None = getattr(function, ATTRIBUTE, None)
    return found


def pickled(function: Any) -> bytes:
    """The invocation decorator as handles of actors carry it; b"" for none."""
    decorator = decorator_of(function)
    return b"" if decorator is None else cloudpickle.dumps(decorator)


@functools.lru_cache(maxsize=256)
def unpickled(data: bytes) -> Decorator:
    """The opposite of `pickled`, for data that is not empty."""
    found: Decorator = cloudpickle.loads(data)
    return found


def invoke(decorator: Decorator, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Makes a call through its decorator."""
    return decorator(call)(args, kwargs)
