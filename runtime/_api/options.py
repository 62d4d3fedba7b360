"""What the options of tasks and actors mean. Which exist and what they accept is in `_option_rules`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from runtime._api.option_rules import ACTOR, TASK, check_name, validate, validate_stream
from runtime._owner.streaming import DYNAMIC, STREAMING
from runtime._wire.messages.worker import StreamOptions

__all__ = [
    "ACTOR",
    "TASK",
    "changed_stream_options",
    "check_name",
    "num_returns",
    "require_generator",
    "stream_options",
    "validate",
    "validate_stream",
]


def num_returns(options: Mapping[str, Any], is_generator: bool) -> int:
    """The number of references a call returns; negative for a stream, see `Push`."""
    value = options.get("num_returns")
    if value is None:
        return STREAMING if is_generator else 1
    if value == "dynamic":
        return DYNAMIC
    return STREAMING if value == "streaming" else int(value)


def require_generator(options: Mapping[str, Any], is_generator: bool, name: str) -> None:
    """Streams come from generators only. Warns of those that are collected.

    Raises:
        ValueError: `num_returns` asks for a stream, and `name` is no generator function.
    """
    value = options.get("num_returns")
    if value in ("streaming", "dynamic") and not is_generator:
        raise ValueError(
            f"num_returns={value!r} can only be used with generator functions (functions that use 'yield'), "
            f"and {name} is not a generator function."
        )
    if value == "dynamic":
        warnings.warn(
            "num_returns='dynamic' is deprecated. Use num_returns='streaming' instead.",
            DeprecationWarning,
            stacklevel=_level_of_program(),
        )


def _level_of_program() -> int:
    """The `stacklevel` of the program's line, for a warning of the calling function."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("runtime."):
        level, frame = level + 1, frame.f_back
    return level


def stream_options(options: Mapping[str, Any]) -> StreamOptions | None:
    """How the values of a generator travel; None for the defaults."""
    limit = options.get("_generator_backpressure_num_objects")
    per_yield = options.get("_num_objects_per_yield")
    limit_bytes = options.get("_generator_backpressure_num_bytes")
    if limit is None and per_yield is None and limit_bytes is None:
        return None
    return StreamOptions(
        -1 if limit is None else limit, per_yield or 1, -1 if limit_bytes is None else limit_bytes
    )


def changed_stream_options(
    defaults: StreamOptions | None, options: Mapping[str, Any]
) -> StreamOptions | None:
    """The same for one call, whose `options` change the defaults of a method."""
    changed = stream_options(options)
    if changed is None or defaults is None:
        return changed if defaults is None else defaults
    return StreamOptions(
        defaults.limit if options.get("_generator_backpressure_num_objects") is None else changed.limit,
        defaults.objects_per_yield,
        defaults.limit_bytes
        if options.get("_generator_backpressure_num_bytes") is None
        else changed.limit_bytes,
    )
