"""Compiled graphs: actor calls that are checked once and executed many times."""

from __future__ import annotations

import asyncio
import time
import uuid
import weakref
from collections.abc import Generator
from typing import Any, NoReturn

from runtime import exceptions
from runtime._process.core_worker import current
from runtime.dag.class_node import ClassMethodNode, ClassNode
from runtime.dag.context import DAGContext
from runtime.dag.input_node import DAGInputData, InputAttributeNode, InputNode
from runtime.dag.node import DAGNode, Execution
from runtime.dag.output_node import MultiOutputNode


class CompiledDAG:
    """Executes a graph of calls of live actors; made by `dag.experimental_compile()`.

    Each execution makes one ordinary call per node, in the order of binding. Values do not pass through the driver.
    Each result can be fetched once: by `get(ref)`, or with `enable_asyncio` by `await future`.

    Raises:
        ValueError, NotImplementedError: the graph cannot be compiled; the message says why.
    """

    def __init__(
        self,
        root: DAGNode,
        _submit_timeout: float | None = None,
        _buffer_size_bytes: int | None = None,
        enable_asyncio: bool = False,
        _max_inflight_executions: int | None = None,
        _max_buffered_results: int | None = None,
        _overlap_gpu_communication: bool | None = None,
        _default_communicator: Any = "create",
    ) -> None:
        if root.__dict__.get("_compiled"):
            raise ValueError(
                "It is not allowed to call `experimental_compile` on the same DAG object multiple times, even "
                "after a teardown: execute the result of the first call again, or bind another graph."
            )
        if _buffer_size_bytes is not None and (
            not isinstance(_buffer_size_bytes, int) or _buffer_size_bytes <= 0
        ):
            raise ValueError(f"`buffer_size_bytes` must be a positive integer, found {_buffer_size_bytes}")
        context = DAGContext.get_current()
        self._root = root
        self._id = uuid.uuid4().hex
        self._asyncio = enable_asyncio
        self._get_timeout_s = context.get_timeout
        self._max_inflight = _max_inflight_executions or context.max_inflight_executions
        self._nodes = root._all_nodes()
        self._check_nodes()
        self._input = next(node for node in self._nodes if isinstance(node, InputNode))
        attributes = [node.key for node in self._nodes if isinstance(node, InputAttributeNode)]
        self._takes_whole_input = not attributes
        self._positional = 1 + max([-1, *(key for key in attributes if isinstance(key, int))])
        self._keywords = [key for key in attributes if isinstance(key, str)]
        self._executions = 0
        self._fetched = -1
        self._inflight: set[int] = set()
        self.is_teardown = False
        root.__dict__["_compiled"] = True

    def _check_nodes(self) -> None:
        if sum(isinstance(node, InputNode) for node in self._nodes) != 1:
            raise NotImplementedError(
                "A graph is compiled for its input: it needs exactly one InputNode, but has "
                f"{sum(isinstance(node, InputNode) for node in self._nodes)}."
            )
        for node in self._nodes:
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
                raise ValueError(
                    "Compiled DAG currently does not support binding to other DAG nodes as kwargs"
                )

    def get_id(self) -> str:
        """Its id."""
        return self._id

    # ------------------------------------------------------------ execution

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Executes the graph once; returns a `CompiledDAGRef`, or a list of them for several outputs.

        Raises:
            ValueError: the arguments do not fit the graph, or it was compiled with `enable_asyncio`.
            RayCgraphCapacityExceeded: too many results have not been fetched.
            RayChannelError: the graph was torn down.
        """
        if self._asyncio:
            raise ValueError("Use execute_async if enable_asyncio=True")
        refs, index = self._start(args, kwargs)
        made = [CompiledDAGRef(self, index, ref, position) for position, ref in enumerate(refs)]
        return made if isinstance(self._root, MultiOutputNode) else made[0]

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """Like `execute`, with awaitable results; see `CompiledDAGFuture`."""
        if not self._asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        refs, index = self._start(args, kwargs)
        made = [CompiledDAGFuture(self, index, ref) for ref in refs]
        return made if isinstance(self._root, MultiOutputNode) else made[0]

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], int]:
        if self.is_teardown:
            raise exceptions.RayChannelError("Channel closed: the compiled graph was torn down.")
        self._check_input(args, kwargs)
        if len(self._inflight) >= self._max_inflight:
            raise exceptions.RayCgraphCapacityExceeded(
                f"The compiled graph can't have more than {self._max_inflight} in-flight executions, and you "
                f"currently have {len(self._inflight)} in-flight executions. Fetch results first, or compile "
                "with a larger `_max_inflight_executions`."
            )
        execution = Execution(args, kwargs)
        if not self._takes_whole_input:
            execution.results[self._input] = DAGInputData(*args, **kwargs)
        for node in self._nodes:
            result = execution.result_of(node)
        index = self._executions
        self._executions += 1
        self._inflight.add(index)
        return (result if isinstance(self._root, MultiOutputNode) else [result]), index

    def _check_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._takes_whole_input:
            if not args and not kwargs:
                raise ValueError(
                    "dag.execute() or dag.execute_async() must be called with 1 positional args, got 0"
                )
            return
        if len(args) != self._positional:
            raise ValueError(
                f"dag.execute() or dag.execute_async() must be called with {self._positional} positional args, got "
                f"{len(args)}"
            )
        for keyword in self._keywords:
            if keyword not in kwargs:
                raise ValueError(
                    f"dag.execute() or dag.execute_async() must be called with kwarg `{keyword}`"
                )

    def fetched(self, index: int) -> None:
        """Called when a result of an execution was fetched; earlier results are then ready, too."""
        self._fetched = max(self._fetched, index)
        self._inflight = {one for one in self._inflight if one > self._fetched}

    def dropped(self, index: int) -> None:
        """Called when the results of an execution can no longer be fetched."""
        self._inflight.discard(index)

    def deadline_of(self, timeout: float | None) -> float | None:
        """The monotonic time at which waiting ends; None for a negative `timeout`: no limit."""
        seconds = self._get_timeout_s if timeout is None else timeout
        return None if seconds < 0 else time.monotonic() + seconds

    # ------------------------------------------------------------ the end

    def teardown(self, kill_actors: bool = False) -> None:
        """Ends the compiled graph; its actors live on unless `kill_actors` is set. Idempotent."""
        if self.is_teardown:
            return
        self.is_teardown = True
        if kill_actors:
            for handle in {node._owner for node in self._nodes if isinstance(node, ClassMethodNode)}:
                handle._ray_kill(no_restart=True)

    def visualize(self, *_args: Any, **_kwargs: Any) -> str:
        """The graph as text: a line for each node with its inputs."""
        lines = [
            f"{node!r} <- {', '.join(map(repr, node._needed()))}" for node in self._nodes if node._needed()
        ]
        return "\n".join(lines)


class CompiledDAGRef:
    """One result of `CompiledDAG.execute`: `get` it, once. It cannot be copied, pickled or passed on."""

    def __init__(self, dag: CompiledDAG, index: int, ref: Any, position: int) -> None:
        self._dag = dag
        self._index = index
        self._ref = ref
        self._position = position
        self._was_fetched = False
        self._finalizer = weakref.finalize(self, dag.dropped, index)
        self._finalizer.atexit = False

    def get(self, timeout: float | None = None) -> Any:
        """The value.

        Args:
            timeout: seconds to wait; None: `DAGContext.get_timeout`; -1: no limit.

        Raises:
            ValueError: it was fetched before.
            RayChannelTimeoutError: it was not ready in time.
        """
        if self._was_fetched:
            raise ValueError(
                "ray.get() can only be called once on a CompiledDAGRef, and it was already called."
            )
        self._was_fetched = True
        if self._dag.is_teardown:
            raise exceptions.RayChannelError("Channel closed: the compiled graph was torn down.")
        deadline = self._dag.deadline_of(timeout)
        ref, self._ref = self._ref, None
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        core = current()
        if not core.waiter.wait([ref], 1, left, fetch=True):
            raise exceptions.RayChannelTimeoutError(
                "The compiled graph gave no result in time. Where it may take longer, pass a timeout or set "
                "RAY_CGRAPH_get_timeout; else find out where its actors hang."
            )
        self._dag.fetched(self._index)
        return core.reader.get([ref], None)[0]

    _compiled_result = get  # what `runtime.get` calls

    def __copy__(self) -> NoReturn:
        raise ValueError("CompiledDAGRef cannot be copied.")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        raise ValueError("CompiledDAGRef cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError("CompiledDAGRef cannot be pickled.")

    def __str__(self) -> str:
        return f"CompiledDAGRef({self._dag.get_id()}, execution_index={self._index}, channel_index={self._position})"


class CompiledDAGFuture:
    """One result of `CompiledDAG.execute_async`: `await` it, once."""

    def __init__(self, dag: CompiledDAG, index: int, ref: Any) -> None:
        self._dag = dag
        self._index = index
        self._ref = ref
        self._finalizer = weakref.finalize(self, dag.dropped, index)
        self._finalizer.atexit = False

    def __await__(self) -> Generator[Any, None, Any]:
        ref, self._ref = self._ref, None
        if ref is None:
            raise ValueError(
                "CompiledDAGFuture can only be awaited upon once: its value was already returned."
            )
        try:
            return (yield from ref.__await__())
        except asyncio.CancelledError:
            raise
        finally:
            self._dag.fetched(self._index)

    def __copy__(self) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be copied.")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be pickled.")
