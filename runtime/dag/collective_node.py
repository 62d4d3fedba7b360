"""Collective operations in graphs: each member's result is a call of its own that reads every member's tensor.

So a collective needs nothing of its own of a compiled graph: the tensors pass through the graph's channels, each of
them written once and read in place by all members, and errors, dead actors and the check for deadlocks are those of
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runtime.dag.class_node import ClassMethodNode
from runtime.dag.node import DAGNode, Execution


class CollectiveOutputNode(ClassMethodNode):
    """What one member gets of a collective operation.

    Args:
        owner: the handle of the member's actor.
        name: of the operation, for errors.
        inputs: the nodes of all members' tensors, by rank.
        function: is called with the tensors in the member's process; picklable.
    """

    def __init__(
        self, owner: Any, name: str, inputs: Sequence[DAGNode], function: Callable[..., Any]
    ) -> None:
        super().__init__(owner, name, inputs, {}, {})
        self.function = function

    def _run(self, execution: Execution) -> Any:
        args, _ = self._filled(execution)
        return self._owner.__ray_call__.remote(_applied, self.function, *args)


def _applied(_actor: Any, function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
