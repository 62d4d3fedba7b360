"""A worker's side: runs user code on the main thread, which pumps the sockets itself between the calls.

`receiver` takes what comes, `answers` sends what follows, `endings` ends the process. The calls of threaded actors run
in `ThreadedExecutor`, those of async actors in `AsyncExecutor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from runtime._core.bound_method import bound_method
from runtime._owner.arguments import LostArguments
from runtime._owner.context import Execution, execution
from runtime._owner.links import Links
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._transport.dispatch import Handlers
from runtime._transport.pump import REST_S, Pump
from runtime._wire.messages.worker import ActorSetup, Done, Push

from . import thread_limit
from .answers import Answers
from .assignment import Assignment
from .async_executor import AsyncExecutor
from .calls import Calls
from .concurrent_calls import ConcurrentCalls
from .cpu_lending import CpuLending
from .devices import Devices
from .endings import Endings
from .main_thread import MainThread
from .owner_side import OwnerSide
from .process_end import end_fork
from .receiver import Receiver
from .results import PartialResult, Results
from .threaded_executor import ThreadedExecutor
from .worker_title import REST_S as TITLE_REST_S
from .worker_title import Title, WorkerTitle

FLUSH_EVERY_S = 0.0005


class Executor:
    """Everything that runs user code in a worker.

    Args:
        links, owner: of its process.
        make_endings, make_main: of stand-ins, for processes that are only simulated.
        main_thread: the one that calls `run_forever`.
        title: of the process, which then shows what runs here.
    """

    def __init__(
        self,
        links: Links,
        owner: OwnerSide,
        make_endings: Callable[[Links, OwnerSide, Calls, Assignment], Endings] = Endings,
        make_main: Callable[[Pump, threading.Thread], MainThread] = MainThread,
        main_thread: threading.Thread | None = None,
        title: Title | None = None,
    ) -> None:
        self._links = links
        self._owner = owner
        self.assignment = assignment = Assignment(owner.functions)
        self._calls = calls = Calls(assignment.execution)
        self._main = make_main(links.pump, main_thread or threading.main_thread())
        self.results = results = Results(links, owner)
        self.endings = make_endings(links, owner, calls, assignment)
        self._life = self.endings.life
        self._answers = Answers(links, owner, calls, assignment, results, self.endings)
        self._lending = CpuLending(links, calls, assignment, self._main)
        self._receiver = Receiver(
            owner, calls, assignment, self._main, self._lending, results, self._answers, self.endings
        )
        self._async: AsyncExecutor | None = None
        self._title = WorkerTitle(title) if title is not None else None
        self._titled = ""  # the name in the title, while there is one
        self._last_flush = 0.0
        self.may_block = self._lending.may_block
        self.blocking_wait = self._lending.blocking_wait
        self.check_event_loop = self._lending.check_event_loop
        self.lent = self._lending.lent
        self.connection_lost = self._receiver.connection_lost

    # ------------------------------------------------------------ for the process and the public API

    @property
    def setup(self) -> ActorSetup | None:
        """The worker's actor, if it has one."""
        return self.assignment.setup

    @property
    def holds_cpus(self) -> bool:
        """Whether an actor, or a task that runs on the main thread, has CPUs."""
        return self._lending.holds_cpus

    @property
    def is_async(self) -> bool:
        """Whether this is an async actor."""
        return self.assignment.is_async

    @property
    def devices(self) -> Devices:
        """The accelerators of this process."""
        return self.assignment.devices

    def handlers(self) -> Handlers:
        """For the messages that only workers get."""
        return self._receiver.handlers()

    def running_tasks(self) -> list[tuple[bytes, bool]]:
        """The ids of what has begun here and is not over, and whether it runs yet. Under the lock."""
        concurrent = self.endings.concurrent
        return self._calls.running_tasks(concurrent.waiting() if concurrent is not None else ())

    def leave(self, reason: str, status: int = 0) -> None:
        """See `Endings.leave`."""
        self.endings.leave(reason, status)

    def terminate(self, reason: str) -> NoReturn:
        """See `Endings.terminate`."""
        self.endings.terminate(reason)

    # ------------------------------------------------------------ the main thread

    def run_forever(self) -> None:
        """Runs tasks until the process has a reason to end."""
        links, calls, endings, owner = self._links, self._calls, self.endings, self._owner
        life, begun, record = endings.life, calls.begun, self.assignment.execution
        while True:
            if not calls.waiting:
                if life.ends_when_idle:
                    endings.exit_if_idle()
                self._rest()
                continue
            with links.lock:
                if not calls.waiting:
                    continue  # taken back meanwhile
                connection, push = calls.waiting.popleft()
                running = begun[connection, push.task_id] = record(push)  # `Calls.begin`, without a call
            is_last = bool(owner.functions.max_calls) and endings.is_last_call(push.key)
            self.run(connection, push, running)
            if self._async is not None:
                self._show_rest()
                self._async.serve()
                continue
            if is_last:
                endings.retire(connection, push.key, self._is_needed)

    def _rest(self) -> None:
        """Waits for work. Whoever gives it work wakes it."""
        pump = self._links.pump
        if self._titled:
            if pump.wait(self._has_work, TITLE_REST_S, REST_S):
                return
            self._show_rest()
        pump.wait(self._has_work, look_s=REST_S)

    def _show(self, push: Push, name: str) -> None:
        if self._title is not None:
            self._titled = name
            self._title.runs(push, name)

    def _show_rest(self) -> None:
        if self._title is not None:
            self._titled = ""
            self._title.rests()

    def _has_work(self) -> bool:
        return bool(self._calls.waiting) or (self._life.ends_when_idle and self.endings.may_exit())

    def _is_needed(self) -> bool:
        return self.results.lends or self._owner.is_needed()

    def run(self, connection: Connection, push: Push, running: Execution) -> None:
        """Runs one task or call to its end on this thread, and answers."""
        token = execution.set(running)
        main, owner = self._main, self._owner
        on_main = threading.current_thread() is main.thread
        if on_main:
            name = running.name
            if name != self._titled:
                self._show(push, name)
            if self.assignment.actor is None:
                self.assignment.current_name = name
        made: list[Entry] = []
        done: Done | None
        started = time.perf_counter()
        try:
            try:
                if on_main:
                    main.running = running
                if running.cancelled:
                    raise KeyboardInterrupt
                done = self._call(connection, push, running, made)
            finally:
                if on_main:
                    main.running = None
                if owner.forked:
                    end_fork()
        except LostArguments as error:
            done = None
            owner.send_back(connection, push, error)
        except BaseException as error:
            done = self._answers.failed(push, running, error, time.perf_counter() - started)
        execution.reset(token)
        if done is not None:
            self._answers.answer(connection, done, made)
        else:
            self._answers.drop(connection, push)
        if on_main and self._calls.waiting:
            self.flush_now_and_then()

    def flush_now_and_then(self) -> None:
        """More calls follow at once: their answers leave together, but none waits long."""
        now = time.monotonic()
        if now - self._last_flush > FLUSH_EVERY_S:
            self._last_flush = now
            self._links.pump.flush_all()

    def _call(self, connection: Connection, push: Push, running: Execution, made: list[Entry]) -> Done:
        """`made` gets the references that came with the arguments: the answer waits for them, if it is an error too."""
        if thread_limit.pending:
            thread_limit.apply()
        args, kwargs, references = self._owner.unpack_or_send_back(push)
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
            return self._answers.partly_failed(connection, push, running, partial, seconds)
        return Done(push.task_id, values, seconds)

    def callable_of(self, push: Push) -> Callable[..., Any]:
        """What a push calls: a function, or a method of the actor."""
        if not push.method:
            function: Callable[..., Any] = self._owner.functions.load(push.key)
            return function
        if push.method == "__ray_call__":
            return lambda fn, /, *args, **kwargs: fn(self.assignment.actor, *args, **kwargs)
        if push.method == "__ray_ready__":
            return lambda: True
        if push.method == "__ray_terminate__":
            return self.endings.terminate
        return bound_method(self.assignment.actor, push.method)

    # ------------------------------------------------------------ actors

    def _make_actor(self, push: Push, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        setup, running, assignment = push.actor, self._main.running, self.assignment
        assert setup is not None
        assert running is not None
        assignment.becomes_actor(setup, running)
        if thread_limit.pending:
            thread_limit.apply()
        self.results.backpressure.limit = setup.stream_limit
        cls = self._owner.functions.load(push.key, setup.class_name)
        assignment.knows_class(cls, running)
        concurrent: ConcurrentCalls | None = None
        if assignment.is_async:
            concurrent = self._async = AsyncExecutor(
                self._links, self._owner, self._calls, self.results, self._answers, self.endings, self, setup
            )
            self.endings.concurrent = concurrent
            actor = self._async.construct(assignment.construct, cls, args, kwargs)
        else:
            actor = assignment.construct(cls, args, kwargs)
        assignment.constructed(actor)
        if concurrent is None and (setup.max_concurrency > 1 or setup.concurrency_groups):
            concurrent = ThreadedExecutor(self._links.pump, self._answers, self.endings, self, setup)
            self.endings.concurrent = concurrent
        if concurrent is not None:
            with self._links.lock:
                self._receiver.pass_on(concurrent)
