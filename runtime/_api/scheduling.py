"""The options that say where a task or an actor runs, and what that asks of a node.

What is wrong with an option shows where it is given: wrong type -> TypeError, wrong value -> ValueError.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from runtime._core import accelerators, bundles, labels, resources
from runtime._owner import context
from runtime._wire.messages.base import ResourceRequest, SchedulingStrategy
from runtime.util.placement_group import NO_STORE_ROOM as NO_STORE_ROOM
from runtime.util.placement_group import PlacementGroup, enter, get_current_placement_group
from runtime.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

Amounts = dict[str, float]
_INVISIBLE = ("memory", "object_store_memory")
"""An actor that asks for these alone gives the CPU of its constructor back."""
_AMOUNTS = (
    ("num_cpus", "CPU"),
    ("num_gpus", "GPU"),
    ("memory", "memory"),
    ("object_store_memory", "object_store_memory"),
)
_DEPRECATED = {
    "placement_group": "default",
    "placement_group_bundle_index": -1,
    "placement_group_capture_child_tasks": False,
}


def task_request(options: Mapping[str, Any], name: str) -> tuple[ResourceRequest, bool]:
    """What a task asks of a node, and whether the tasks it starts stay in its placement group.

    Raises:
        ValueError: the placement group cannot hold it, or GPUs above one are not whole.
    """
    amounts = _amounts(options)
    amounts.setdefault("CPU", 1)
    return _request(options, amounts, amounts, name)


def actor_request(options: Mapping[str, Any], name: str) -> tuple[ResourceRequest, bool, dict[str, int]]:
    """As `task_request`, and what the actor holds once it is constructed.

    An actor that names no resource takes a CPU for its constructor and holds none; one that names any holds what
    it asks for, a CPU with it unless it says otherwise.

    Raises:
        ValueError: as of `task_request`.
    """
    held = _amounts(options)
    if held.keys() - _INVISIBLE:
        held.setdefault("CPU", 1)
        placement = held
    else:
        placement = {**held, "CPU": 1}
    request, capture = _request(options, held, placement, name)
    units = resources.to_units(held)
    if request.placement_group_id:
        index, _ = _group(options)[1:]
        units = bundles.rewrite_for_group(units, request.placement_group_id.hex(), index)
    return request, capture, units


def _amounts(options: Mapping[str, Any]) -> Amounts:
    """The resources that options name, memory in whole bytes.

    Raises:
        ValueError: GPUs above one that are not whole.
    """
    amounts = dict(options.get("resources") or {})
    for option, name in _AMOUNTS:
        if options.get(option) is not None:
            amounts[name] = options[option]
    if "GPU" in amounts:
        accelerators.check_amount("GPU", amounts["GPU"])
    if "memory" in amounts:
        amounts["memory"] = int(amounts["memory"])
    if options.get("accelerator_type"):
        amounts[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    return amounts


def _request(
    options: Mapping[str, Any], held: Amounts, placement: Amounts, name: str
) -> tuple[ResourceRequest, bool]:
    strategy = _strategy(options)
    _warn_of_deprecated(options)
    units = resources.to_units(placement)
    group, index, capture = _group(options)
    if group is None:
        return ResourceRequest(units, strategy), False
    _check_fits(group, held, placement, name)
    enter(group)
    group_id = group.id.binary()
    units = bundles.rewrite_for_group(units, group_id.hex(), index)
    return ResourceRequest(units, strategy, group_id), capture


def _warn_of_deprecated(options: Mapping[str, Any]) -> None:
    for name, default in _DEPRECATED.items():
        if options.get(name, default) not in (default, None):
            warnings.warn(
                f"{name} parameter is deprecated. Use scheduling_strategy=PlacementGroupSchedulingStrategy(...) "
                "instead, see https://docs.ray.io/en/releases-2.60.0/ray-core/package-ref.html#ray-remote.",
                DeprecationWarning,
                stacklevel=6,
            )


def _group(options: Mapping[str, Any]) -> tuple[PlacementGroup | None, int, bool]:
    """The placement group, the bundle in it (-1: any), and whether it captures child tasks."""
    strategy = options.get("scheduling_strategy")
    group: Any = options.get("placement_group", "default")
    index = options.get("placement_group_bundle_index", -1)
    capture = options.get("placement_group_capture_child_tasks")
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        group, index = strategy.placement_group, strategy.placement_group_bundle_index
        capture = strategy.placement_group_capture_child_tasks
    elif strategy is not None:
        return None, -1, False
    if capture is None:
        capture = context.captures_children()
    if group == "default":
        group = get_current_placement_group() if capture else None
    if group is None or group.is_empty:
        if index != -1:
            raise ValueError(
                f"Without a placement group the bundle index must be -1, or left out, and it is {index}."
            )
        return None, -1, False
    count = group.bundle_count
    if index >= count or index < -1:
        raise ValueError(
            f"placement group bundle index {index} is invalid. Valid placement group indexes: 0-{count - 1}, and -1 "
            "for any of them."
        )
    return group, index, capture


def _check_fits(group: PlacementGroup, held: Amounts, placement: Amounts, name: str) -> None:
    specs = group.bundle_specs
    if not _fits_one(held, specs):
        raise ValueError(
            f"Cannot schedule {name} with the placement group because the resource request {held} cannot fit into any "
            f"bundles for the placement group, {specs}."
        )
    if not _fits_one(placement, specs):
        raise ValueError(
            f"Cannot schedule {name} with the placement group because the actor requires {placement['CPU']} CPU for "
            f"creation, which cannot fit into any bundles for the placement group, {specs}. Give a bundle a CPU, or "
            "the actor num_cpus=0."
        )


def _fits_one(amounts: Amounts, specs: list[dict[str, float]]) -> bool:
    return any(all(spec.get(name, 0) >= amount for name, amount in amounts.items()) for spec in specs)


def _strategy(options: Mapping[str, Any]) -> SchedulingStrategy:
    chosen = options.get("scheduling_strategy")
    selector = dict(options.get("label_selector") or {})
    fallbacks = [
        dict(fallback["label_selector"] or {}) for fallback in options.get("fallback_strategy") or ()
    ]
    if isinstance(chosen, NodeAffinitySchedulingStrategy):
        busy = "SPILL" if chosen._spill_on_unavailable else "FAIL" if chosen._fail_on_unavailable else "WAIT"
        node_id = bytes.fromhex(chosen.node_id)
        return SchedulingStrategy(
            "NODE_AFFINITY", node_id, chosen.soft, selector, busy=busy, fallbacks=fallbacks
        )
    if isinstance(chosen, NodeLabelSchedulingStrategy):
        twice = selector.keys() & chosen.hard.keys()
        if twice:
            raise ValueError(
                f"The labels {sorted(twice)} stand in label_selector and in NodeLabelSchedulingStrategy: "
                "leave them out of one of the two."
            )
        return SchedulingStrategy(
            labels={**selector, **chosen.hard},
            preferred=chosen.soft,
            fallbacks=[{**fallback, **chosen.hard} for fallback in fallbacks],
        )
    kind = chosen if isinstance(chosen, str) else "DEFAULT"
    return SchedulingStrategy(kind, labels=selector, fallbacks=fallbacks)


# ---------------------------------------------------------------- what the options may be


def check_together(options: Mapping[str, Any]) -> None:
    """Raises ValueError when options contradict each other."""
    group = options.get("placement_group", "default")
    if group not in ("default", None) and options.get("scheduling_strategy") is not None:
        raise ValueError(
            "Placement groups should be specified via the scheduling_strategy option; placement_group, which is "
            "deprecated, cannot be given with it."
        )


def _check_type(option: str, value: Any, *types: type) -> None:
    if not isinstance(value, types):
        raise TypeError(
            f"The type of keyword '{option}' must be {(*types, type(None))}, but received type {type(value)}."
        )


def _check_strategy(value: Any) -> None:
    _check_type(
        "scheduling_strategy",
        value,
        str,
        PlacementGroupSchedulingStrategy,
        NodeAffinitySchedulingStrategy,
        NodeLabelSchedulingStrategy,
    )
    if isinstance(value, str) and value not in ("DEFAULT", "SPREAD"):
        raise ValueError(
            f"Invalid scheduling_strategy value {value}. Give 'DEFAULT', 'SPREAD', or a strategy of "
            "util.scheduling_strategies."
        )


def _check_selector(value: Any) -> None:
    _check_type("label_selector", value, dict)
    labels.check_selector(value)


def _check_fallbacks(value: Any) -> None:
    _check_type("fallback_strategy", value, list)
    labels.check_fallbacks(value)


def _check_group(value: Any) -> None:
    _check_type("placement_group", value, str, PlacementGroup)
    if isinstance(value, str) and value != "default":
        raise ValueError(f"placement_group={value!r}: give a placement group, 'default' or None.")


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "scheduling_strategy": _check_strategy,
    "label_selector": _check_selector,
    "fallback_strategy": _check_fallbacks,
    "placement_group": _check_group,
    "placement_group_bundle_index": lambda value: _check_type("placement_group_bundle_index", value, int),
    "placement_group_capture_child_tasks": lambda value: _check_type(
        "placement_group_capture_child_tasks", value, bool
    ),
    "accelerator_type": lambda value: _check_type("accelerator_type", value, str),
}
"""What raises when a value of an option is wrong; None, which is every option's absence, is not asked about."""
