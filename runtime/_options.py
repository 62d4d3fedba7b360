"""The options of tasks and actors: which exist, what they accept, and what they mean for a node.

Wrong keyword -> ValueError that lists the valid ones; wrong type -> TypeError; out of range -> ValueError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from runtime._core import placement, resources
from runtime._wire.messages.base import ResourceRequest, SchedulingStrategy
from runtime._worker import context
from runtime.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

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
_NUMBERS = ("num_cpus", "num_gpus", "memory", "object_store_memory")
_INTEGERS = {
    "max_retries": -1,
    "max_calls": 0,
    "max_restarts": -1,
    "max_task_retries": -1,
    "max_pending_calls": -1,
    "max_concurrency": 1,
}


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
            if name == "num_gpus" and value > 1 and value != int(value):
                raise ValueError(f"num_gpus={value}: above 1, only whole GPUs can be had.")
        elif name in _INTEGERS:
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is a whole number, not {value!r}.")
            if value < _INTEGERS[name]:
                raise ValueError(f"{name}={value}: the least it can be is {_INTEGERS[name]}.")
        elif name == "resources":
            _validate_resources(value)
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
        elif name == "retry_exceptions" and not isinstance(value, bool):
            _validate_exceptions(value)
        elif name == "runtime_env" and not isinstance(value, str | Mapping):
            raise TypeError(f"runtime_env is a dict, not {value!r}.")


def _validate_resources(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"resources is a dict from name to amount, not {value!r}.")
    for name in ("CPU", "GPU"):
        if name in value:
            raise ValueError(f"resources={value!r}: {name} has an option of its own, num_{name.lower()}s.")
    resources.to_units(value)


def _validate_exceptions(value: Any) -> None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"retry_exceptions is a bool or a list of exception classes, not {value!r}.")
    for item in value:
        if not (isinstance(item, type) and issubclass(item, Exception)):
            raise TypeError(f"retry_exceptions lists exception classes, and {item!r} is none.")


def resource_request(
    options: Mapping[str, Any], default_cpus: float
) -> tuple[ResourceRequest, bool, dict[str, int]]:
    """What a node must offer; whether child tasks stay in the placement group; and what the user named explicitly."""
    amounts = dict(options.get("resources") or {})
    cpus = options.get("num_cpus")
    explicit = cpus is not None
    amounts["CPU"] = default_cpus if cpus is None else cpus
    for keyword, name in (("num_gpus", "GPU"), ("memory", "memory")):
        if options.get(keyword):
            amounts[name] = options[keyword]
    if options.get("accelerator_type"):
        amounts[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    units = resources.to_units(amounts)
    held = dict(units) if explicit else {name: n for name, n in units.items() if name != "CPU"}
    strategy, group, index, capture = _strategy(options)
    _check_fits_bundle(options, amounts)
    if group:
        units = placement.rewrite_for_group(units, group.hex(), index)
        held = placement.rewrite_for_group(held, group.hex(), index)
    return ResourceRequest(units, strategy, group), capture, held


def _check_fits_bundle(options: Mapping[str, Any], amounts: Mapping[str, float]) -> None:
    chosen = options.get("scheduling_strategy")
    if not isinstance(chosen, PlacementGroupSchedulingStrategy) or chosen.placement_group is None:
        return
    bundles = chosen.placement_group.bundle_specs
    index = chosen.placement_group_bundle_index
    for bundle in bundles if index == -1 else bundles[index : index + 1]:
        if all(bundle.get(name, 0) >= amount for name, amount in amounts.items()):
            return
    if 0 <= index < len(bundles) or index == -1:
        raise ValueError(
            f"No bundle of the placement group is large enough for {dict(amounts)}: they are {bundles}."
        )


def _strategy(options: Mapping[str, Any]) -> tuple[SchedulingStrategy, bytes, int, bool]:
    chosen = options.get("scheduling_strategy")
    labels = dict(options.get("label_selector") or {})
    group = options.get("placement_group")
    if group is not None and group != "default":
        chosen = PlacementGroupSchedulingStrategy(
            group,
            options.get("placement_group_bundle_index", -1),
            options.get("placement_group_capture_child_tasks"),
        )
    if chosen is None:
        running = context.execution.get()
        lease = running.lease if running is not None else None
        if lease is not None and lease.capture_child_tasks and lease.placement_group_id:
            return SchedulingStrategy("DEFAULT", labels=labels), lease.placement_group_id, -1, True
        return SchedulingStrategy("DEFAULT", labels=labels), b"", -1, False
    if isinstance(chosen, PlacementGroupSchedulingStrategy):
        if chosen.placement_group is None:
            return SchedulingStrategy("DEFAULT", labels=labels), b"", -1, False
        index = chosen.placement_group_bundle_index
        count = chosen.placement_group.bundle_count
        if index >= count or index < -1:
            raise ValueError(
                f"placement_group_bundle_index={index}: the group has the bundles 0 to {count - 1}; -1 is any."
            )
        capture = bool(chosen.placement_group_capture_child_tasks)
        return SchedulingStrategy(labels=labels), chosen.placement_group.id.binary(), index, capture
    if isinstance(chosen, NodeAffinitySchedulingStrategy):
        node_id = bytes.fromhex(chosen.node_id)
        return SchedulingStrategy("NODE_AFFINITY", node_id, chosen.soft, labels), b"", -1, False
    if chosen in ("DEFAULT", "SPREAD"):
        return SchedulingStrategy(chosen, labels=labels), b"", -1, False
    raise ValueError(
        f"scheduling_strategy={chosen!r}: give 'DEFAULT', 'SPREAD', or a strategy of "
        "runtime.util.scheduling_strategies."
    )


def runtime_env_json(options: Mapping[str, Any]) -> str:
    """The environment as canonical JSON; "" for none."""
    env = options.get("runtime_env")
    if not env:
        return ""
    return env if isinstance(env, str) else json.dumps(dict(env), sort_keys=True)


def num_returns(options: Mapping[str, Any], is_generator: bool) -> int:
    """The number of references a call returns; -1 for a stream."""
    value = options.get("num_returns")
    if value is None:
        return -1 if is_generator else 1
    if value in ("streaming", "dynamic"):
        return -1
    return int(value)
