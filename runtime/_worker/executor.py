"""A worker's side: takes pushes, runs user code, answers. One mode per process: plain tasks and sync actors run on the
main thread, which pumps the sockets itself between tasks; threaded and async actors add their own way of running.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.node import Blocked, Unblocked
from runtime._wire.messages.worker import (
    ActorSetup,
    BindLease,
    Cancel,
    Done,
    ExitActor,
    Push,
    ReleaseHold,
    Returned,
    StreamItem,
    TakeBack,
    Value,
)

from . import arguments, context
from .context import Execution, execution
from .objects import Entry

if TYPE_CHECKING:
    from .core_worker import Core

FLUSH_EVERY_S = 0.0005
LEND_AFTER_S = 0.002
"""A task that waits longer than this lends its CPUs."""


class ActorExit(SystemExit):
    """Raised by `exit_actor`: ends the actor after the calls that are done."""


class Executor:
    """Everything that runs user code in a worker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._queue: deque[tuple[Connection, Push]] = deque()
        self._lease: BindLease | None = None
        self._holds: dict[bytes, tuple[Connection, list[Entry]]] = {}
        self._main = threading.main_thread()
        self._running: Execution | None = None  # on the main thread
        self._cancel_target = b""
        self._blocked = False
        self._last_flush = 0.0
        self._exiting: str | None = None
        self.actor: Any = None
        self.setup: ActorSetup | None = None
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._coroutines: dict[bytes, asyncio.Task[None]] = {}
        self._active: dict[bytes, Execution] = {}
        self.current_name = ""
        core.executor = self
        core.add_handlers(
            {
                Push: self._on_push,
                BindLease: self._on_bind,
                TakeBack: self._on_take_back,
                Cancel: self._on_cancel,
                ReleaseHold: self._on_release,
                ExitActor: self._on_exit,
            }
        )
        signal.signal(signal.SIGINT, self._interrupted)

    # ------------------------------------------------------------ messages (pumping thread, under the lock)

    def _on_push(self, connection: Connection, push: Push, _correlation: int) -> None:
        if self._blocked and self.actor is None:
            connection.send(Returned([push.task_id], blocked=True))
        elif self._loop is not None:
            if threading.current_thread() is self._main:
                self._start_coroutine(connection, push)
            else:
                self._loop.call_soon_threadsafe(self._start_coroutine, connection, push)
        elif self._threads:
            group = self._group_of(push)
            pool = self._threads.get(group) or self._threads[""]
            pool.submit(self._run, connection, push)
        else:
            self._queue.append((connection, push))

    def _on_bind(self, _connection: Connection, message: BindLease, _correlation: int) -> None:
        self._lease = message
        if message.gpu_ids:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(message.gpu_ids)

    def _on_take_back(self, connection: Connection, message: TakeBack, _correlation: int) -> None:
        returned = []
        for _ in range(message.count):
            try:
                owner, push = self._queue.pop()
            except IndexError:
                break
            if owner is not connection:
                self._queue.append((owner, push))
                break
            returned.append(push.task_id)
        connection.send(Returned(returned[::-1]))

    def _on_cancel(self, connection: Connection, message: Cancel, _correlation: int) -> None:
        task_id = message.task_id
        for item in self._queue:
            if item[1].task_id == task_id and item[0] is connection:
                self._queue.remove(item)
                connection.send(self._cancelled(task_id))
                return
        if message.recursive:
            self._core.submitter.cancel_children(task_id, message.force)
        running = self._active.get(task_id)
        if running is None:
            return
        running.cancelled = True
        coroutine = self._coroutines.get(task_id)
        if coroutine is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(coroutine.cancel)
        elif self.actor is None:
            if message.force:
                os._exit(1)
            self._cancel_target = task_id
            self._interrupt()

    def _interrupt(self) -> None:
        assert self._main.ident is not None
        signal.pthread_kill(self._main.ident, signal.SIGINT)

    def _interrupted(self, _signal: int, _frame: Any) -> None:
        running = self._running
        if running is None or running.task_id != self._cancel_target:
            return  # it has ended meanwhile
        if self._core.pump.interruptible(self._interrupt):
            self._cancel_target = b""
            raise KeyboardInterrupt

    def _on_release(self, _connection: Connection, message: ReleaseHold, _correlation: int) -> None:
        held = self._holds.pop(message.task_id, None)
        for entry in held[1] if held else ():
            self._core.objects.release(entry)

    def _on_exit(self, _connection: Connection, _message: ExitActor, _correlation: int) -> None:
        self._exiting = "all handles of the actor went out of scope"
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._exit_when_idle)

    def connection_lost(self, connection: Connection) -> None:
        """A caller died: drop what it queued and what was kept for it."""
        self._queue = deque(item for item in self._queue if item[0] is not connection)
        for task_id, (owner, entries) in list(self._holds.items()):
            if owner is connection:
                del self._holds[task_id]
                for entry in entries:
                    self._core.objects.release(entry)

    # ------------------------------------------------------------ waiting tasks

    def may_block(self) -> bool:
        """Whether the calling thread holds CPUs that it could lend while it waits."""
        return self._running is not None and threading.current_thread() is self._main

    def blocking_wait(self, ready: Callable[[], Any], timeout_s: float | None) -> bool:
        """Waits; after a moment gives queued tasks back and lends the CPUs, so that what we wait for can run."""
        grace = LEND_AFTER_S if timeout_s is None else min(timeout_s, LEND_AFTER_S)
        if self._core.pump.wait(ready, grace):
            return True
        if timeout_s is not None and timeout_s <= grace:
            return False
        core = self._core
        with core.lock:
            self._blocked = True
            if self.actor is None:
                back: dict[Connection, list[bytes]] = {}
                while self._queue:
                    owner, push = self._queue.popleft()
                    back.setdefault(owner, []).append(push.task_id)
                for owner, task_ids in back.items():
                    owner.send(Returned(task_ids, blocked=True))
            core.agent.send(Blocked())
        try:
            return core.pump.wait(ready, None if timeout_s is None else timeout_s - grace)
        finally:
            with core.lock:
                self._blocked = False
                core.agent.send(Unblocked())

    # ------------------------------------------------------------ the main thread

    def run_forever(self) -> None:
        """Runs tasks until the process has a reason to end."""
        pump, queue = self._core.pump, self._queue
        while True:
            queue = self._queue
            if not queue:
                if self._exiting is not None and not self._active:
                    self.exit()
                pump.wait(self._has_work)
                continue
            try:
                connection, push = queue.popleft()
            except IndexError:  # taken back meanwhile
                continue
            self._run(connection, push)
            if self._loop is not None:
                self._serve_async()

    def _has_work(self) -> bool:
        return bool(self._queue) or (self._exiting is not None and not self._active)

    def exit(self, status: int = 0) -> None:
        """Ends the process now, with everything sent."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._core.pump.flush_all()
        try:
            os.unlink(self._core.address.unix_path)
        except FileNotFoundError:
            pass
        os._exit(status)

    def _run(self, connection: Connection, push: Push) -> None:
        """Runs one task or call to its end on this thread, and answers."""
        running = Execution(
            push.task_id,
            push.name or push.method or self._core.functions.name(push.key).rpartition(".")[2],
            push.method or self._core.functions.name(push.key),
            self._lease,
            self.setup.actor_id if self.setup else b"",
            push.attempt,
        )
        self._active[push.task_id] = running
        token = execution.set(running)
        on_main = threading.current_thread() is self._main
        if on_main:
            if self.actor is None:
                self.current_name = running.name
            self._running = running
        done: Done | None = None
        kept: list[Entry] = []
        started = time.perf_counter()
        try:
            try:
                done = self._call(connection, push, kept)
            finally:
                self._running = None if on_main else self._running
        except ActorExit:
            self.exit()
        except SystemExit as error:
            self._leave(error)
        except KeyboardInterrupt:
            done = self._cancelled(push.task_id)
        except BaseException as error:
            done = self._failed(push, running, error, time.perf_counter() - started)
        execution.reset(token)
        self._active.pop(push.task_id, None)
        assert done is not None
        self._answer(connection, done, kept)
        if self._exiting is not None and not on_main:
            self._core.pump.wake()

    def _call(self, connection: Connection, push: Push, made: list[Entry]) -> Done:
        """`made` gets the references that came with the arguments: the answer waits for them, if it is an error too."""
        args, kwargs, references = arguments.unpack(self._core, push.args, push.refs)
        made += references
        if push.method == "__init__":
            self._make_actor(push, args, kwargs)
            return Done(push.task_id, [])
        function = self._callable(push)
        started = time.perf_counter()
        result = function(*args, **kwargs)
        if push.num_returns < 0:
            self._stream(connection, push, result)
        seconds = time.perf_counter() - started
        del args, kwargs
        values = self._pack(connection, push, result)
        return Done(push.task_id, values, seconds)

    def _callable(self, push: Push) -> Callable[..., Any]:
        if not push.method:
            function: Callable[..., Any] = self._core.functions.load(push.key)
            return function
        if push.method == "__ray_call__":
            return lambda fn, *args, **kwargs: fn(self.actor, *args, **kwargs)
        if push.method == "__ray_ready__":
            return lambda: True
        if push.method == "__ray_terminate__":
            return self._terminate
        method: Callable[..., Any] = getattr(self.actor, push.method)
        return method

    def _terminate(self) -> None:
        raise ActorExit

    def _pack(self, connection: Connection, push: Push, result: Any) -> list[Value]:
        """The values of a result, held for the caller until it has taken the references inside."""
        count = push.num_returns
        if count == 1:
            results = [result]
        elif count <= 0:
            return []
        else:
            results = list(result)
            if len(results) != count:
                raise ValueError(
                    f"The task returned {len(results)} values, but num_returns={count} were declared."
                )
        owner = push.caller or connection.peer
        values = []
        held: list[Entry] = []
        for index, item in enumerate(results):
            serialized = serialization.serialize(item)
            object_id = ids.object_id(push.task_id, index + 1)
            values.append(self._core.objects.pack(object_id, serialized, owner))
            held += serialized.references
        if held:
            self._hold(connection, push.task_id, held)
        return values

    def _hold(self, connection: Connection, task_id: bytes, entries: list[Entry]) -> None:
        with self._core.lock:
            if connection.closed:
                return  # the caller died meanwhile: nobody will take them
            for entry in entries:
                entry.holds += 1
            previous = self._holds.get(task_id)
            self._holds[task_id] = (connection, [*(previous[1] if previous else ()), *entries])

    def _stream(self, connection: Connection, push: Push, result: Any) -> None:
        if not inspect.isgenerator(result) and not hasattr(result, "__next__"):
            raise TypeError(
                f'num_returns="streaming" needs a generator, but {push.name or push.method or "the function"} '
                f"returned {type(result).__name__}"
            )
        for index, item in enumerate(result):
            self._send_item(connection, push, index, item)

    def _send_item(self, connection: Connection, push: Push, index: int, item: Any) -> None:
        serialized = serialization.serialize(item)
        object_id = ids.object_id(push.task_id, index + 2)
        value = self._core.objects.pack(object_id, serialized, push.caller or connection.peer)
        if serialized.references:
            self._hold(connection, push.task_id, serialized.references)
        connection.send(StreamItem(push.task_id, index, value))

    # ------------------------------------------------------------ answers

    def _answer(self, connection: Connection, done: Done, made: list[Entry]) -> None:
        core = self._core
        with core.lock:
            if core.released:
                core.objects.drain()
            entries = core.objects.table.entries
            kept = [e for e in made if not e.registered and entries.get(e.object_id) is e] if made else ()
            if kept:
                # The caller lets go of its references with our answer: ours must be known by then.
                core.objects.when_registered(kept, lambda: connection.send(done))
            else:
                connection.send(done)
            now = time.monotonic()
            if self._loop is None and (not self._queue or now - self._last_flush > FLUSH_EVERY_S):
                self._last_flush = now
                if self._threads or self._queue:
                    core.pump.flush_all()

    def _cancelled(self, task_id: bytes) -> Done:
        error = exceptions.TaskCancelledError(ids.TaskID(task_id))
        return Done(task_id, [self._core.objects.error_value(error)], failed=True)

    def _failed(self, push: Push, running: Execution, error: BaseException, seconds: float) -> Done:
        if running.cancelled and isinstance(error, asyncio.CancelledError):
            return self._cancelled(push.task_id)
        name = running.function_name.rpartition(".")[2]
        if self.setup is not None and push.method:
            name = f"{self.setup.class_name}.{push.method}"
        wrapped = task_error(error, name, self.setup, self.actor)
        if push.method == "__init__":
            self._exiting = "the constructor raised"
        return Done(push.task_id, [self._core.objects.error_value(wrapped)], seconds, True)

    def _leave(self, error: SystemExit) -> None:
        """User code called sys.exit: the process ends, and with it the task."""
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        self.exit(code)

    # ------------------------------------------------------------ actors

    def _make_actor(self, push: Push, args: Any, kwargs: Any) -> None:
        setup = push.actor
        assert setup is not None
        self.setup = setup
        if setup.lease is not None:
            lease = msgspec.structs.replace(setup.lease, capture_child_tasks=setup.capture_child_tasks)
            self._on_bind(self._core.agent, lease, 0)
        running = context.execution.get()
        if running is not None:
            running.actor_id = setup.actor_id
            running.lease = self._lease
        self._core.actor_or_job_bytes = setup.actor_id
        self.current_name = setup.class_name
        cls = self._core.functions.load(push.key)
        self.actor = cls(*args, **kwargs)
        self.current_name = _shown_name(self.actor, setup.class_name)
        if is_async(cls):
            self._loop = asyncio.new_event_loop()
            default = setup.max_concurrency
            self._limits = {"": asyncio.Semaphore(default)} | {
                group: asyncio.Semaphore(limit) for group, limit in setup.concurrency_groups.items()
            }
        elif setup.max_concurrency > 1 or setup.concurrency_groups:
            self._threads = {"": ThreadPoolExecutor(setup.max_concurrency, "actor")} | {
                group: ThreadPoolExecutor(limit, f"actor-{group}")
                for group, limit in setup.concurrency_groups.items()
            }

    def _group_of(self, push: Push) -> str:
        return push.concurrency_group

    def _serve_async(self) -> None:
        """The main thread becomes the actor's event loop, which pumps the sockets as well."""
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        pump = self._core.pump
        pump.drive_externally()
        loop.add_reader(pump.epoll.fileno(), self._pump_from_loop)
        while self._queue:
            loop.call_soon(self._start_coroutine, *self._queue.popleft())
        loop.call_soon(self._pump_from_loop)
        loop.run_forever()

    def _pump_from_loop(self) -> None:
        self._core.pump.poll_once()

    def _exit_when_idle(self) -> None:
        if self._exiting is not None and not self._active:
            self.exit()

    def _start_coroutine(self, connection: Connection, push: Push) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_async(connection, push))
        self._coroutines[push.task_id] = task
        running = Execution(
            push.task_id,
            push.name or push.method,
            push.method,
            self._lease,
            self.setup.actor_id if self.setup else b"",
            push.attempt,
        )
        self._active[push.task_id] = running

    async def _run_async(self, connection: Connection, push: Push) -> None:
        running = self._active[push.task_id]
        execution.set(running)
        started = time.perf_counter()
        made: list[Entry] = []
        done: Done | None = None
        try:
            group = self._group_of(push)
            async with self._limits.get(group) or self._limits[""]:
                if push.refs:
                    assert self._loop is not None
                    args, kwargs, made = await self._loop.run_in_executor(
                        None, arguments.unpack, self._core, push.args, push.refs
                    )
                else:
                    args, kwargs, made = arguments.unpack(self._core, push.args, push.refs)
                result = self._callable(push)(*args, **kwargs)
                if inspect.isawaitable(result):
                    result = await result
                if push.num_returns < 0:
                    await self._stream_async(connection, push, result)
                del args, kwargs
                done = Done(push.task_id, self._pack(connection, push, result), time.perf_counter() - started)
        except ActorExit:
            self.exit()
        except SystemExit as error:
            self._leave(error)
        except BaseException as error:
            done = self._failed(push, running, error, time.perf_counter() - started)
        self._active.pop(push.task_id, None)
        self._coroutines.pop(push.task_id, None)
        assert done is not None
        self._answer(connection, done, made)
        self._flush_soon()
        if self._exiting is not None:
            self._exit_when_idle()

    async def _stream_async(self, connection: Connection, push: Push, result: Any) -> None:
        if hasattr(result, "__anext__"):
            index = 0
            async for item in result:
                self._send_item(connection, push, index, item)
                index += 1
                self._flush_soon()
        else:
            self._stream(connection, push, result)

    _flush_scheduled = False

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._core.pump.flush_all()


def task_error(
    error: BaseException, name: str, setup: ActorSetup | None, actor: Any
) -> exceptions.RayTaskError:
    """The error that travels to the caller: with the traceback of here, and the cause if it can travel."""
    return exceptions.RayTaskError.from_exception(
        error,
        name,
        pid=os.getpid(),
        actor_repr=_shown_name(actor, setup.class_name) if setup is not None else None,
        actor_id=setup.actor_id.hex() if setup is not None else None,
    )


def _shown_name(actor: Any, class_name: str) -> str:
    cls: Any = type(actor)
    if actor is None or cls.__repr__ is object.__repr__:
        return class_name
    try:
        return repr(actor)
    except Exception:
        return class_name


def is_async(cls: type) -> bool:
    """Whether any method of a class is a coroutine: then its actor runs on an event loop."""
    return any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for _, member in inspect.getmembers(cls, inspect.isfunction)
    )
