"""From nodes to calls: what can be compiled, and what a call's arguments are then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.dag.class_node import ClassMethodNode, ClassMethodOutput, ClassNode
from runtime.dag.collective_node import CollectiveOutputNode
from runtime.dag.compile import INPUT, WHOLE, Call, Plan, Use, plan
from runtime.dag.input_node import InputAttributeNode, InputNode
from runtime.dag.node import DAGNode, replace
from runtime.dag.output_node import MultiOutputNode


def check_nodes(nodes: Sequence[DAGNode]) -> None:
    """Raises ValueError or NotImplementedError, with the reason, if the graph cannot be compiled."""
    inputs = [node for node in nodes if isinstance(node, InputNode)]
    if len(inputs) != 1:
        raise NotImplementedError(
            f"A graph is compiled for its input: it needs exactly one InputNode, but has {len(inputs)}."
        )
    for node in nodes:
        if isinstance(node, ClassNode) or (
            isinstance(node, ClassMethodNode) and isinstance(node._owner, DAGNode)
        ):
            raise ValueError(
                "Compiled DAGs can only bind methods of a running actor: start it with Actor.remote()."
            )
        if not isinstance(node, ClassMethodNode | InputNode | InputAttributeNode | MultiOutputNode):
            raise NotImplementedError(
                f"Only actor method nodes can be compiled, but {node} is not one: run such a graph with execute()."
            )
        if isinstance(node, ClassMethodNode) and not node._needed():
            raise ValueError(
                "Compiled DAGs require each task to take a ray.dag.InputNode or at least one other DAGNode as an "
                f"input, and {node} takes none."
            )
        if node._bound_kwargs and any(isinstance(one, DAGNode) for one in node._bound_kwargs.values()):
            raise ValueError("Compiled DAG currently does not support binding to other DAG nodes as kwargs")
    ends = nodes[-1]._bound_args if isinstance(nodes[-1], MultiOutputNode) else [nodes[-1]]
    for end in ends:
        if not isinstance(end, ClassMethodNode):
            raise ValueError(
                f"Compiled DAGs end in calls of actors, and {end!r} is none: add what it needs to the results of "
                "`execute` where they are used."
            )
    _check_input(inputs[0], nodes)


def _check_input(input_node: InputNode, nodes: Sequence[DAGNode]) -> None:
    """What `execute` must be given is what the graph uses: a part that nobody uses is a mistake in the graph."""
    used = {node.key for node in nodes if isinstance(node, InputAttributeNode)}
    unused = [str(key) for key in input_node._keys if key not in used]
    if unused:
        raise ValueError(
            f"Compiled Graph expects input to be accessed using all of attributes "
            f"{', '.join(map(str, input_node._keys))}, but {', '.join(unused)} is unused. Ensure all input attributes "
            "are used and contribute to the computation of the Compiled Graph output."
        )


def plan_of(root: DAGNode, nodes: Sequence[DAGNode]) -> tuple[Plan, Mapping[str, Any]]:
    """The plan of a graph that `check_nodes` accepts, and the handles of its actors by id."""
    calls = sorted(
        (node for node in nodes if isinstance(node, ClassMethodNode) and node.is_class_method_call),
        key=lambda node: node._bound_at,
    )
    index = {node: position for position, node in enumerate(calls)}
    has_parts = any(isinstance(node, InputAttributeNode) for node in nodes)

    def use_of(node: DAGNode) -> Use:
        if isinstance(node, InputAttributeNode):
            return Use(INPUT, node.key)
        if isinstance(node, InputNode):
            return Use(INPUT, WHOLE if has_parts else None)
        if isinstance(node, ClassMethodOutput):
            return Use(index[node.class_method_call], node.output_idx)
        assert isinstance(node, ClassMethodNode)
        return Use(index[node])

    handles: dict[str, Any] = {}
    made = []
    for position, node in enumerate(calls):
        actor = node._owner._actor_id.hex()
        handles[actor] = node._owner
        args, kwargs = replace(node._bound_args, use_of), replace(node._bound_kwargs, use_of)
        function = node.function if isinstance(node, CollectiveOutputNode) else None
        made.append(Call(position, actor, node.get_method_name(), args, kwargs, function))
    ends = list(root._bound_args) if isinstance(root, MultiOutputNode) else [root]
    return plan(made, [use_of(end) for end in ends], isinstance(root, MultiOutputNode)), handles
