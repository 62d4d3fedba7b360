"""The options of tasks and actors: which exist and what they accept.

Wrong keyword -> ValueError that lists the valid ones; wrong type -> TypeError; out of range -> ValueError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from runtime import _scheduling
from runtime._core import accelerators, resources
from runtime._wire.messages.worker import StreamOptions
from runtime._worker.streaming import DYNAMIC, STREAMING

_COMMON = (
    "num_cpus num_gpus memory resources runtime_env scheduling_strategy name accelerator_type label_selector "
    "fallback_strategy object_store_memory enable_task_events _labels _metadata placement_group "
    "placement_group_bundle_index placement_group_capture_child_tasks"
).split()
TASK = frozenset(
    [
        *_COMMON,
        *"num_returns max_retries retry_exceptions max_calls".split(),
        "_generator_backpressure_num_objects",
        "_num_objects_per_yield",
    ]
)
ACTOR = frozenset(
    [
        *_COMMON,
        *"max_restarts max_task_retries max_pending_calls max_concurrency lifetime namespace get_if_exists".split(),
        *"concurrency_groups allow_out_of_order_execution enable_tensor_transport".split(),
        "_actor_generator_backpressure_num_objects",
    ]
)
_STREAM = frozenset(
    (
        "_generator_backpressure_num_objects",
        "_actor_generator_backpressure_num_objects",
        "_num_objects_per_yield",
    )
)
_NUMBERS = ("num_cpus", "num_gpus", "memory", "object_store_memory")
_INTEGERS = {
    "max_retries": -1,
    "max_calls": 0,
    "max_restarts": -1,
    "max_task_retries": -1,
    "max_pending_calls": -1,
    "max_concurrency": 1,
}


def validate_stream(options: Mapping[str, Any]) -> None:
    """Checks what `options` say of streams. See `validate`."""
    for name in _STREAM & options.keys():
        if options[name] is not None:
            _validate_stream(name, options[name])


def validate(options: Mapping[str, Any], valid: frozenset[str], in_options: bool = False) -> None:
    """Checks names, types and ranges.

    Raises:
        ValueError, TypeError: as the module says.
    """
    for name, value in options.items():
        if name not in valid:
            raise ValueError(
                f"{'Tasks' if valid is TASK else 'Actors'} have no option {name!r}. "
                f"They have: {', '.join(sorted(valid))}."
            )
        if value is None:
            continue
        if in_options and name in ("max_calls", "concurrency_groups"):
            raise ValueError(
                f"{name} is fixed where the function or class is made remote, not in .options()."
            )
        if name in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is a number, not {value!r}.")
            if value < 0 or not math.isfinite(value):
                raise ValueError(f"{name}={value}: give a finite amount from 0 up.")
            if name == "num_gpus":
                accelerators.check_amount("GPU", value)
        elif name in _INTEGERS:
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is a whole number, not {value!r}.")
            if value < _INTEGERS[name]:
                raise ValueError(f"{name}={value}: the least it can be is {_INTEGERS[name]}.")
        elif name == "resources":
            _validate_resources(value)
        elif name in _scheduling.CHECKS:
            _scheduling.CHECKS[name](value)
        elif name == "name" and not isinstance(value, str):
            raise TypeError(f"name is a string, not {value!r}.")
        elif name == "lifetime" and value not in ("detached", "non_detached"):
            raise ValueError(
                f"lifetime={value!r}: an actor is 'detached', or 'non_detached' like without the option."
            )
        elif name == "num_returns" and not (
            value in ("streaming", "dynamic") or (isinstance(value, int) and value >= 0)
        ):
            raise ValueError(
                f"num_returns={value!r}: give a whole number from 0 up, 'streaming' or 'dynamic'."
            )
        elif name in _STREAM:
            _validate_stream(name, value)
        elif name == "retry_exceptions" and not isinstance(value, bool):
            _validate_exceptions(value)
        elif name == "runtime_env" and not isinstance(value, str | Mapping):
            raise TypeError(f"runtime_env is a dict, not {value!r}.")
    _scheduling.check_together(options)


def _validate_resources(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"resources is a dict from name to amount, not {value!r}.")
    for name in ("CPU", "GPU"):
        if name in value:
            raise ValueError(f"resources={value!r}: {name} has an option of its own, num_{name.lower()}s.")
    resources.to_units(value)
    for name, amount in value.items():
        accelerators.check_amount(name, amount)


def _validate_exceptions(value: Any) -> None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"retry_exceptions is a bool or a list of exception classes, not {value!r}.")
    for item in value:
        if not (isinstance(item, type) and issubclass(item, Exception)):
            raise TypeError(f"retry_exceptions lists exception classes, and {item!r} is none.")


def runtime_env_json(options: Mapping[str, Any]) -> str:
    """The environment as canonical JSON; "" for none."""
    env = options.get("runtime_env")
    if not env:
        return ""
    return env if isinstance(env, str) else json.dumps(dict(env), sort_keys=True)


def num_returns(options: Mapping[str, Any], is_generator: bool) -> int:
    """The number of references a call returns; negative for a stream, see `Push`."""
    value = options.get("num_returns")
    if value is None:
        return STREAMING if is_generator else 1
    if value == "dynamic":
        return DYNAMIC
    return STREAMING if value == "streaming" else int(value)


def require_generator(options: Mapping[str, Any], is_generator: bool, name: str) -> None:
    """Streams come from generators only.

    Raises:
        ValueError: `num_returns` asks for a stream, and `name` is no generator function.
    """
    value = options.get("num_returns")
    if value in ("streaming", "dynamic") and not is_generator:
        raise ValueError(
            f"num_returns={value!r} can only be used with generator functions (functions that use 'yield'), "
            f"and {name} is not a generator function."
        )


def stream_options(options: Mapping[str, Any]) -> StreamOptions | None:
    """How the values of a generator travel; None for the defaults."""
    limit = options.get("_generator_backpressure_num_objects")
    per_yield = options.get("_num_objects_per_yield")
    if limit is None and per_yield is None:
        return None
    return StreamOptions(-1 if limit is None else limit, per_yield or 1)


def _validate_stream(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"The type of keyword {name!r} is int, not {value!r}.")
    if name == "_num_objects_per_yield":
        if value <= 0:
            raise ValueError(f"{name}={value}: give a positive integer, the number of objects in each yield.")
    elif name == "_generator_backpressure_num_objects":
        if value == 0:
            raise ValueError(
                f"{name}=0 is not allowed: a generator that may have no value waiting could never yield. "
                "Use a value > 0, or -1 for no limit."
            )
    elif value <= 0 and value != -1:
        raise ValueError(f"{name} must be > 0, or -1 for no limit, not {value}.")
