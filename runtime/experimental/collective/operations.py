"""`allreduce`, `allgather` and `reducescatter`: called in a member of a group, or bound into a graph.

with InputNode() as x:
    sums = allreduce.bind([one.gradients.bind(x) for one in actors])
    graph = MultiOutputNode([one.apply.bind(s) for one, s in zip(actors, sums)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from runtime.dag.class_node import ClassMethodNode
from runtime.dag.collective_node import CollectiveOutputNode
from runtime.dag.node import DAGNode
from runtime.util import collective
from runtime.util.collective.tensors import Operand
from runtime.util.collective.types import ReduceOp

Nodes = Sequence[DAGNode]


class AllReduce:
    """Each member gets the reduction of all tensors."""

    def __call__(self, tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
        """See `runtime.util.collective.allreduce`."""
        collective.allreduce(tensor, group_name, op)

    def bind(
        self, input_nodes: Sequence[Any], op: ReduceOp = ReduceOp.SUM, transport: Any = None
    ) -> list[Any]:
        """Adds the operation to a graph.

        Args:
            input_nodes: calls of different actors that return numpy arrays or torch tensors of one shape; or several
                such lists, of the same actors in the same order.
            op: the reduction.
            transport: None, "auto", "shm" or "gloo": the tensors pass through the graph's channels in any case.

        Returns:
            For each actor the node of its result; with several lists a list of nodes, one for each of them.

        Raises:
            ValueError: an argument is none of these.
        """
        _check_op(op)
        function = partial(reduced, op)
        if not input_nodes or not isinstance(input_nodes[0], list | tuple):
            owners = _owners([input_nodes], transport)
            return _bound(f"allreduce.{op.name}", owners, input_nodes, lambda rank: function)
        lists: Any = input_nodes
        owners = _owners(lists, transport)
        by_list = [_bound(f"allreduce.{op.name}", owners, one, lambda rank: function) for one in lists]
        return [list(results) for results in zip(*by_list, strict=True)]


class AllGather:
    """Each member gets all tensors, one behind the other in the first dimension."""

    def __call__(self, tensor_list: Sequence[Any], tensor: Any, group_name: str = "default") -> None:
        """See `runtime.util.collective.allgather`."""
        collective.allgather(tensor_list, tensor, group_name)

    def bind(self, input_nodes: Nodes, transport: Any = None) -> list[Any]:
        """Adds the operation to a graph; see `AllReduce.bind`."""
        owners = _owners([_one_list(input_nodes)], transport)
        return _bound("allgather", owners, input_nodes, lambda rank: gathered)


class ReduceScatter:
    """Each member gets its part of the reduction of all tensors: one of equal parts in the first dimension."""

    def __call__(
        self,
        tensor: Any,
        tensor_list: Sequence[Any],
        group_name: str = "default",
        op: ReduceOp = ReduceOp.SUM,
    ) -> None:
        """See `runtime.util.collective.reducescatter`."""
        collective.reducescatter(tensor, tensor_list, group_name, op)

    def bind(self, input_nodes: Nodes, op: ReduceOp = ReduceOp.SUM, transport: Any = None) -> list[Any]:
        """Adds the operation to a graph; see `AllReduce.bind`."""
        _check_op(op)
        owners = _owners([_one_list(input_nodes)], transport)
        return _bound(
            f"reducescatter.{op.name}", owners, input_nodes, lambda rank: partial(reduced_part, op, rank)
        )


allreduce = AllReduce()
allgather = AllGather()
reducescatter = ReduceScatter()


# ---------------------------------------------------------------- what the members call


def reduced(op: ReduceOp, *tensors: Any) -> Any:
    """The reduction of tensors, as a new one.

    Raises:
        ValueError: they are neither arrays nor tensors in main memory, or differ in shape or dtype.
    """
    import numpy

    operands = _operands(tensors)
    first = operands[0]
    result = first.flat.copy() if len(operands) == 1 else numpy.empty_like(first.flat)
    so_far = first.flat
    for operand in operands[1:]:
        first.combine(op, so_far, operand.flat, result)
        so_far = result
    if op is ReduceOp.AVERAGE:
        first.divide(result, len(operands))
    return _like(first, result, first.shape)


def reduced_part(op: ReduceOp, rank: int, *tensors: Any) -> Any:
    """One member's part of the reduction.

    Raises:
        ValueError: as `reduced`, or the first dimension cannot be divided by the number of tensors.
    """
    _operands(tensors)
    length, odd = divmod(tensors[0].shape[0] if tensors[0].ndim else 0, len(tensors))
    if odd or not tensors[0].ndim:
        raise ValueError(
            "Expected the first dimension of the input tensor to be divisible by the world size "
            f"{len(tensors)}, and the shape is {tuple(tensors[0].shape)}."
        )
    return reduced(op, *(tensor[rank * length : (rank + 1) * length] for tensor in tensors))


def gathered(*tensors: Any) -> Any:
    """Tensors one behind the other, as a new one.

    Raises:
        ValueError: as `reduced`, or they have no dimensions.
    """
    import numpy

    operands = _operands(tensors)
    first = operands[0]
    if not first.shape:
        raise ValueError("Tensors without dimensions cannot be gathered.")
    shape = (first.shape[0] * len(tensors), *first.shape[1:])
    return _like(first, numpy.concatenate([operand.flat for operand in operands]), shape)


def _operands(tensors: Sequence[Any]) -> list[Operand]:
    try:
        operands = [Operand(tensor, is_written=False) for tensor in tensors]
    except TypeError as error:
        raise ValueError(f"Expected a torch tensor or a numpy array for each input node: {error}") from error
    kinds = {(operand.shape, operand.dtype, operand.is_torch) for operand in operands}
    if len(kinds) > 1:
        found = ", ".join(f"{operand.shape} of {operand.dtype}" for operand in operands)
        raise ValueError(
            f"All tensors of a collective operation must have the same shape and dtype: {found}."
        )
    return operands


def _like(operand: Operand, flat: Any, shape: tuple[int, ...]) -> Any:
    return (operand.as_torch(flat) if operand.is_torch else flat).reshape(shape)


# ---------------------------------------------------------------- arguments


def _bound(
    name: str, owners: Sequence[Any], inputs: Nodes, function_of: Callable[[int], Callable[..., Any]]
) -> list[Any]:
    return [CollectiveOutputNode(owner, name, inputs, function_of(rank)) for rank, owner in enumerate(owners)]


def _check_op(op: Any) -> None:
    if not isinstance(op, ReduceOp):
        raise ValueError(f"Unexpected operation: {op}")


def _one_list(nodes: Any) -> Nodes:
    if isinstance(nodes, list | tuple) and nodes and isinstance(nodes[0], list | tuple):
        raise ValueError("Currently binding a nested list of dag nodes is only supported for allreduce")
    chosen: Nodes = nodes
    return chosen


def _owners(lists: Sequence[Nodes], transport: Any) -> list[Any]:
    """The actors of the lists' nodes, by rank."""
    if transport not in (None, "auto", "shm", "gloo"):
        raise ValueError(
            f"transport={transport!r}: in a graph tensors pass through its channels, in shared memory and over TCP. "
            "Leave it out."
        )
    found: list[Any] = []
    for nodes in lists:
        if not nodes:
            raise ValueError("Expected non-empty input list.")
        if not all(isinstance(node, DAGNode) for node in nodes):
            raise ValueError(f"Expected all input nodes to be DAGNode, but got {nodes}.")
        if len(set(nodes)) != len(nodes):
            raise ValueError(f"Expected unique input nodes, but found duplicates: {nodes}")
        owners = [node._owner if isinstance(node, ClassMethodNode) else None for node in nodes]
        if any(owner is None or isinstance(owner, DAGNode) for owner in owners):
            raise ValueError("Expected an actor handle from the input node")
        if len(set(owners)) != len(owners):
            raise ValueError("Expected unique actor handles, but found duplicate actor handles")
        if found and len(found) != len(owners):
            raise ValueError("Expected all input lists to have the same number of nodes.")
        if found and set(found) != set(owners):
            raise ValueError("Expected all input lists to have the same set of actor handles.")
        if found and found != owners:
            raise ValueError("Expected all input lists to have the same order of actor handles.")
        found = owners
    return found
