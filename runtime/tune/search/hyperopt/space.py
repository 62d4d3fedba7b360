"""Search spaces as HyperOpt's expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runtime.tune.search.conversion import Parameter, parameters_of
from runtime.tune.space.compiled import has_open_parameters, open_parameter


def expressions(param_space: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the parameters of a space, by name. Values of `choice` may have parameters themselves.

    Raises:
        ValueError: HyperOpt has nothing that corresponds to a parameter; the message names it.
    """
    parameters = parameters_of(param_space, "HyperOptSearch", nested=True)
    return {parameter.name: _expression(parameter.name, parameter) for parameter in parameters}


def _expression(label: str, parameter: Parameter) -> Any:
    from hyperopt import hp, pyll

    low, high, step = parameter.low, parameter.high, parameter.step
    if parameter.kind == "choice":
        options = [_option(f"{label}/{index}", value) for index, value in enumerate(parameter.categories)]
        return hp.choice(label, options)
    if parameter.kind == "normal":
        return hp.normal(label, low, high) if step is None else hp.qnormal(label, low, high, step)
    if parameter.kind == "float":
        if parameter.log:
            bounds = math.log(low), math.log(high)
            return hp.loguniform(label, *bounds) if step is None else hp.qloguniform(label, *bounds, step)
        return hp.uniform(label, low, high) if step is None else hp.quniform(label, low, high, step)
    if low == high:
        return hp.choice(label, [int(low)])  # HyperOpt refuses ranges of one number
    if parameter.log:
        return pyll.scope.int(hp.qloguniform(label, math.log(low), math.log(high), step or 1))
    if step is None:
        return hp.uniformint(label, low, high)
    return pyll.scope.int(hp.quniform(label, low, high, step))


def _option(label: str, value: Any) -> Any:
    from hyperopt import pyll

    if not has_open_parameters(value):
        return pyll.Literal(value)
    if open_parameter(value) is not None:
        (parameter,) = parameters_of({label.replace("/", "."): value}, "HyperOptSearch", nested=True)
        return _expression(label, parameter)
    if isinstance(value, dict):
        return {key: _option(f"{label}/{key}", item) for key, item in value.items()}
    return [_option(f"{label}/{index}", item) for index, item in enumerate(value)]


def assignment(space: Any, config: Any) -> dict[str, Any]:
    """Returns HyperOpt's value of each label that is in use for a configuration.

    Args:
        space: An expression, or nested dicts of them.
        config: A configuration that the space can make.

    Raises:
        ValueError: The space cannot make it.
    """
    from hyperopt import pyll

    found: dict[str, Any] = {}
    if not _assign(pyll.as_apply(space), config, found):
        raise ValueError(f"HyperOpt's space cannot have the configuration {config!r}")
    return found


def _assign(node: Any, value: Any, found: dict[str, Any]) -> bool:
    """Adds the labels below a node to `found` and returns whether the node can have the value."""
    if node.name == "literal":
        return bool(node.obj == value)
    if node.name in ("float", "int"):
        return _assign(node.pos_args[0], value, found)
    if node.name == "hyperopt_param":
        found[node.pos_args[0].obj] = value
        return isinstance(value, (int, float))
    if node.name == "switch":
        label = node.pos_args[0].pos_args[0].obj
        for index, option in enumerate(node.pos_args[1:]):
            inner: dict[str, Any] = {}
            if _assign(option, value, inner):
                found[label] = index
                found.update(inner)
                return True
        return False
    if node.name == "dict":
        return isinstance(value, dict) and all(
            key in value and _assign(child, value[key], found) for key, child in node.named_args
        )
    if node.name == "pos_args":
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(node.pos_args)
            and all(_assign(child, item, found) for child, item in zip(node.pos_args, value, strict=True))
        )
    return False
