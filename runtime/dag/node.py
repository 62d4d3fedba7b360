"""The base class of nodes: a call to make later, with other nodes among its arguments."""

from __future__ import annotations

import itertools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol


class Execution:
    """One execution of a graph: its input and the results of its nodes so far.

    Args:
        args, kwargs: the input.
    """

    __slots__ = ("args", "kwargs", "results")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.results: dict[DAGNode, Any] = {}


class Arguments:
    """The arguments of a call, looked through once for the nodes in them.

    Args:
        args, kwargs: as they were bound.
    """

    __slots__ = ("_args", "_kwargs", "_nested", "_nested_kwargs", "_nodes")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args = args
        self._kwargs = kwargs
        self._nodes = [(at, arg) for at, arg in enumerate(args) if isinstance(arg, DAGNode)]
        self._nested = [at for at, arg in enumerate(args) if not isinstance(arg, DAGNode) and nodes_in(arg)]
        self._nested_kwargs = [key for key, arg in kwargs.items() if nodes_in(arg)]

    def filled(self, results: Mapping[DAGNode, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments with the nodes' results in place of nodes, in containers too."""
        args: Sequence[Any] = self._args
        kwargs: Mapping[str, Any] = self._kwargs
        if self._nodes or self._nested:
            args = copied = list(args)
            for at, node in self._nodes:
                copied[at] = results[node]
            for at in self._nested:
                copied[at] = replace(copied[at], results.__getitem__)
        if self._nested_kwargs:
            kwargs = {
                **kwargs,
                **{key: replace(kwargs[key], results.__getitem__) for key in self._nested_kwargs},
            }
        return args, kwargs


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
        self._arguments: Arguments | None = None  # of the bound ones; made when it first runs
        self._order: list[DAGNode] | None = (
            None  # of the graph that ends here; made when it is first executed
        )
        self._last_execution: Execution | None = None

    def execute(self, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Executes the graph that ends in this node.

        Args:
            args, kwargs: the input, for `InputNode`.

        Returns:
            An `ObjectRef` for a call, a handle for an actor, a list for several outputs.
        """
        order = self._order
        if order is None:
            order = self._order = self._in_order()
        execution = Execution(args, kwargs)
        results = execution.results
        for node in order:
            results[node] = node._run(execution)
        self._last_execution = execution if _ray_cache_refs else None
        return results[self]

    def _in_order(self) -> list[DAGNode]:
        """The graph's nodes in the order of `bind`, in which the calls of an actor run. No node is bound before those
        that it needs."""
        nodes = self._all_nodes()
        if sum(node._is_input for node in nodes) > 1:
            raise AssertionError("Each DAG should only have one unique InputNode.")
        return sorted(nodes, key=_when_bound)

    def _filled(self, execution: Execution) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments, with results in place of nodes."""
        arguments = self._arguments
        if arguments is None:
            arguments = self._arguments = Arguments(self._bound_args, self._bound_kwargs)
        return arguments.filled(execution.results)

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
        """Makes the call. The nodes that it needs have run."""

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
