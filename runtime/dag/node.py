"""The base class of nodes: a call to make later, with other nodes among its arguments."""

from __future__ import annotations

import itertools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol


class Execution:
    """One execution of a graph: its input and the results of its nodes. A node that is used twice runs once."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.results: dict[DAGNode, Any] = {}

    def result_of(self, node: DAGNode) -> Any:
        """The result of a node, which runs now if it has not run yet."""
        if node not in self.results:
            self.results[node] = node._run(self)
        return self.results[node]

    def resolve(self, value: Any) -> Any:
        """The value with nodes replaced by their results, in containers too."""
        return replace(value, self.result_of)


_bound = itertools.count()


class Compiled(Protocol):
    """A graph that is compiled; see `CompiledDAG`."""

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Executes the graph once."""

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """Executes the graph once, with results to await."""

    def teardown(self, kill_actors: bool = False) -> None:
        """Ends it."""


class Compiler(Protocol):
    """Compiles the graph that ends in a node."""

    def __call__(self, root: DAGNode, *args: Any, **kwargs: Any) -> Compiled: ...


class DAGNode(ABC):
    """One node. Nodes are equal only to themselves.

    Args:
        args, kwargs: arguments of the call. They may contain nodes, also inside lists, tuples, sets and dicts.
        options: options of the call.
    """

    def __init__(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> None:
        self._bound_args = tuple(args)
        self._bound_kwargs = dict(kwargs)
        self._bound_options = dict(options or {})
        self._bound_at = next(_bound)
        self._stable_uuid = uuid.uuid4().hex
        self._last_execution: Execution | None = None

    def execute(self, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Executes the graph that ends in this node.

        Args:
            args, kwargs: the input, for `InputNode`.

        Returns:
            An `ObjectRef` for a call, a handle for an actor, a list for several outputs.
        """
        nodes = self._all_nodes()
        if sum(node._is_input for node in nodes) > 1:
            raise AssertionError("Each DAG should only have one unique InputNode.")
        execution = Execution(args, kwargs)
        for node in sorted(nodes, key=_when_bound):  # the calls of an actor run in the order of `bind`
            execution.result_of(node)
        result = execution.result_of(self)
        self._last_execution = execution if _ray_cache_refs else None
        return result

    async def get_object_refs_from_last_execute(self) -> dict[str, Any]:
        """Results by the nodes' ids, of the last `execute(_ray_cache_refs=True)`."""
        last = self._last_execution
        return {} if last is None else {node.get_stable_uuid(): ref for node, ref in last.results.items()}

    def experimental_compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Compiles this graph of actor calls for many executions; see `CompiledDAG`.

        Raises:
            ValueError: the graph is already compiled.
        """
        return _compiler(self, *args, **kwargs)

    def with_tensor_transport(
        self, transport: Any = "auto", device: str = "default", **_more: Any
    ) -> DAGNode:
        """Accepted for programs for Ray: tensors of the result travel through shared memory in any case.

        Raises:
            ValueError: `transport` names a direct transport between accelerators, which does not exist here.
        """
        if transport in ("nccl", "accelerator"):
            raise ValueError(
                f"with_tensor_transport(transport={transport!r}): results travel through shared memory and the "
                "network here, not between accelerators. Leave it out."
            )
        return self

    # ------------------------------------------------------------ what it consists of

    def get_args(self) -> tuple[Any, ...]:
        """The positional arguments, nodes included."""
        return self._bound_args

    def get_kwargs(self) -> dict[str, Any]:
        """The keyword arguments, nodes included."""
        return self._bound_kwargs.copy()

    def get_options(self) -> dict[str, Any]:
        """The options."""
        return self._bound_options.copy()

    def get_stable_uuid(self) -> str:
        """An id of this node."""
        return self._stable_uuid

    def apply_recursive(self, fn: Callable[[DAGNode], Any]) -> Any:
        """Calls `fn` once for every node that this one depends on, and last for this one; returns that last result."""
        result = None
        for node in self._all_nodes():
            result = fn(node)
        return result

    _is_input = False

    def _needed(self) -> list[DAGNode]:
        """The nodes in its arguments."""
        return [*nodes_in(self._bound_args), *nodes_in(self._bound_kwargs)]

    def _all_nodes(self) -> list[DAGNode]:
        """This node and all that it depends on, in topological order."""
        found: dict[DAGNode, None] = {}
        stack: list[tuple[DAGNode, Iterator[DAGNode]]] = [(self, iter(self._needed()))]
        entered = {self}
        while stack:
            node, needed = stack[-1]
            for other in needed:
                if other not in entered:
                    entered.add(other)
                    stack.append((other, iter(other._needed())))
                    break
            else:
                found[node] = None
                stack.pop()
        return list(found)

    @abstractmethod
    def _run(self, execution: Execution) -> Any:
        """Makes the call."""

    def __getattr__(self, name: str) -> Any:
        return self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        if name == "bind":
            raise AttributeError(f".bind() cannot be used again on {type(self)} ")
        if name == "remote":
            raise AttributeError(
                f".remote() cannot be used on {type(self)}: .execute() runs it, and all that it needs."
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._described()})"

    def _described(self) -> str:
        return self._stable_uuid[:8]


_compiler: Compiler


def compile_with(compiler: Compiler) -> None:
    """Says what `DAGNode.experimental_compile` calls. The compiler knows all kinds of nodes, and so cannot be known
    here."""
    global _compiler
    _compiler = compiler


def _when_bound(node: DAGNode) -> int:
    return node._bound_at


def nodes_in(value: Any) -> list[DAGNode]:
    """The nodes in a value: the value itself, or nodes inside lists, tuples, sets and dicts."""
    if isinstance(value, DAGNode):
        return [value]
    if isinstance(value, list | tuple | set | frozenset):
        return [node for part in value for node in nodes_in(part)]
    if isinstance(value, dict):
        return [node for part in value.values() for node in nodes_in(part)]
    return []


def replace(value: Any, result_of: Callable[[DAGNode], Any]) -> Any:
    """A copy of `value` with `result_of(node)` in place of each node; `value` itself if it contains no node."""
    if isinstance(value, DAGNode):
        return result_of(value)
    if not nodes_in(value):
        return value
    if isinstance(value, dict):
        return {key: replace(part, result_of) for key, part in value.items()}
    parts = [replace(part, result_of) for part in value]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts)
    return type(value)(parts)
