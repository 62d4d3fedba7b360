"""Scheduling strategies besides "DEFAULT" and "SPREAD"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from runtime._core import labels
from runtime._core.ids import NodeID

if TYPE_CHECKING:
    from runtime.util.placement_group import PlacementGroup


class PlacementGroupSchedulingStrategy:
    """Runs inside a placement group.

    Args:
        placement_group: the group.
        placement_group_bundle_index: the bundle; -1: any.
        placement_group_capture_child_tasks: whether tasks started inside stay in the group; None: as for the caller.
    """

    def __init__(
        self,
        placement_group: PlacementGroup | None,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    """Runs on one node.

    Args:
        node_id: the node, in hex.
        soft: if the node is gone or can never fit the request, run elsewhere instead of failing.
        _spill_on_unavailable: with `soft`, run elsewhere also while the node is busy.
        _fail_on_unavailable: without `soft`, fail also while the node is busy.

    Raises:
        ValueError: the id is malformed, or one of the last two contradicts `soft`.
    """

    def __init__(
        self,
        node_id: str,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable
        try:
            is_nil = NodeID(bytes.fromhex(self.node_id)).is_nil()
        except ValueError:
            is_nil = True
        if is_nil:
            raise ValueError(
                f"Invalid node_id '{self.node_id}'. Node ID must be a valid hex string: nodes() lists those of the "
                "cluster."
            )
        if _spill_on_unavailable and not soft:
            raise ValueError(
                "_spill_on_unavailable cannot be set when soft is False: hard affinity excludes all other nodes."
            )
        if _fail_on_unavailable and soft:
            raise ValueError(
                "_fail_on_unavailable cannot be set when soft is True: soft affinity uses other nodes instead."
            )


class In:
    """The label has one of these values."""

    def __init__(self, *values: str) -> None:
        _check_values("In", values)
        self.values = list(values)


class NotIn:
    """The label has none of these values, or is missing."""

    def __init__(self, *values: str) -> None:
        _check_values("NotIn", values)
        self.values = list(values)


class Exists:
    """The node has the label."""


class DoesNotExist:
    """The node does not have the label."""


LabelMatchOperator = In | NotIn | Exists | DoesNotExist


class NodeLabelSchedulingStrategy:
    """Runs on nodes by their labels, e.g. `NodeLabelSchedulingStrategy({"region": In("us"), "disk": Exists()})`.

    Args:
        hard: conditions that the node's labels must satisfy, an operator per key.
        soft: conditions of preferred nodes.

    Raises:
        ValueError: both are empty, or a key or operator is invalid.
    """

    def __init__(
        self,
        hard: Mapping[str, LabelMatchOperator] | None,
        *,
        soft: Mapping[str, LabelMatchOperator] | None = None,
    ) -> None:
        self.hard = _selector("hard", hard)
        self.soft = _selector("soft", soft)
        if not (self.hard or self.soft):
            raise ValueError(
                "The `hard` and `soft` parameter of NodeLabelSchedulingStrategy cannot both be empty."
            )


def _check_values(operator: str, values: tuple[Any, ...]) -> None:
    example = f'{operator}("value1", "value2")'
    if not values:
        raise ValueError(
            f"The variadic parameter of the {operator} operator must be a non-empty tuple, such as {example}."
        )
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"Type of value in position {position} for the {operator} operator must be str, such as {example}, "
                f"not {value!r} of {type(value)}."
            )


def _selector(parameter: str, operators: Any) -> dict[str, str]:
    """The operators as conditions of a label selector."""
    if operators is None:
        return {}
    example = '{"key1": In("value1")}'
    if not isinstance(operators, dict):
        raise ValueError(
            f"The {parameter} parameter must be a map, such as {example}, not of type {type(operators)}."
        )
    selector = {}
    for key, operator in operators.items():
        if not isinstance(key, str):
            raise ValueError(
                f"The map key of the {parameter} parameter must be of type str, as in {example}, not {key!r}."
            )
        if not isinstance(operator, LabelMatchOperator):
            raise ValueError(
                f"The map value for key {key} of the {parameter} parameter must be one of the `In`, `NotIn`, `Exists` "
                f"or `DoesNotExist` operator, as in {example}, not {operator!r}."
            )
        selector[key] = _condition(operator)
    return selector


def _condition(operator: LabelMatchOperator) -> str:
    if isinstance(operator, Exists):
        return labels.EXISTS
    if isinstance(operator, DoesNotExist):
        return labels.MISSING
    return labels.one_of(operator.values, negated=isinstance(operator, NotIn))


SchedulingStrategyT = (
    None
    | Literal["DEFAULT", "SPREAD"]
    | PlacementGroupSchedulingStrategy
    | NodeAffinitySchedulingStrategy
    | NodeLabelSchedulingStrategy
)
