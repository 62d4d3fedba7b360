"""Several outputs of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.dag.node import DAGNode, Execution


class MultiOutputNode(DAGNode):
    """Its result is the list of the results of its nodes.

    Args:
        args: the nodes.

    Raises:
        ValueError: `args` is not a list or tuple.
    """

    def __init__(self, args: Sequence[Any], kwargs: Any = None, options: Any = None) -> None:
        if not isinstance(args, list | tuple):
            raise ValueError(f"Invalid input type for `args`, {type(args)}.")
        super().__init__(args, {})

    def _run(self, execution: Execution) -> Any:
        return list(self._filled(execution)[0])
