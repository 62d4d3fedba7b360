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
    Reader,
    Serialized,
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
from runtime.dag.results import CompiledDAGFuture, CompiledDAGRef

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
        self._submitting = threading.RLock()  # guards what is on its way in; never held while waiting
        self._reading = threading.Lock()  # held by the thread that reads results
        self._awaiting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._executions = 0
        self._queue: deque[Serialized] = deque()
        self._submitted = 0
        self._read = 0
        self._row: dict[int, Any] = {}
        self._results: dict[int, dict[int, Any]] = {}
        self._unfetched: dict[int, set[int]] = {}
        self._error: ChannelError | None = None  # never raised itself: it would keep frames with values alive
        self.is_teardown = False
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
        index = self._submit(args, kwargs)
        if not self._plan.has_list:
            return CompiledDAGRef(self, index, 0, True)
        return [CompiledDAGRef(self, index, position, False) for position in range(len(self._plan.outputs))]

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """Like `execute`, with awaitable results; see `CompiledDAGFuture`."""
        if not self._asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        index = self._submit(args, kwargs)
        if not self._plan.has_list:
            return CompiledDAGFuture(self, index, 0, True)
        return [
            CompiledDAGFuture(self, index, position, False) for position in range(len(self._plan.outputs))
        ]

    def _submit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self._check_input(args, kwargs)
        value: Any
        if self._plan.parts:
            value = (args, kwargs)
        else:
            value = args[0] if len(args) == 1 and not kwargs else DAGInputData(*args, **kwargs)
        serialized = serialize(value)
        with self._submitting:
            self._check_usable()
            if not self._is_open:
                self._open()
            if self._refuses and len(self._unfetched) >= self._max_inflight:
                raise exceptions.RayCgraphCapacityExceeded(
                    f"The compiled graph can't have more than {self._max_inflight} in-flight executions, and you "
                    f"currently have {len(self._unfetched)} in-flight executions. Fetch results first, or compile "
                    "with a larger `_max_inflight_executions`."
                )
            index = self._executions
            self._executions += 1
            self._unfetched[index] = set(range(len(self._plan.outputs)))
            if self._queue or self._submitted - self._read >= self._max_inflight:
                # The caller may change its arrays.
                serialized.buffers = [memoryview(bytes(buffer)) for buffer in serialized.buffers]
                self._queue.append(serialized)
            else:
                self._write(serialized)
        return index

    def _write(self, serialized: Serialized) -> None:
        """There is room: no more executions are on their way than the channels hold."""
        try:
            self._input.write(serialized, self._get_timeout_s if self._get_timeout_s >= 0 else None)
        except ChannelError as error:
            self._break(error)
        self._submitted += 1

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
        with self._submitting:
            if self._error is None:
                self._error = copy.copy(error)
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

    def result(self, index: int, position: int, timeout: float | None) -> Any:
        """See `CompiledDAGRef.get`."""
        seconds = self._get_timeout_s if timeout is None else timeout
        deadline = None if seconds < 0 else time.monotonic() + seconds
        if index >= self._read:
            if not self._reading.acquire(timeout=-1 if deadline is None else max(0.0, seconds)):
                raise exceptions.RayChannelTimeoutError("Another thread waits for an earlier result.")
            try:
                while index >= self._read:
                    self._read_row(index, deadline)
            finally:
                self._reading.release()
        return self._fetch(index, position)

    def _read_row(self, index: int, deadline: float | None) -> None:
        """Reads the results of the next execution. Holds `_reading`."""
        self._check_usable()
        self._check_buffered(index)
        try:
            for producer in self._plan.output_producers:
                if producer not in self._row:
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    self._row[producer] = taken(self._outputs[producer], left)
        except exceptions.RayChannelTimeoutError as error:
            raise exceptions.RayChannelTimeoutError(
                "The compiled graph gave no result in time. Where it may take longer, pass a timeout or set "
                f"RAY_CGRAPH_get_timeout; else find out where its actors hang. {error}"
            ) from None
        except ChannelError as error:
            self._break(error)
        self._came()

    async def result_async(self, index: int, position: int) -> Any:
        """See `CompiledDAGFuture`."""
        running = asyncio.get_running_loop()
        if self._awaiting is None or self._awaiting[0] is not running:
            self._awaiting = running, asyncio.Lock()
        if index >= self._read:
            async with self._awaiting[1]:
                while index >= self._read:
                    await self._read_row_async(index)
        return self._fetch(index, position)

    async def _read_row_async(self, index: int) -> None:
        self._check_usable()
        self._check_buffered(index)
        try:
            for producer in self._plan.output_producers:
                if producer not in self._row:
                    try:
                        # No limit: the caller has `asyncio.timeout`.
                        self._row[producer] = await self._outputs[producer].take_async(None)
                    except ChannelError:
                        raise
                    except exceptions.RayError as error:
                        self._row[producer] = Failed(error)
        except ChannelError as error:
            self._break(error)
        self._came()

    def _check_buffered(self, index: int) -> None:
        if len(self._results) >= self._max_buffered and index > self._read:
            raise exceptions.RayCgraphCapacityExceeded(
                f"{len(self._results)} results of the compiled graph wait to be fetched, which is the limit "
                "(`_max_buffered_results`): fetch results in the order of the executions."
            )

    def _came(self) -> None:
        """A row is complete: keeps what will be asked for, and lets the next execution in."""
        row, self._row = self._row, {}
        with self._submitting:
            wanted = self._unfetched.get(self._read, ())
            values = {position: row[self._plan.outputs[position].producer] for position in wanted}
            if values:
                self._results[self._read] = values
            self._read += 1
            while self._queue and self._submitted - self._read < self._max_inflight:
                self._write(self._queue.popleft())

    def _fetch(self, index: int, position: int) -> Any:
        with self._submitting:
            value = self._results[index].pop(position)
            self._drop(index, position)
            if not self._results[index]:
                del self._results[index]
        if value.__class__ is Failed:
            error = value.error
            raise error.as_instanceof_cause() if isinstance(error, exceptions.RayTaskError) else error
        return part_of(value, self._plan.outputs[position])

    def _drop(self, index: int, position: int) -> None:
        left = self._unfetched.get(index)
        if left is not None:
            left.discard(position)
            if not left:
                del self._unfetched[index]

    def dropped(self, index: int, position: int) -> None:
        """Called when a result can no longer be fetched."""
        with self._submitting:
            self._drop(index, position)
            values = self._results.get(index)
            if values is not None:
                values.pop(position, None)
                if not values:
                    del self._results[index]

    # ------------------------------------------------------------ the end

    def teardown(self, kill_actors: bool = False) -> None:
        """Ends the compiled graph: executions that have begun are finished, results that were not fetched are lost.
        Its actors live on, unless `kill_actors` is set, and have nothing of it left. Idempotent.

        Waits for the actors up to `DAGContext.teardown_timeout` seconds; then they are told to stop after their call.
        """
        with self._submitting:
            if self.is_teardown:
                return
            self.is_teardown = True
            self._queue.clear()
        if self._is_open:
            self._input.close()
            if self._error is None and not kill_actors:
                seconds = self._teardown_timeout_s
                self._drain(None if seconds < 0 else time.monotonic() + seconds)
            self._close()
        self._results.clear()
        if kill_actors:
            for handle in self._handles.values():
                handle._ray_kill(no_restart=True)

    def _drain(self, deadline: float | None) -> None:
        """Reads what comes until every actor has ended its part."""
        for reader in self._outputs.values():
            try:
                while True:
                    taken(reader, None if deadline is None else max(0.0, deadline - time.monotonic()))
            except ChannelError:
                pass  # it has ended, or has had its time

    def visualize(self, *_args: Any, **_kwargs: Any) -> str:
        """The graph as text: a line for each node with its inputs."""
        return self._lines
