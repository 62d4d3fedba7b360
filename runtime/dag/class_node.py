"""`Class.bind(...)`, an actor that is not started yet, and calls of its methods and of those of live actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.dag.node import DAGNode, Execution


class ClassNode(DAGNode):
    """An actor; executing it starts one. Its attributes are its methods: `node.method.bind(...)`.

    Args:
        actor_class: an object with a method `remote`.

    Raises:
        ValueError: an argument comes from `InputNode`, which has no value before `execute`.
    """

    def __init__(
        self,
        actor_class: Any,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(args, kwargs, options)
        self._actor_class = actor_class
        self._name = name
        self._last_call: ClassMethodNode | None = None
        if any(node._is_input for node in self._all_nodes()):
            raise ValueError(
                "InputNode handles user dynamic input: it cannot be used in ClassNode constructor arguments, "
                "because the constructor runs before the input is known."
            )

    def _run(self, execution: Execution) -> Any:
        args, kwargs = self._filled(execution)
        return self._actor_class.remote(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("bind", "remote") or name.startswith("__"):
            return self._refuse(name)
        return UnboundMethod(self, name, {})

    def _described(self) -> str:
        return self._name


class UnboundMethod:
    """A method of a `ClassNode`: `.bind(...)` and `.options(...)`."""

    def __init__(self, owner: ClassNode, name: str, options: Mapping[str, Any]) -> None:
        self._owner = owner
        self._name = name
        self._options = options

    def bind(self, *args: Any, **kwargs: Any) -> ClassMethodNode:
        """A call of the method. The calls of one actor run in the order in which they were bound."""
        node = ClassMethodNode(self._owner, self._name, args, kwargs, self._options, self._owner._last_call)
        self._owner._last_call = node
        return node

    def options(self, **options: Any) -> UnboundMethod:
        """The same method with other options for its calls."""
        return UnboundMethod(self._owner, self._name, options)

    def __getattr__(self, name: str) -> Any:
        if name == "remote":
            raise AttributeError(
                ".remote() cannot be used on ClassMethodNodes: .bind() adds the call to the graph, .execute() makes it."
            )
        raise AttributeError(f"'UnboundMethod' object has no attribute '{name}'")


class ClassMethodNode(DAGNode):
    """A call of an actor's method.

    Args:
        owner: a `ClassNode`, or the handle of a live actor.
        previous: a call of the same `ClassNode` that must run first.
    """

    def __init__(
        self,
        owner: Any,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        previous: ClassMethodNode | None = None,
    ) -> None:
        super().__init__(args, kwargs, options)
        self._owner = owner
        self._is_owner_bound = isinstance(owner, DAGNode)
        self._method_name = method_name
        self._previous = previous

    def get_method_name(self) -> str:
        """The method's name."""
        return self._method_name

    def _needed(self) -> list[DAGNode]:
        before = [self._previous] if self._previous is not None else []
        owner = [self._owner] if self._is_owner_bound else []
        return [*before, *owner, *super()._needed()]

    def _run(self, execution: Execution) -> Any:
        args, kwargs = self._filled(execution)
        actor = execution.results[self._owner] if self._is_owner_bound else self._owner
        method = getattr(actor, self._method_name)
        if self._bound_options:
            method = method.options(**self._bound_options)
        return method.remote(*args, **kwargs)

    @property
    def is_class_method_call(self) -> bool:
        """True: this node is a call. See `ClassMethodOutput`."""
        return True

    def _described(self) -> str:
        return f"{self._method_name}()"


class ClassMethodOutput(ClassMethodNode):
    """One of several returns of a call."""

    def __init__(self, call: ClassMethodNode, index: int) -> None:
        super().__init__(call._owner, call._method_name, (), {}, {})
        self.class_method_call = call
        self.output_idx = index

    @property
    def is_class_method_call(self) -> bool:
        """False: this node is one return value of a call."""
        return False

    def _needed(self) -> list[DAGNode]:
        return [self.class_method_call]

    def _run(self, execution: Execution) -> Any:
        return execution.results[self.class_method_call][self.output_idx]

    def _described(self) -> str:
        return f"{self._method_name}()[{self.output_idx}]"


def bind_method(
    handle: Any,
    method_name: str,
    num_returns: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> ClassMethodNode | tuple[ClassMethodNode, ...]:
    """A call of a live actor's method; with several returns, a node for each of them."""
    node = ClassMethodNode(handle, method_name, args, kwargs, options)
    if num_returns > 1:
        return tuple(ClassMethodOutput(node, index) for index in range(num_returns))
    return node
