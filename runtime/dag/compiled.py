"""Compiled graphs: actor calls that are checked once and executed many times, over channels."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, NoReturn

from runtime import exceptions
from runtime._extension.actors import results
from runtime._extension.channels import (
    ChannelAddress,
    ChannelClosedError,
    ChannelError,
    PeerLostError,
    Pickled,
    Reader,
    Writer,
    create,
    open_reader,
    serialize,
)
from runtime.dag import loop
from runtime.dag.compile import DRIVER, INPUT, Plan, check
from runtime.dag.context import DAGContext
from runtime.dag.graph_checks import check_nodes, plan_of
from runtime.dag.input_node import DAGInputData
from runtime.dag.loop import Failed, part_of, taken
from runtime.dag.node import DAGNode
from runtime.dag.results import CompiledDAGFuture, CompiledDAGRef, Execution

MAX_SLOT_BYTES = 1 << 16
"""Room in a channel's slot, however large `_buffer_size_bytes` is: larger values are read in place anyway."""


class CompiledDAG:
    """Executes a graph of calls of live actors; made by `dag.experimental_compile()`.

    Each actor runs its part of the graph on a thread of its own, so ordinary calls of it go on. Values pass directly
    between the actors. Each result can be fetched once: by `get(ref)`, or with `enable_asyncio` by `await future`.

    A compiled graph can be passed on: each process that has it executes it for itself, through channels of its own.

    Args:
        enable_asyncio: `execute_async` instead of `execute`.
        _max_inflight_executions: executions whose results have not been fetched; more are refused. Without it as many
            as `DAGContext.max_inflight_executions` are on their way, and more wait in this process.
        _max_buffered_results: results that are kept because an earlier one was not fetched yet.
        _buffer_size_bytes: a hint; values of any size pass.
        _submit_timeout, _overlap_gpu_communication, _default_communicator: without effect.

    Raises:
        ValueError, NotImplementedError: the graph cannot be compiled; the message says why.
        RayActorError: an actor is dead.
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
        nodes = root._all_nodes()
        check_nodes(nodes)
        plan, handles = plan_of(root, nodes)
        self._lines = "\n".join(
            f"{node!r} <- {', '.join(map(repr, node._needed()))}" for node in nodes if node._needed()
        )
        self._set_up(
            plan,
            handles,
            enable_asyncio,
            _max_inflight_executions or context.max_inflight_executions,
            _max_inflight_executions is not None,
            _max_buffered_results or context.max_buffered_results,
            min(_buffer_size_bytes or context.buffer_size_bytes, MAX_SLOT_BYTES),
        )
        self._open()
        root.__dict__["_compiled"] = True

    def _set_up(
        self,
        plan: Plan,
        handles: Mapping[str, Any],
        enable_asyncio: bool,
        max_inflight: int,
        refuses: bool,
        max_buffered: int,
        slot_bytes: int,
    ) -> None:
        self._plan = plan
        self._handles = dict(handles)
        self._asyncio = enable_asyncio
        self._max_inflight = max_inflight
        self._refuses = refuses
        self._max_buffered = max_buffered
        self._slot_bytes = slot_bytes
        check(plan, max_inflight)
        context = DAGContext.get_current()
        self._get_timeout_s = context.get_timeout
        self._teardown_timeout_s = context.teardown_timeout
        self._id = uuid.uuid4().hex
        self._positional = 1 + max([-1, *(part for part in plan.parts if isinstance(part, int))])
        self._keywords = [part for part in plan.parts if isinstance(part, str)]
        self._lock = threading.RLock()  # guards all that follows; never held while waiting
        self._reading = threading.Lock()  # held by the thread that reads results
        self._awaiting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._executions = 0
        self._pending: deque[Execution] = deque()  # whose results have not come
        self._queue: deque[Pickled] = deque()  # the input of the last of them, for which there was no room
        self._unfetched = 0  # executions with results that may still be asked for
        self._buffered = 0  # those of them whose results have come
        self._row: dict[int, Any] = {}  # what has come of the next results
        self._error: ChannelError | None = None  # never raised itself: it would keep frames with values alive
        self.is_teardown = False
        self._has_ended = False  # whether it was torn down or has failed
        self._is_open = False

    # ------------------------------------------------------------ copies in other processes

    def __getstate__(self) -> tuple[Any, ...]:
        options = (self._asyncio, self._max_inflight, self._refuses, self._max_buffered, self._slot_bytes)
        return (self._lines, self._plan, self._handles, *options)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._lines, *rest = state
        self._set_up(*rest)  # its channels are made by the first execution

    # ------------------------------------------------------------ channels

    def _open(self) -> None:
        """Makes the channels and starts the actors' loops."""
        plan, capacity = self._plan, self._max_inflight
        self._input: Writer = create(
            "the input", plan.readers[INPUT], capacity, writer=DRIVER, slot_bytes=self._slot_bytes
        )
        self._outputs: dict[int, Reader] = {}
        addresses: dict[int, ChannelAddress] = {INPUT: self._input.address}
        calls = {actor: handle.__ray_call__ for actor, handle in self._handles.items()}
        try:
            prepared = [
                calls[actor].remote(
                    loop.prepare, self._id, actor, steps, dict(plan.readers), capacity, self._slot_bytes
                )
                for actor, steps in plan.schedules.items()
            ]
            for made in results(prepared):
                addresses.update(made)
            started = []
            for actor, steps in plan.schedules.items():
                needed = {one: addresses[one] for step in steps for one in step.takes}
                started.append(calls[actor].remote(loop.start, self._id, needed))
            for producer in plan.output_producers:
                self._outputs[producer] = open_reader(
                    addresses[producer], DRIVER, timeout_s=loop.OPEN_TIMEOUT_S
                )
            results(started)
        except BaseException:
            self._close()
            for call in calls.values():
                call.remote(loop.discard, self._id)
            raise
        self._is_open = True

    def _close(self) -> None:
        self._input.close()
        for reader in self._outputs.values():
            reader.close()

    def get_id(self) -> str:
        """Its id."""
        return self._id

    # ------------------------------------------------------------ execution

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Executes the graph once; returns a `CompiledDAGRef`, or a list of them for several outputs.

        Raises:
            ValueError: the arguments do not fit the graph, or it was compiled with `enable_asyncio`.
            RayCgraphCapacityExceeded: more than `_max_inflight_executions` results have not been fetched.
            ActorDiedError: an actor of the graph has died.
            RayChannelError: the graph was torn down.
        """
        if self._asyncio:
            raise ValueError("Use execute_async if enable_asyncio=True")
        execution = self._submit(args, kwargs)
        if not self._plan.has_list:
            return CompiledDAGRef(self, execution, 0, True)
        return [CompiledDAGRef(self, execution, position, False) for position in range(execution.unfetched)]

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """Like `execute`, with awaitable results; see `CompiledDAGFuture`."""
        if not self._asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        execution = self._submit(args, kwargs)
        if not self._plan.has_list:
            return CompiledDAGFuture(self, execution, 0, True)
        return [
            CompiledDAGFuture(self, execution, position, False) for position in range(execution.unfetched)
        ]

    def _submit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution:
        self._check_input(args, kwargs)
        value: Any
        if self._plan.parts:
            value = (args, kwargs)
        else:
            value = args[0] if len(args) == 1 and not kwargs else DAGInputData(*args, **kwargs)
        pickled = serialize(value)
        with self._lock:
            if self._has_ended:
                self._check_usable()
            if not self._is_open:
                self._open()
            if self._refuses and self._unfetched >= self._max_inflight:
                raise exceptions.RayCgraphCapacityExceeded(
                    f"The compiled graph can't have more than {self._max_inflight} in-flight executions, and you "
                    f"currently have {self._unfetched} in-flight executions. Fetch results first, or compile "
                    "with a larger `_max_inflight_executions`."
                )
            if len(self._pending) < self._max_inflight:  # there is room: no writer of the graph ever waits
                self._write(pickled)
            else:
                if not isinstance(pickled, bytes):  # the caller may change its arrays
                    pickled.buffers = [memoryview(bytes(buffer)) for buffer in pickled.buffers]
                self._queue.append(pickled)
            execution = Execution(self._executions, len(self._plan.outputs))
            self._pending.append(execution)
            self._executions += 1
            self._unfetched += 1
        return execution

    def _write(self, pickled: Pickled) -> None:
        try:
            self._input.write(pickled, self._get_timeout_s if self._get_timeout_s >= 0 else None)
        except ChannelError as error:
            self._break(error)

    def _check_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._plan.parts:
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

    def _check_usable(self) -> None:
        if self.is_teardown:
            raise exceptions.RayChannelError("Channel closed: the compiled graph was torn down.")
        if self._error is not None:
            raise self._named(copy.copy(self._error))

    def _break(self, error: ChannelError) -> NoReturn:
        """A channel has ended, so all of them end, with the same cause."""
        if self.is_teardown and isinstance(error, ChannelClosedError):
            raise exceptions.RayChannelError("Channel closed: the compiled graph was torn down.") from None
        with self._lock:
            if self._error is None:
                self._error = copy.copy(error)
                self._has_ended = True
                ends: list[Writer | Reader] = [self._input, *self._outputs.values()]
                for end in ends:
                    end.fail(error)
        raise self._named(copy.copy(self._error)) from error

    def _named(self, error: ChannelError) -> exceptions.RayError:
        if isinstance(error, PeerLostError) and error.peer in self._handles:
            reason = "its process ended while it ran a compiled graph"
            return exceptions.ActorDiedError(exceptions.ActorDeath(reason, error.peer))
        return error

    # ------------------------------------------------------------ results

    def result(self, execution: Execution, position: int, timeout: float | None) -> Any:
        """See `CompiledDAGRef.get`."""
        if execution.values is None:
            self._wait(execution, self._get_timeout_s if timeout is None else timeout)
        return self._fetch(execution, position)

    def _wait(self, execution: Execution, seconds: float) -> None:
        """Reads results until those of an execution have come."""
        deadline = None if seconds < 0 else time.monotonic() + seconds
        if not self._reading.acquire(timeout=-1 if deadline is None else seconds):
            raise exceptions.RayChannelTimeoutError("Another thread waits for an earlier result.")
        try:
            while execution.values is None:
                self._read_row(execution, deadline)
        finally:
            self._reading.release()

    def _read_row(self, execution: Execution, deadline: float | None) -> None:
        """Reads the results of the next execution. Holds `_reading`."""
        if self._has_ended or self._buffered >= self._max_buffered:
            self._check_read(execution)
        try:
            for producer, reader in self._outputs.items():
                if producer not in self._row:
                    self._row[producer] = taken(reader, deadline)
        except exceptions.RayChannelTimeoutError as error:
            raise exceptions.RayChannelTimeoutError(
                "The compiled graph gave no result in time. Where it may take longer, pass a timeout or set "
                f"RAY_CGRAPH_get_timeout; else find out where its actors hang. {error}"
            ) from None
        except ChannelError as error:
            self._break(error)
        self._came()

    async def result_async(self, execution: Execution, position: int) -> Any:
        """See `CompiledDAGFuture`."""
        running = asyncio.get_running_loop()
        if self._awaiting is None or self._awaiting[0] is not running:
            self._awaiting = running, asyncio.Lock()
        if execution.values is None:
            async with self._awaiting[1]:
                while execution.values is None:
                    await self._read_row_async(execution)
        return self._fetch(execution, position)

    async def _read_row_async(self, execution: Execution) -> None:
        self._check_read(execution)
        try:
            for producer, reader in self._outputs.items():
                if producer not in self._row:
                    try:
                        # No limit: the caller has `asyncio.timeout`.
                        self._row[producer] = await reader.take_async(None)
                    except ChannelError:
                        raise
                    except exceptions.RayError as error:
                        self._row[producer] = Failed(error)
        except ChannelError as error:
            self._break(error)
        self._came()

    def _check_read(self, execution: Execution) -> None:
        """Raises what keeps the next results from being read for the sake of those of `execution`."""
        self._check_usable()
        if self._buffered >= self._max_buffered and execution is not self._pending[0]:
            raise exceptions.RayCgraphCapacityExceeded(
                f"{self._buffered} results of the compiled graph wait to be fetched, which is the limit "
                "(`_max_buffered_results`): fetch results in the order of the executions."
            )

    def _came(self) -> None:
        """A row is complete: keeps what will be asked for, and lets the next execution in."""
        row, self._row = self._row, {}
        with self._lock:
            execution = self._pending.popleft()
            values = [row[use.producer] for use in self._plan.outputs]
            for position in execution.dropped:
                values[position] = None
            execution.values = values
            if execution.unfetched:
                self._buffered += 1
            if self._queue:
                self._write(self._queue.popleft())

    def _fetch(self, execution: Execution, position: int) -> Any:
        values = execution.values
        assert values is not None
        with self._lock:
            value, values[position] = values[position], None
            self._settled(execution)
        if value.__class__ is Failed:
            error = value.error
            raise error.as_instanceof_cause() if isinstance(error, exceptions.RayTaskError) else error
        use = self._plan.outputs[position]
        return value if use.part is None else part_of(value, use)

    def _settled(self, execution: Execution) -> None:
        """A result was fetched or dropped."""
        execution.unfetched -= 1
        if not execution.unfetched:
            self._unfetched -= 1
            if execution.values is not None:
                self._buffered -= 1

    def dropped(self, execution: Execution, position: int) -> None:
        """Called when a result can no longer be fetched."""
        with self._lock:
            if execution.values is None:
                execution.dropped += (position,)
            else:
                execution.values[position] = None
            self._settled(execution)

    # ------------------------------------------------------------ the end

    def teardown(self, kill_actors: bool = False) -> None:
        """Ends the compiled graph: executions that have begun are finished, results that have not come are lost.
        Its actors live on, unless `kill_actors` is set, and have nothing of it left. Idempotent.

        Waits for the actors up to `DAGContext.teardown_timeout` seconds; then they are told to stop after their call.
        """
        with self._lock:
            if self.is_teardown:
                return
            self.is_teardown = self._has_ended = True
            self._queue.clear()
        if self._is_open:
            self._input.close()
            if self._error is None and not kill_actors:
                seconds = self._teardown_timeout_s
                self._drain(None if seconds < 0 else time.monotonic() + seconds)
            self._close()
        if kill_actors:
            for handle in self._handles.values():
                handle._ray_kill(no_restart=True)

    def _drain(self, deadline: float | None) -> None:
        """Reads what comes until every actor has ended its part."""
        for reader in self._outputs.values():
            try:
                while True:
                    taken(reader, deadline)
            except ChannelError:
                pass  # it has ended, or has had its time

    def visualize(self, *_args: Any, **_kwargs: Any) -> str:
        """The graph as text: a line for each node with its inputs."""
        return self._lines
