"""The input of a graph."""

from __future__ import annotations

from typing import Any

from runtime.dag.node import DAGNode, Execution


class DAGInputData:
    """Several arguments of `execute`: positional ones by index, keyword arguments by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, int):
            return self._args[key]
        if isinstance(key, str):
            return self._kwargs[key]
        raise ValueError(_wrong_key(key))


def _wrong_key(key: object) -> str:
    return f"Please only use int index or str as first-level key, not {key!r}: a position or a keyword of `execute`."


class InputNode(DAGNode):
    """Stands for the argument of `execute`; for one of several as `node[0]` or `node.keyword`.

    Use it as a context manager: `with InputNode() as value: dag = f.bind(value)`.
    """

    _is_input = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("input_type", None)
        if args or kwargs:
            raise ValueError("InputNode should not take any args or kwargs.")
        super().__init__((), {})
        self._was_entered = False
        self._keys: dict[int | str, None] = {}  # the positions and names that were asked for, in this order

    def __enter__(self) -> InputNode:
        self._was_entered = True
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def _run(self, execution: Execution) -> Any:
        if not self._was_entered:
            raise AssertionError(
                "InputNode is a singleton instance that should be only used in context manager: write "
                "`with InputNode() as value: ...`."
            )
        if len(execution.args) == 1 and not execution.kwargs:
            return execution.args[0]
        return DAGInputData(*execution.args, **execution.kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("bind", "remote") or name.startswith("_"):
            return self._refuse(name)
        return InputAttributeNode(self, name, is_attribute=True)

    def __getitem__(self, key: int | str) -> InputAttributeNode:
        if not isinstance(key, int | str):
            raise AssertionError(_wrong_key(key))
        return InputAttributeNode(self, key, is_attribute=False)


class InputAttributeNode(DAGNode):
    """One argument of several, or an attribute or item of the only one."""

    def __init__(self, input_node: InputNode, key: int | str, is_attribute: bool) -> None:
        super().__init__((input_node,), {})
        input_node._keys[key] = None
        self._input_node = input_node
        self._key = key
        self._is_attribute = is_attribute

    @property
    def key(self) -> int | str:
        """The index or name of the argument."""
        return self._key

    def _run(self, execution: Execution) -> Any:
        data = execution.results[self._input_node]
        if not isinstance(data, DAGInputData) and self._is_attribute:
            return getattr(data, str(self._key))
        return data[self._key]

    def _described(self) -> str:
        return repr(self._key)
