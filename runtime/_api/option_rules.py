"""Which options tasks and actors have, and what each accepts.

Wrong keyword -> ValueError that lists the valid ones; wrong type -> TypeError; out of range -> ValueError. Types are
named as Python shows them, because programs match on these words.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runtime._api import scheduling
from runtime._core import accelerators, resources
from runtime.runtime_env import of_task

_COMMON = (
    "num_cpus num_gpus memory resources runtime_env scheduling_strategy name accelerator_type label_selector "
    "fallback_strategy object_store_memory enable_task_events _labels _metadata placement_group "
    "placement_group_bundle_index placement_group_capture_child_tasks"
).split()
_STREAM = (
    "_generator_backpressure_num_objects",
    "_generator_backpressure_num_bytes",
    "_num_objects_per_yield",
)
TASK = frozenset([*_COMMON, *"num_returns max_retries retry_exceptions max_calls".split(), *_STREAM])
ACTOR = frozenset(
    [
        *_COMMON,
        *"max_restarts max_task_retries max_pending_calls max_concurrency lifetime namespace get_if_exists".split(),
        *"concurrency_groups allow_out_of_order_execution enable_tensor_transport".split(),
        "_actor_generator_backpressure_num_objects",
    ]
)
_FIXED = frozenset({"max_calls", "concurrency_groups"})
"""What belongs to the decorator only, and not into `.options()`."""


class Rule(NamedTuple):
    """The types that an option accepts, and what else must hold. `none`: None is as good as not given."""

    types: tuple[type, ...]
    check: Callable[[str, Any], None] | None = None
    none: bool = True


def _amount(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"The quantity of resource {name} must be finite, and it is {value}.")
    resources.to_units({name: value})


def _resources(name: str, value: Mapping[str, Any]) -> None:
    if "CPU" in value or "GPU" in value:
        raise ValueError(
            f"Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in {name}={value}."
        )
    if "memory" in value or "object_store_memory" in value:
        raise ValueError(
            f"{name} must not contain the key 'memory' or 'object_store_memory', and it is {value}: use the keyword "
            "'memory'."
        )
    for resource, amount in value.items():
        if not isinstance(amount, int | float):
            raise TypeError(f"The amount of resource {resource} must be a number, not {amount!r}.")
    resources.to_units(value)
    for resource, amount in value.items():
        accelerators.check_amount(resource, amount)


def _count(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"The keyword '{name}' only accepts None, 0 or a positive integer, not {value}.")


def _count_or_infinite(name: str, value: int) -> None:
    if value < -1:
        raise ValueError(
            f"The keyword '{name}' only accepts None, 0, -1 or a positive integer, where -1 represents infinity, "
            f"not {value}."
        )


def _num_returns(name: str, value: int | str) -> None:
    if value not in ("streaming", "dynamic") and (isinstance(value, str) or value < 0):
        raise ValueError(
            f"The keyword '{name}' only accepts None, a non-negative integer, 'streaming' (for generators), or "
            f"'dynamic' (deprecated), not {value!r}. The default value is 1, and 'streaming' for a generator."
        )


def _exceptions(name: str, value: Any) -> None:
    if isinstance(value, list | tuple):
        for item in value:
            if not (isinstance(item, type) and issubclass(item, Exception)):
                raise ValueError(
                    f"{name} must be either a boolean or a list of exceptions, and holds {item!r}."
                )


def _lifetime(name: str, value: str) -> None:
    if value not in ("detached", "non_detached"):
        raise ValueError(
            f"actor `{name}` argument must be one of 'detached', 'non_detached' and None, not {value!r}."
        )


def _backpressure(name: str, value: int) -> None:
    if value == 0:
        raise ValueError(
            f"{name}=0 is not allowed: a generator that may have no value waiting could never yield. "
            "Use a value > 0, or -1 for no limit."
        )


def _actor_backpressure(name: str, value: int) -> None:
    if value <= 0 and value != -1:
        raise ValueError(f"{name} must be > 0, or -1 for no limit, not {value}.")


def _per_yield(name: str, value: int) -> None:
    if value <= 0:
        raise ValueError(
            f"{name}={value} must be set to a positive integer, the number of objects in each yield."
        )


def _groups(name: str, value: Any) -> None:
    sizes = value if isinstance(value, dict) else {group["name"]: group["max_concurrency"] for group in value}
    for group, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(
                f"{name}: the group {group!r} must allow a whole number of calls from 1 up, not {size!r}."
            )


def _runtime_env(_: str, value: Any) -> None:
    of_task(value)


_RULES: Mapping[str, Rule] = {
    "num_cpus": Rule((float, int), _amount),
    "num_gpus": Rule((float, int), _amount),
    "memory": Rule((float, int), _amount),
    "object_store_memory": Rule((int,), _count),
    "resources": Rule((dict,), _resources),
    "runtime_env": Rule((dict,), _runtime_env),
    "name": Rule((str,)),
    "enable_task_events": Rule((bool,), none=False),
    "_labels": Rule((dict,)),
    "_metadata": Rule((dict,)),
    "num_returns": Rule((int, str), _num_returns),
    "max_retries": Rule((int,), _count_or_infinite),
    "retry_exceptions": Rule((bool, list, tuple), _exceptions, none=False),
    "max_calls": Rule((int,), _count),
    "max_restarts": Rule((int,), _count_or_infinite),
    "max_task_retries": Rule((int,), _count_or_infinite),
    "max_pending_calls": Rule((int,), _count_or_infinite),
    "max_concurrency": Rule((int,), _count),
    "lifetime": Rule((str,), _lifetime),
    "namespace": Rule((str,)),
    "get_if_exists": Rule((bool,), none=False),
    "concurrency_groups": Rule((list, dict), _groups),
    "allow_out_of_order_execution": Rule((bool,)),
    "enable_tensor_transport": Rule((bool,)),
    "_generator_backpressure_num_objects": Rule((int,), _backpressure),
    "_generator_backpressure_num_bytes": Rule((int,), _backpressure),
    "_num_objects_per_yield": Rule((int,), _per_yield),
    "_actor_generator_backpressure_num_objects": Rule((int,), _actor_backpressure),
    **{
        name: Rule((object,), lambda name, value: scheduling.CHECKS[name](value))
        for name in scheduling.CHECKS
    },
}


def validate(options: Mapping[str, Any], valid: frozenset[str], in_options: bool = False) -> None:
    """Checks names, types and ranges.

    Args:
        options: by keyword.
        valid: `TASK` or `ACTOR`.
        in_options: they are the arguments of `.options()`, and not of the decorator.

    Raises:
        ValueError, TypeError: as the module says.
    """
    for name, value in options.items():
        if name not in valid:
            kind = "remote functions" if valid is TASK else "actors"
            raise ValueError(
                f"Invalid option keyword {name} for {kind}. Valid ones are {', '.join(sorted(valid))}."
            )
        if in_options and name in _FIXED:
            raise ValueError(
                f"Setting '{name}' is not supported in '.options()': it belongs to the @remote decorator."
            )
        check_one(name, value)
    if valid is TASK and options.get("object_store_memory") is not None:
        raise ValueError("Setting 'object_store_memory' is not implemented for tasks: leave it out.")
    if valid is ACTOR and options.get("object_store_memory") is not None:
        warnings.warn(
            "Setting 'object_store_memory' for actors is deprecated: it limits how many such actors a node takes, and "
            f"{scheduling.NO_STORE_ROOM}",
            DeprecationWarning,
            stacklevel=4,
        )
    if not in_options:
        check_name(options)
    scheduling.check_together(options)


def check_name(options: Mapping[str, Any]) -> None:
    """Raises ValueError when an actor is to be found by its name and has none. `options` are all of them."""
    if options.get("get_if_exists") and not options.get("name"):
        raise ValueError("The actor name must be specified to use `get_if_exists`.")


def validate_stream(options: Mapping[str, Any]) -> None:
    """Checks what `options` say of streams. See `validate`."""
    for name in _STREAM:
        if name in options:
            check_one(name, options[name])


def check_one(name: str, value: Any) -> None:
    """Checks the value of one option that exists. See `validate`."""
    types, check, none = _RULES[name]
    if value is None and none:
        return
    if not isinstance(value, types):
        accepted = (*types, type(None)) if none else types
        shown = accepted if len(accepted) > 1 else accepted[0]
        raise TypeError(
            f"The type of keyword '{name}' must be {shown}, but received type {type(value)}: {value!r}."
        )
    _check_text(name, value)
    if check is not None:
        check(name, value)


def _check_text(name: str, value: Any) -> None:
    """Raises ValueError for text that cannot be sent."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"The keyword '{name}' must be text that UTF-8 can encode, and {value!r} has a lone surrogate at "
                f"position {error.start}. Python makes them from bytes that are not UTF-8: decode those differently."
            ) from error
    elif isinstance(value, dict):
        for pair in value.items():
            for item in pair:
                _check_text(name, item)
