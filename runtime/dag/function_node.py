"""`f.bind(...)`: a task to start when the graph is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.dag.node import DAGNode, Execution


class FunctionNode(DAGNode):
    """A call of a remote function; executing it starts the task.

    Args:
        function: an object with a method `remote`.
    """

    def __init__(
        self,
        function: Any,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(args, kwargs, options)
        self._function = function
        self._name = name

    def _run(self, execution: Execution) -> Any:
        args, kwargs = self._filled(execution)
        return self._function.remote(*args, **kwargs)

    def _described(self) -> str:
        return self._name
