"""A worker's side: takes pushes, runs user code, answers.

Tasks and the calls of sync actors run on the main thread, which pumps the sockets itself between them. Threaded actors
have `ThreadedExecutor`, and async actors `AsyncExecutor`.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._owner import lost_arguments
from runtime._owner.arguments import LostArguments
from runtime._owner.context import ActorExit, Execution, execution
from runtime._owner.errors import cannot_send
from runtime._owner.functions import full_name, is_async, shown_name
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._transport.dispatch import Handlers
from runtime._transport.pump import REST_S
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.node import Blocked, MayEnd, Unblocked, WorkerExiting
from runtime._wire.messages.worker import (
    ActorSetup,
    BindLease,
    Cancel,
    Done,
    ExitActor,
    Push,
    ReleaseHold,
    Retiring,
    Returned,
    StreamConsumed,
    TakeBack,
)

from . import thread_limit
from .async_executor import AsyncExecutor
from .bound_method import bound_method
from .devices import Devices
from .process_end import end_fork, exit_status, flush_output
from .results import PartialResult, Results
from .threaded_executor import ThreadedExecutor

if TYPE_CHECKING:
    from runtime._process.core_worker import Core

log = logging.getLogger("runtime")
FLUSH_EVERY_S = 0.0005
EXIT_NOTICE_S = 2.0
LEND_AFTER_S = 0.002
"""A task that waits longer than this lends its CPUs."""


class Executor:
    """Everything that runs user code in a worker. `Executor.actor` is the user's object, once it is constructed."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.results = Results(core)
        self.devices = Devices()
        self.actor: Any = None
        self.setup: ActorSetup | None = None
        self.current_name = ""
        self._prefix = ""  # of the names of the actor's methods
        self._queue: deque[tuple[Connection, Push]] = deque()  # changed only under the lock
        self._lease: BindLease | None = None
        self._main = threading.main_thread()
        self._running: Execution | None = None  # on the main thread
        # What was begun. Like every table of a worker, by caller too: only each caller by itself keeps its ids apart.
        self._active: dict[tuple[Connection, bytes], Execution] = {}
        self._cancel_target: Execution | None = None
        self._blocked = False
        self._last_flush = 0.0
        self._ends_when_idle = False
        self._leaving: tuple[str, int] | None = None  # why the process ends by itself, and its exit status
        self._counts: Counter[bytes] = Counter()  # calls of the functions with max_calls
        self._submit: Callable[[Connection, Push, Execution], None] | None = None  # if calls run side by side
        self._threaded: ThreadedExecutor | None = None
        self._async: AsyncExecutor | None = None
        self._takes_calls = True
        signal.signal(signal.SIGINT, self._interrupted)

    # ------------------------------------------------------------ messages (pumping thread, under the lock)

    def handlers(self) -> Handlers:
        """For the messages that only workers get."""
        return {
            Push: self._on_push,
            BindLease: self._on_bind,
            TakeBack: self._on_take_back,
            Cancel: self._on_cancel,
            ReleaseHold: self._on_release,
            StreamConsumed: self.results.backpressure.on_consumed,
            ExitActor: self._on_exit,
            MayEnd: self._on_may_end,
        }

    def _on_push(self, connection: Connection, push: Push, _correlation: int) -> None:
        if not self._takes_calls:
            return  # the process ends, and says more to the caller than we could
        if self._submit is not None:
            self._submit(connection, push, self._begin(connection, push))
        elif self._blocked and self.actor is None:
            connection.send(Returned([push.task_id], blocked=True))
        else:
            self._queue.append((connection, push))

    def _on_bind(self, _connection: Connection, message: BindLease, _correlation: int) -> None:
        self._bind(message)

    def _bind(self, lease: BindLease) -> None:
        self._lease = lease
        self.devices.bind(lease.gpu_ids, lease.other_ids)
        thread_limit.follow_lease(lease.resources)

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
            self._core.outcomes.cancel_children(task_id, message.force)
        running = self._active.get((connection, task_id))
        if running is None:
            return
        running.cancelled = True
        if self._async is not None:
            self._async.cancel(connection, task_id)
        elif self.actor is None:
            if message.force:
                self._core.agent.send(WorkerExiting("its task was cancelled"))
                self._core.pump.flush_all()
                os._exit(1)
            self._cancel_target = running
            self._interrupt()

    def _interrupt(self) -> None:
        assert self._main.ident is not None
        signal.pthread_kill(self._main.ident, signal.SIGINT)

    def _interrupted(self, _signal: int, _frame: Any) -> None:
        running = self._running
        if running is None or running is not self._cancel_target:
            return  # it has ended meanwhile, or will see the mark when it begins
        if self._core.pump.interruptible(self._interrupt):
            self._cancel_target = None
            raise KeyboardInterrupt

    def _on_release(self, connection: Connection, message: ReleaseHold, _correlation: int) -> None:
        self.results.release(connection, message.task_id, message.attempt)

    def _on_may_end(self, connection: Connection, _message: MayEnd, correlation: int) -> None:
        if self._queue or self._core.outcomes.pending or self.results.lends or self._core.objects.lends():
            connection.reply(ErrorReply(ErrorKind.BUSY, "others refer to what this worker owns"), correlation)
        else:
            connection.reply(Ok(), correlation)

    def _on_exit(self, _connection: Connection, _message: ExitActor, _correlation: int) -> None:
        self._ends_when_idle = True
        if self._async is not None:
            self._async.exit_if_idle()

    def leave(self, reason: str, status: int = 0) -> None:
        """Ends the process as the actor wants it: no call begins any more, those that run beside the caller's come to
        their end, and the caller's own is never answered. From any thread.
        """
        with self._core.lock:
            running = execution.get()
            if running is not None:
                running.cancelled = running.leaves = True
            self._leaving = self._leaving or (reason, status)
            # From now on our agent gives us some time, for what runs beside may never end.
            self._core.agent.call(self._exit_notice(), lambda _: None)
            self._core.pump.kick()
            self._takes_calls = False
            self._queue.clear()
            if self._threaded is not None:
                self._threaded.drop_waiting()
            self._ends_when_idle = True
        if self._async is not None:
            self._async.exit_if_idle()
        else:
            self._core.pump.wake()

    @property
    def leaving(self) -> bool:
        """Whether calls that have not begun are to be dropped."""
        return self._leaving is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing that came waits to."""
        return not self._active

    @property
    def is_async(self) -> bool:
        """Whether this is an async actor, constructed."""
        return self._async is not None

    def connection_lost(self, connection: Connection) -> None:
        """A caller died: drop what it queued and what was kept for it."""
        self._queue = deque(item for item in self._queue if item[0] is not connection)
        self.results.caller_lost(connection)

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
        core = self._core
        while True:
            if not self._queue:
                self.exit_if_idle()
                core.pump.wait(self._has_work, look_s=REST_S)  # whoever gives it work wakes it
                continue
            with core.lock:
                if not self._queue:
                    continue  # taken back meanwhile
                connection, push = self._queue.popleft()
                running = self._begin(connection, push)
            limits = core.functions.max_calls
            is_last = bool(limits) and self._is_last(push.key)
            self.run(connection, push, running)
            if self._async is not None:
                self._async.serve()
                continue
            if is_last:
                self._retire(connection, push.key)

    def _has_work(self) -> bool:
        return bool(self._queue) or self.may_exit()

    def exit_if_idle(self) -> None:
        """Ends the process if it was told to and nothing runs."""
        if self.may_exit():
            self.exit()

    def may_exit(self) -> bool:
        """Whether the process was told to end, and nothing runs any more."""
        return self._ends_when_idle and not self._active

    def exit(self, status: int = 0, reason: str = "") -> NoReturn:
        """Ends the process, with everything sent, when the last handlers of user code are through."""
        if self._leaving is not None:
            reason, status = self._leaving
        pump = self._core.pump
        pump.flush_all()
        if reason:
            self._leaving = reason, status
            self._notify(self._exit_notice())
        self._run_last_handlers()
        flush_output()
        pump.flush_all()
        try:
            os.unlink(self._core.address.unix_path)
        except FileNotFoundError:
            pass
        os._exit(status)

    def _exit_notice(self) -> WorkerExiting:
        assert self._leaving is not None
        reason, status = self._leaving
        return WorkerExiting(f"Worker exits with an exit code {status}. {reason}", status == 0)

    def _run_last_handlers(self) -> None:
        hook = getattr(self.actor, "__ray_shutdown__", None)
        if hook is not None:
            try:
                last = hook()
                if asyncio.iscoroutine(last) and self._async is not None:
                    self._async.finish(last)
            except BaseException:
                log.exception("__ray_shutdown__ of %s failed", self.current_name)
        del hook
        self.actor = None
        # No public function runs these alone: the interpreter's own end would first wait for threads of user code.
        atexit._run_exitfuncs()

    def _is_last(self, key: bytes) -> bool:
        """Whether this call of a function is the last one that its `max_calls` allows here."""
        limit = self._core.functions.max_calls.get(key)
        if limit is None:
            return False
        self._counts[key] += 1
        if self._counts[key] == limit:
            # Before the answer, after which the worker could be leased to somebody.
            self._notify(WorkerExiting())
        return self._counts[key] >= limit

    def _notify(self, message: WorkerExiting) -> None:
        try:
            self._core.pump.call(self._core.agent, message, EXIT_NOTICE_S)
        except (exceptions.RayError, OSError, TimeoutError):
            pass  # the agent is gone, or busy: it will see the end itself

    def _retire(self, connection: Connection, key: bytes) -> None:
        """Ends the process when nobody needs it any more."""
        core = self._core
        with core.lock:
            self._takes_calls = False
            self._queue.clear()
            unregistered = [entry for entry in core.objects.table.entries.values() if not entry.registered]
            core.borrowing.when_registered(unregistered, lambda: connection.send(Retiring()))
        core.pump.flush_all()
        # Others need us as long as they hold what we own, or wait for what we have started.
        core.pump.wait(
            lambda: not core.outcomes.pending and not self.results.lends and not core.objects.lends()
        )
        self.exit(reason=f"It ran {core.functions.name(key)} as often as its max_calls allows.")

    def _begin(self, connection: Connection, push: Push) -> Execution:
        """From here on the task can be cancelled. Under the lock."""
        function_name = self._prefix + push.method if push.method else self._core.functions.name(push.key)
        running = self._active[connection, push.task_id] = Execution(
            push.task_id,
            push.name or function_name.rpartition(".")[2],
            function_name,
            self._lease,
            self.setup.actor_id if self.setup else b"",
            push.attempt,
        )
        return running

    def run(self, connection: Connection, push: Push, running: Execution) -> None:
        """Runs one task or call to its end on this thread, and answers."""
        token = execution.set(running)
        on_main = threading.current_thread() is self._main
        if on_main and self.actor is None:
            self.current_name = running.name
        made: list[Entry] = []
        done: Done | None
        started = time.perf_counter()
        try:
            try:
                if on_main:
                    self._running = running
                if running.cancelled:
                    raise KeyboardInterrupt
                done = self._call(connection, push, running, made)
            finally:
                if on_main:
                    self._running = None
                if self._core.forked:
                    end_fork()
        except LostArguments as error:
            done = None
            lost_arguments.send_back(self._core, connection, push, error)
        except BaseException as error:
            done = self.failed(push, running, error, time.perf_counter() - started)
        execution.reset(token)
        if done is not None:
            self.answer(connection, done, made)
        else:
            self.drop(connection, push)
        if on_main and self._queue:
            self.flush_now_and_then()

    def flush_now_and_then(self) -> None:
        """More calls follow at once: their answers leave together, but none waits long."""
        now = time.monotonic()
        if now - self._last_flush > FLUSH_EVERY_S:
            self._last_flush = now
            self._core.pump.flush_all()

    def _call(self, connection: Connection, push: Push, running: Execution, made: list[Entry]) -> Done:
        """`made` gets the references that came with the arguments: the answer waits for them, if it is an error too."""
        args, kwargs, references = lost_arguments.unpack(self._core, push)
        made += references
        if push.method == "__init__":
            self._make_actor(push, args, kwargs)
            return Done(push.task_id, [])
        function = self.callable_of(push)
        started = time.perf_counter()
        result = function(*args, **kwargs)
        if running.cancelled and push.method:
            raise KeyboardInterrupt  # whatever the method made of it
        if push.num_returns < 0:
            self.results.stream(connection, push, result, running)
        seconds = time.perf_counter() - started
        del args, kwargs
        try:
            values = self.results.pack(connection, push, result)
        except PartialResult as partial:
            return self.partly_failed(connection, push, running, partial, seconds)
        return Done(push.task_id, values, seconds)

    def running_tasks(self) -> list[bytes]:
        """The ids of what has begun here and is not over."""
        return [task_id for _, task_id in self._active]

    def callable_of(self, push: Push) -> Callable[..., Any]:
        """What a push calls: a function, or a method of the actor."""
        if not push.method:
            function: Callable[..., Any] = self._core.functions.load(push.key)
            return function
        if push.method == "__ray_call__":
            return lambda fn, *args, **kwargs: fn(self.actor, *args, **kwargs)
        if push.method == "__ray_ready__":
            return lambda: True
        if push.method == "__ray_terminate__":
            return self.terminate
        return bound_method(self.actor, push.method)

    def terminate(self, reason: str = "exit_actor() is called.") -> NoReturn:
        """Ends the actor, out of one of its calls."""
        self.leave(reason)
        raise ActorExit(0)

    # ------------------------------------------------------------ answers

    def drop(self, connection: Connection, push: Push) -> None:
        """Ends a call without an answer: the process ends, and says more to its caller than we could."""
        with self._core.lock:
            self._active.pop((connection, push.task_id), None)

    def answer(self, connection: Connection, done: Done, made: list[Entry]) -> None:
        """Ends a task: sends its answer, once the owners know of the references in `made` that are still here."""
        core = self._core
        with core.lock:
            self._active.pop((connection, done.task_id), None)
            if core.released:
                core.objects.drain()
            entries = core.objects.table.entries
            kept = [e for e in made if not e.registered and entries.get(e.object_id) is e] if made else ()
            if kept:
                # The caller lets go of its references with our answer: ours must be known by then.
                core.borrowing.when_registered(kept, lambda: self._send(connection, done))
            else:
                try:
                    connection.send(done)
                except Exception as error:
                    self._cannot_answer(connection, done, error)

    def _send(self, connection: Connection, done: Done) -> None:
        try:
            connection.send(done)
        except Exception as error:
            self._cannot_answer(connection, done, error)

    def _cannot_answer(self, connection: Connection, done: Done, error: Exception) -> None:
        value = self._core.objects.error_value(cannot_send("result of the call", error))
        self.results.release(connection, done.task_id)
        connection.send(msgspec.structs.replace(done, values=[value], failed=True))

    def _cancelled(self, task_id: bytes) -> Done:
        error = exceptions.TaskCancelledError(ids.TaskID(task_id))
        return Done(task_id, [self._core.objects.error_value(error)], failed=True)

    def failed(self, push: Push, running: Execution, error: BaseException, seconds: float) -> Done | None:
        """The answer to a call that raised. None when it ends the actor; no return when it ends the process."""
        ends = isinstance(error, ActorExit | exceptions.AsyncioActorExit) and self._leaving is not None
        if running.leaves or ends:  # perhaps it was a thread of its own that called exit_actor
            return None
        if isinstance(error, SystemExit):
            if self.setup is None:
                self.exit(exit_status(error))
            self.leave("sys.exit() was called.", exit_status(error))
            return None
        cancelled = isinstance(error, KeyboardInterrupt) or (
            running.cancelled and (self._async is not None or isinstance(error, asyncio.CancelledError))
        )
        if push.method == "__init__":
            self._ends_when_idle = True
        setup, name = self.setup, running.function_name.rpartition(".")[2]
        wrapped = exceptions.RayTaskError.from_exception(
            error,
            f"{setup.class_name}.{push.method}" if setup is not None and push.method else name,
            pid=os.getpid(),
            ip=self._core.session.node_host,
            actor_repr=shown_name(self.actor, setup.class_name) if setup is not None else None,
            actor_id=setup.actor_id.hex() if setup is not None else None,
        )
        if push.method == "__init__":
            print(f"Exception raised in creation task of {wrapped.actor_repr}: {wrapped}", file=sys.stderr)
        if cancelled:
            wrapped = wrapped.because_of(exceptions.TaskCancelledError(ids.TaskID(push.task_id)))
        retry = bool(push.retry_on) and _is_one_of(wrapped.cause, push.retry_on)
        return Done(push.task_id, [self._core.objects.error_value(wrapped)], seconds, True, retry)

    def partly_failed(
        self, connection: Connection, push: Push, running: Execution, partial: PartialResult, seconds: float
    ) -> Done:
        """The answer to a call whose generator gave some of the returns: those, and the error for each other one."""
        done = self.failed(push, running, partial.error, seconds)
        assert done is not None  # an Exception ends nothing
        given = self.results.pack_items(connection, push, partial.values)
        missing = push.num_returns - len(given)
        return msgspec.structs.replace(done, values=[*given, *done.values * missing])

    # ------------------------------------------------------------ actors

    def _make_actor(self, push: Push, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        setup = push.actor
        assert setup is not None
        self.setup = setup
        self.results.backpressure.limit = setup.stream_limit
        if setup.lease is not None:
            self._bind(msgspec.structs.replace(setup.lease, capture_child_tasks=setup.capture_child_tasks))
        running = self._running
        assert running is not None
        running.actor_id = setup.actor_id
        running.lease = self._lease
        self.current_name = setup.class_name
        cls = self._core.functions.load(push.key)
        self._prefix = f"{full_name(cls)}."
        running.function_name = f"{self._prefix}__init__"
        if is_async(cls):
            self._async = AsyncExecutor(self._core, self, setup)
            self.actor = self._async.construct(cls, args, kwargs)
        else:
            self.actor = cls(*args, **kwargs)
        self.current_name = shown_name(self.actor, setup.class_name)
        if self._async is not None:
            self._run_side_by_side(self._async.submit)
        elif setup.max_concurrency > 1 or setup.concurrency_groups:
            self._threaded = ThreadedExecutor(self._core, self, setup)
            self._run_side_by_side(self._threaded.submit)

    def _run_side_by_side(self, submit: Callable[[Connection, Push, Execution], None]) -> None:
        with self._core.lock:
            self._submit = submit
            while self._queue:
                connection, push = self._queue.popleft()
                submit(connection, push, self._begin(connection, push))


def _is_one_of(error: BaseException | None, classes: Sequence[bytes]) -> bool:
    """Whether an error is of one of these pickled classes. Those that are unknown here cannot be its class."""
    for pickled in classes:
        try:
            if isinstance(error, serialization.deserialize(pickled)[0]):
                return True
        except Exception as problem:
            log.debug("a class of retry_exceptions cannot be loaded: %s", problem)
    return False
