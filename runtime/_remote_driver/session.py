"""What one program asks of its driver process."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import cloudpickle  # noqa: F401 - what the program pickled needs it
import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._owner.actor_submitter import handle_object_id
from runtime._owner.errors import encode_address
from runtime._owner.functions import Function
from runtime._ownership.calls import Actor
from runtime._ownership.records import INLINE, INLINE_ERROR, PackedArguments, hold_all
from runtime._ownership.tasks import TaskOptions
from runtime._process import core_worker
from runtime._process.core_worker import Core
from runtime._process.driver import Driver
from runtime._wire import serialization
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorReply, WorkerAddress
from runtime._wire.messages.node import Register
from runtime._wire.messages.worker import Value
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from . import messages
from .outlet import Outlet

log = logging.getLogger("runtime._remote_driver")
_MAX_WAITING = 4096
"""How many requests may wait at a time, each on a thread."""


class SuppliedIds(ids.TaskIds):
    """The ids of what a program submits are the program's: it has given them to its user already."""

    __slots__ = ("_supplied",)

    def __init__(self, job_id: bytes) -> None:
        super().__init__(job_id)
        self._supplied = threading.local()

    def supply(self, made: bytes) -> None:
        """The next id that this thread makes is `made`."""
        self._supplied.next = made

    def _take(self) -> bytes | None:
        made: bytes | None = getattr(self._supplied, "next", None)
        self._supplied.next = None
        return made

    def task(self) -> bytes:
        """See `TaskIds.task`."""
        return self._take() or super().task()

    def call(self, actor_id: bytes) -> bytes:
        """See `TaskIds.call`."""
        return self._take() or super().call(actor_id)

    def put(self) -> bytes:
        """See `TaskIds.put`."""
        return self._take() or super().put()


class Reading:
    """A generator that the program reads.

    The item that was taken last is kept: if the program broke off its wait for the answer, it asks for it again.
    """

    def __init__(self, generator: ObjectRefGenerator) -> None:
        self._generator = generator
        self._turn = threading.Lock()  # of the one thread that takes
        self._taken = 0
        self._last: ObjectRef | None = None

    def is_there(self, position: int) -> bool:
        """Whether `take` need not wait."""
        return not self._turn.locked() and (position < self._taken or bool(self._generator._stream.items))

    def take(self, position: int, timeout_s: float | None) -> ObjectRef | None:
        """The item at a position; None at the end. Raises TimeoutError."""
        if not self._turn.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise exceptions.GetTimeoutError(f"The next item did not arrive within {timeout_s:g} s.")
        try:
            if position == self._taken:
                self._last = self._generator._stream.next(timeout_s)
                if self._last is not None:
                    self._taken += 1
            return self._last
        finally:
            self._turn.release()

    def peek(self, position: int) -> ObjectRef:
        """The item at a position, which may not be ready."""
        last = self._last
        return last if last is not None and position < self._taken else self._generator._peek()

    def state(self, position: int) -> tuple[int, bool]:
        """See `StreamState`. It has not ended while somebody takes an item."""
        stream = self._generator._stream
        is_ended = stream.ended and not self._turn.locked()
        return self._taken - position + len(stream.items), is_ended


class Session:
    """What one program has asked for.

    Args:
        on_core: told of the core, when there is one.
    """

    def __init__(self, agent_path: str, outlet: Outlet, on_core: Callable[[Core], None]) -> None:
        self._on_core = on_core
        self._agent_path = agent_path
        self._outlet = outlet
        self._waiting = ThreadPoolExecutor(_MAX_WAITING, thread_name_prefix="waits")
        self._core_or_none: Core | None = None
        self._refs: dict[bytes, list[Any]] = {}  # id -> [reference, how often the program was told of it]
        self._refs_lock = threading.RLock()
        self._pools: dict[int, tuple[Any, Function, TaskOptions]] = {}
        self._undefined: dict[
            int, tuple[Exception, int]
        ] = {}  # pools that failed, and how many results tasks have
        self._actors: dict[bytes, Actor] = {}
        self._streams: dict[bytes, Reading] = {}
        self._uploads: dict[bytes, bytearray] = {}
        self._storing: dict[bytes, bool] = {}  # uploads on their way to the store -> whether they are wanted
        self._blocks: dict[bytes, memoryview] = {}  # values that are being fetched
        self.is_over = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Start: self._start,
            messages.Define: self._define,
            messages.Undefine: self._undefine,
            messages.Submit: self._submit,
            messages.Create: self._create,
            messages.Call: self._call,
            messages.Put: self._put,
            messages.Upload: self._upload,
            messages.PutUploaded: partial(self._later, self._put_uploaded),
            messages.DropUpload: self._drop_upload,
            messages.Own: self._own,
            messages.Watch: self._watch,
            messages.Fetch: self._fetch,
            messages.Next: self._next,
            messages.StreamState: self._stream_state,
            messages.DropStream: self._drop_stream,
            messages.Release: self._release,
            messages.Ask: self._ask,
            messages.Kill: partial(self._later, self._kill),
            messages.Cancel: self._cancel,
            messages.Barrier: self._barrier,
            messages.Leave: self._leave,
        }

    @property
    def _core(self) -> Core:
        if self._core_or_none is None:
            raise exceptions.RaySystemError("The session has not been started.")
        return self._core_or_none

    def handle(self, message: messages.AnyMessage) -> None:
        """Does what a message asks. Whatever goes wrong is told to the program."""
        try:
            self._handlers[type(message)](message)
        except Exception as error:
            request = getattr(message, "request", 0)
            if request and not isinstance(message, messages.Define):  # whose request is for resources
                self._failed(request, error)
            else:
                log.exception("%s failed", type(message).__name__)

    def close(self) -> None:
        """Leaves the cluster."""
        core, self._core_or_none = self._core_or_none, None
        if core is not None:
            core.history.report()  # while this is the current process: errors are rebuilt
            core_worker.set_current(None)
            core.close()

    # ------------------------------------------------------------ answers

    def _answer(self, request: int, result: Any) -> None:
        if request:
            self._outlet.send(messages.Answer(request, msgspec.Raw(msgspec.msgpack.encode(result))))

    def _failed(self, request: int, error: BaseException) -> None:
        self._outlet.send(messages.Failed(request, pickled(error)))

    def _later(self, work: Callable[[Any], Any], message: Any) -> None:
        """Answers with what `work` returns, which may wait."""

        def run() -> None:
            try:
                self._answer(message.request, work(message))
            except BaseException as error:
                self._failed(message.request, error)

        self._waiting.submit(run)

    # ------------------------------------------------------------ the session

    def _start(self, message: messages.Start) -> None:
        register = Register(
            True,
            WorkerAddress(b"", b"", ""),
            os.getpid(),
            namespace=message.namespace,
            entrypoint=message.entrypoint,
            job_config=message.job_config,
        )
        core = Driver(self._agent_path, register, SuppliedIds)
        core_worker.set_current(core)
        core.serve(lambda batch: self._outlet.send(messages.Logs(batch)))
        lost = core.agent.on_close

        def agent_lost(connection: Any) -> None:
            # First: the program must not go on in vain when it sees the errors that follow.
            gone = exceptions.RaySystemError(
                "The node agent of the cluster's head died or was stopped: the head is gone. Bring the cluster up "
                "again (clusterctl up), connect again (shutdown() and init()), and rerun the program."
            )
            self._outlet.send(messages.Ended(pickled(gone)))
            if lost is not None:
                lost(connection)

        core.agent.on_close = agent_lost
        self._core_or_none = core
        self._on_core(core)
        session = msgspec.structs.replace(core.session, secret=b"")  # the program has it
        self._answer(message.request, messages.Started(session, core.address, self._agent_path))

    def _barrier(self, message: messages.Barrier) -> None:
        self._core.pump.poll_once()
        self._answer(message.request, None)

    def _leave(self, message: messages.Leave) -> None:
        self.is_over = True
        self._answer(message.request, None)

    def _ask(self, message: messages.Ask) -> None:
        request = codec.decode(message.frame)
        if not message.request:
            self._core.agent.send(request)
            return

        def work(asked: messages.Ask) -> bytes:
            reply = self._core.call_agent(cast(Any, request), asked.timeout_s)
            return codec.encode(reply)

        self._later(work, message)

    # ------------------------------------------------------------ references

    def _count(self, ref: ObjectRef) -> bytes:
        """The program is told of this object once more."""
        with self._refs_lock:
            known = self._refs.get(ref.binary())
            if known is None:
                self._refs[ref.binary()] = [ref, 1]
            else:
                known[1] += 1
        return ref.binary()

    def _ref(self, object_id: bytes) -> ObjectRef:
        known = self._refs.get(object_id)
        return known[0] if known is not None else ObjectRef(object_id)

    def _entries(self, object_ids: Sequence[bytes]) -> list[Any]:
        return [self._ref(object_id)._entry for object_id in object_ids]

    def _release(self, message: messages.Release) -> None:
        with self._refs_lock:
            for object_id, count in zip(message.object_ids, message.counts, strict=True):
                known = self._refs.get(object_id)
                if known is None:
                    continue
                known[1] -= count
                if known[1] <= 0:
                    del self._refs[object_id]
                    self._blocks.pop(object_id, None)  # of a fetch that was broken off
                    if object_id.startswith(ids.CREATION_PREFIX):
                        self._actors.pop(ids.actor_id_of(object_id[: ids.TASK_BYTES]), None)
        self._core.drain()

    # ------------------------------------------------------------ values

    def _own(self, message: messages.Own) -> None:
        core = self._core
        with core.lock:
            ref = core.objects.new_ref(core.objects.own(message.object_id))
        self._count(ref)

    def _put(self, message: messages.Put) -> None:
        core = self._core
        nested = self._entries(message.nested)
        known = self._refs.get(message.object_id)
        if known is None:
            serialized = serialization.Serialized(
                message.data, [memoryview(buffer) for buffer in message.buffers], nested
            )
            core.ids.supply(message.object_id)  # type: ignore[attr-defined]
            self._count(core.objects.put_serialized(serialized))
            return
        kind = INLINE_ERROR if message.is_error else INLINE
        with core.lock:
            entry = known[0]._entry
            value = Value(kind, message.data, message.buffers, core.objects.nested_of(nested))
            core.objects.table.contain(entry, nested)
            core.objects.set_value(entry, value)

    def _upload(self, message: messages.Upload) -> None:
        target = self._uploads.get(message.object_id)
        if target is None:
            target = self._uploads[message.object_id] = bytearray(message.total_bytes)
        target[message.offset : message.offset + len(message.data)] = message.data

    def _put_uploaded(self, message: messages.PutUploaded) -> int:
        object_id = message.object_id
        with self._refs_lock:
            if object_id not in self._uploads:
                raise exceptions.RaySystemError("The put was broken off.")
            whole = memoryview(self._uploads.pop(object_id))
            self._storing[object_id] = True
        try:
            return self._store_upload(message, whole)
        finally:
            with self._refs_lock:
                self._storing.pop(object_id, None)

    def _store_upload(self, message: messages.PutUploaded, whole: memoryview) -> int:
        core = self._core
        at = message.data_bytes
        buffers = []
        for size in message.buffer_bytes:
            buffers.append(whole[at : at + size])
            at += size
        serialized = serialization.Serialized(
            bytes(whole[: message.data_bytes]), buffers, self._entries(message.nested)
        )
        core.ids.supply(message.object_id)  # type: ignore[attr-defined]
        ref = core.objects.put_serialized(serialized)
        with self._refs_lock:
            if self._storing.pop(message.object_id):
                self._count(ref)
        value = ref._entry.value
        assert value is not None
        return value.size_bytes

    def _drop_upload(self, message: messages.DropUpload) -> None:
        object_id = message.object_id
        with self._refs_lock:
            self._uploads.pop(object_id, None)
            if object_id in self._storing:
                self._storing[object_id] = False
            self._refs.pop(object_id, None)
        self._core.drain()

    def _watch(self, message: messages.Watch) -> None:
        core = self._core
        refs = [self._ref(object_id) for object_id in message.object_ids]
        with core.lock:
            core.value_requests.ask_all(ref._entry for ref in refs)
        for ref in refs:
            core.objects.when_ready(ref._entry, partial(self._ready, ref))

    def _ready(self, ref: ObjectRef) -> None:
        """Under the core's lock."""
        core, entry = self._core, ref._entry
        value = entry.value
        assert value is not None
        entry.seen = True
        if value.nested:
            made = []
            for object_id, owner in value.nested:
                inner = core.objects.borrow(object_id, encode_address(owner))
                made.append(inner._entry)
                self._count(inner)
            core.borrowing.register()
            core.reader.keep_until_registered(entry, made)
        self._outlet.send(messages.Ready(ref.binary(), msgspec.structs.replace(value, locations=())))

    def _fetch(self, message: messages.Fetch) -> None:
        if message.object_id in self._blocks:
            self._answer(message.request, self._piece(message))
        else:
            self._later(self._load_piece, message)

    def _load_piece(self, message: messages.Fetch) -> memoryview:
        ref = self._ref(message.object_id)
        block = self._core.reader.load_block(ref._entry)
        with self._refs_lock:
            if message.object_id in self._refs:
                self._blocks.setdefault(message.object_id, block)
        return self._piece(message)

    def _piece(self, message: messages.Fetch) -> memoryview:
        with self._refs_lock:
            block = self._blocks.get(message.object_id)
            if message.is_last:
                self._blocks.pop(message.object_id, None)
        if block is None:  # two threads of the program fetch the same
            block = self._core.reader.load_block(self._ref(message.object_id)._entry)
        return block[message.offset : message.offset + message.size_bytes]

    # ------------------------------------------------------------ tasks

    def _packed(self, args: messages.Packed | None) -> Any:
        """What stands for the arguments of a call: they are packed already."""
        if args is None:
            return ()
        core = self._core
        entries, held = self._entries(args.entries), self._entries(args.held)
        with core.lock:
            hold_all(held)
            core.store.say_all()
        return PackedArguments(Value(INLINE, args.data, args.buffers), entries, args.places, held)

    def _define(self, message: messages.Define) -> None:
        try:
            self._pools[message.pool] = self._defined(message)
        except Exception as error:  # the classes to retry on may be in a module that is not on the head
            self._undefined[message.pool] = error, message.num_returns

    def _defined(self, message: messages.Define) -> tuple[Any, Function, TaskOptions]:
        core = self._core
        function = Function.of_pickled(
            message.pickled,
            message.key,
            message.name,
            message.full_name,
            message.max_calls,
            self._entries(message.held),
        )
        options = TaskOptions(
            message.request,
            message.runtime_env,
            message.num_returns,
            message.max_retries,
            _retry(message.retry_exceptions),
            message.task_name,
            message.capture_child_tasks,
            message.stream,
        )
        return core.submitter.pool(function, options), function, options

    def _undefine(self, message: messages.Undefine) -> None:
        for pool in message.pools:
            self._pools.pop(pool, None)
            self._undefined.pop(pool, None)

    def _submit(self, message: messages.Submit) -> None:
        core = self._core
        if message.pool in self._undefined:
            error, num_returns = self._undefined[message.pool]
            self._give_error(message.task_id, num_returns, error)
            return
        pool, function, options = self._pools[message.pool]
        try:
            args = self._packed(message.args)
            core.ids.supply(message.task_id)  # type: ignore[attr-defined]
            result = core.submitter.submit(pool, function, options, args, {})
        except Exception as error:
            self._give_error(message.task_id, options.num_returns, error)
            return
        self._keep(message.task_id, result)

    def _call(self, message: messages.Call) -> None:
        core = self._core
        try:
            args = self._packed(message.args)
            core.ids.supply(message.task_id)  # type: ignore[attr-defined]
            result = core.actors.call(
                self._actor(ids.actor_id_of(message.task_id), message.ordered),
                message.method,
                args,
                {},
                message.num_returns,
                message.retries,
                _retry(message.retry_exceptions),
                message.name,
                message.concurrency_group,
                message.max_pending,
                message.stream,
            )
        except Exception as error:
            if message.request:
                raise
            self._give_error(message.task_id, message.num_returns, error)
            return
        self._keep(message.task_id, result)
        self._answer(message.request, None)

    def _keep(self, task_id: bytes, result: Any) -> None:
        if isinstance(result, ObjectRef):
            self._count(result)
        elif isinstance(result, ObjectRefGenerator):
            self._streams[task_id] = Reading(result)
            self._count(result.completed())
        elif result is not None:
            for ref in result:
                self._count(ref)

    def _give_error(self, task_id: bytes, num_returns: int, error: Exception) -> None:
        """The results of a task that could not be submitted."""
        core = self._core
        with core.lock:
            value = core.objects.error_value(error)
            for index in range(max(1, num_returns)):
                entry = core.objects.own(ids.object_id(task_id, index + 1))
                ref = core.objects.new_ref(entry)
                core.objects.set_value(entry, value)
                self._count(ref)

    # ------------------------------------------------------------ actors

    def _actor(self, actor_id: bytes, ordered: bool) -> Actor:
        actor = self._actors.get(actor_id)
        if actor is None:
            known = self._refs.get(handle_object_id(actor_id))
            entry = known[0]._entry if known is not None else None
            actor = self._actors[actor_id] = self._core.actors.actor(actor_id, entry, ordered)
        return actor

    def _create(self, message: messages.Create) -> None:
        args, closure = self._packed(message.args), self._entries(message.closure)
        if message.request:
            self._later(lambda asked: self._created(asked, args, closure), message)
        else:
            self._created(message, args, closure)

    def _created(self, message: messages.Create, args: Any, closure: list[Any]) -> Any:
        core, spec = self._core, message.spec
        other = core.actors.create(
            spec, message.setup, args, {}, message.ordered, message.get_if_exists, closure
        )
        if other is not None:
            return other
        if not spec.detached:
            with core.lock:
                entry = core.objects.table.entries[handle_object_id(spec.actor_id)]
                ref = core.objects.new_ref(entry)
            self._count(ref)
        self._actors[spec.actor_id] = core.actors.actor(spec.actor_id, None, message.ordered)
        return None

    def _kill(self, message: messages.Kill) -> str | None:
        core = self._core
        reply = core.actors.kill(self._actor(message.actor_id, message.ordered), message.no_restart)
        return reply.message if isinstance(reply, ErrorReply) else None

    def _cancel(self, message: messages.Cancel) -> None:
        entry = self._ref(message.object_id)._entry
        self._core.cancellation.cancel(entry, message.force, message.recursive)
        self._answer(message.request, None)

    # ------------------------------------------------------------ generators

    def _next(self, message: messages.Next) -> None:
        reading = self._streams[message.task_id]
        if not message.takes:
            self._answer(message.request, self._count(reading.peek(message.position)))
        elif reading.is_there(message.position):
            self._answer(message.request, self._take(message))
        else:
            self._later(self._take, message)

    def _take(self, message: messages.Next) -> bytes | None:
        ref = self._streams[message.task_id].take(message.position, message.timeout_s)
        return self._count(ref) if ref is not None else None

    def _stream_state(self, message: messages.StreamState) -> None:
        self._core.pump.poll_once()
        self._answer(message.request, self._streams[message.task_id].state(message.position))

    def _drop_stream(self, message: messages.DropStream) -> None:
        self._streams.pop(message.task_id, None)


def _retry(given: bool | bytes) -> bool | tuple[type[BaseException], ...]:
    return given if isinstance(given, bool) else tuple(pickle.loads(given))


def pickled(error: BaseException) -> bytes:
    """An error for the program; one that cannot be pickled as its text."""
    try:
        return serialization.dumps(error)
    except Exception:
        return pickle.dumps(exceptions.RaySystemError(f"{type(error).__name__}: {error}"))
