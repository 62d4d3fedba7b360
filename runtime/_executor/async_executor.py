"""Runs the calls of an async actor on event loops. A single one is the main thread, and pumps the sockets as well."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from runtime._owner.context import Execution, execution
from runtime._owner.links import Links
from runtime._owner.streaming import STREAMING
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._transport.pump import Pump
from runtime._wire.messages.worker import ActorSetup, Done, Push

from .answers import Answers
from .calls import Calls
from .endings import Endings
from .owner_side import OwnerSide
from .process_end import end_fork
from .results import PartialResult, Results

Construct = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""Makes an instance of a class with positional and keyword arguments."""


class Methods(Protocol):
    """Finds what a call runs."""

    def callable_of(self, push: Push) -> Callable[..., Any]:
        """A method of the actor."""


class _Group:
    """A concurrency group: an event loop, with a limit of calls at once."""

    def __init__(self, name: str, limit: int, pump: Pump) -> None:
        self.loop = asyncio.new_event_loop()
        self.limit = asyncio.Semaphore(limit)
        self.thread: threading.Thread | None = None  # the main thread, if none
        self._name = name
        self._pump = pump
        self._flush_scheduled = False

    def start(self) -> None:
        """Gives the loop a thread of its own."""
        self.thread = threading.Thread(target=self._serve, name=f"actor-{self._name}", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def flush_soon(self, is_last: bool = False) -> None:
        """Sees to it that what was sent leaves when the loop has nothing else to do. On the loop."""
        if is_last:
            self._pump.flush_all()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._pump.flush_all()


class AsyncExecutor:
    """The event loops of one actor. Without concurrency groups there is one, and it is the main thread; with them each
    group has a thread of its own, and so have the other calls: a coroutine that blocks holds up only its group.
    """

    def __init__(
        self,
        links: Links,
        owner: OwnerSide,
        calls: Calls,
        results: Results,
        answers: Answers,
        endings: Endings,
        methods: Methods,
        setup: ActorSetup,
    ) -> None:
        self._pump = links.pump
        self._owner = owner
        self._begun = calls
        self._results = results
        self._answers = answers
        self._endings = endings
        self._methods = methods
        self._main = threading.current_thread()
        self._default = _Group("default", setup.max_concurrency, links.pump)
        self._groups = {"": self._default} | {
            name: _Group(name, limit, links.pump) for name, limit in setup.concurrency_groups.items()
        }
        self._threaded = len(self._groups) > 1
        self._calls: dict[tuple[Connection, bytes], asyncio.Task[Any]] = {}  # those that began
        self._waiting: set[tuple[Connection, bytes]] = (
            set()
        )  # of these, those that the limit of their group holds up

    def construct(self, make: Construct, cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Makes the actor, in the loop: a constructor may start tasks there, or be a coroutine itself.

        Args:
            make: calls the class, of a constructor that is no coroutine.
        """
        asyncio.set_event_loop(self._default.loop)
        return self._default.loop.run_until_complete(_construct(make, cls, args, kwargs))

    def serve(self) -> None:
        """Starts the loops. Without groups this turns the main thread into the loop, until the process is to end."""
        if self._threaded:
            asyncio.set_event_loop(None)
            for group in self._groups.values():
                group.start()
            return
        loop, pump = self._default.loop, self._pump
        pump.drive_externally()
        loop.add_reader(pump.epoll.fileno(), pump.poll_once)
        loop.call_soon(pump.poll_once)
        while not self._endings.may_exit():  # the constructor may have had enough
            loop.run_forever()

    def finish(self, last: Coroutine[Any, Any, Any]) -> None:
        """Runs the last coroutine of the actor to its end. On the main thread, when no call is left."""
        if not self._threaded:
            self._default.loop.run_until_complete(last)
            return
        future = asyncio.run_coroutine_threadsafe(last, self._default.loop)
        future.add_done_callback(lambda _: self._pump.wake())
        self._pump.wait(future.done)
        future.result()

    def submit(self, connection: Connection, push: Push, running: Execution) -> None:
        """Starts a call. From any thread."""
        group = self._groups.get(push.concurrency_group) or self._default
        if group.thread is None and threading.current_thread() is self._main:
            self._start(group, connection, push, running)
        else:
            group.loop.call_soon_threadsafe(self._start, group, connection, push, running)

    def cancel(self, connection: Connection, task_id: bytes) -> None:
        """Cancels a call that is marked as cancelled. From any thread."""
        call = self._calls.get(
            (connection, task_id)
        )  # none: it has ended, or will see the mark when it begins
        if call is not None:
            call.get_loop().call_soon_threadsafe(call.cancel)

    def waiting(self) -> set[tuple[Connection, bytes]]:
        """The calls that the limit of their group holds up. Under the lock."""
        return self._waiting.copy()

    def drop_waiting(self) -> None:
        """Calls that have not begun see for themselves that the process ends."""

    def exit_if_idle(self) -> None:
        """Ends the process if it was told to and no call is left. From any thread."""
        if self._threaded:
            self._pump.wake()
        else:
            self._default.loop.call_soon_threadsafe(self._default.loop.stop)  # `serve` looks, and may go on

    def _start(self, group: _Group, connection: Connection, push: Push, running: Execution) -> None:
        group.loop.create_task(self._run(group, connection, push, running))

    async def _run(self, group: _Group, connection: Connection, push: Push, running: Execution) -> None:
        execution.set(running)
        task = asyncio.current_task()
        assert task is not None
        key = connection, push.task_id
        self._calls[key] = task
        started = time.perf_counter()
        made: list[Entry] = []
        results = self._results
        done: Done | None
        try:
            try:
                if running.cancelled:
                    raise asyncio.CancelledError
                self._waiting.add(key)
                async with group.limit:
                    self._waiting.discard(key)
                    if self._endings.life.leaving:
                        running.leaves = True
                        raise asyncio.CancelledError
                    if push.refs:
                        args, kwargs, made = await group.loop.run_in_executor(None, self._owner.unpack, push)
                    else:
                        args, kwargs, made = self._owner.unpack(push)
                    result = self._methods.callable_of(push)(*args, **kwargs)
                    if isinstance(result, Coroutine):  # other awaitables, such as references, are results
                        result = await result
                    if running.cancelled:
                        raise asyncio.CancelledError  # whatever the method made of it
                    if push.num_returns < 0:
                        await self._stream(group, connection, push, result, running)
                    del args, kwargs
                    values = results.pack(connection, push, result)
                done = Done(push.task_id, values, time.perf_counter() - started)
            finally:
                if self._owner.forked:
                    end_fork()
        except PartialResult as partial:
            seconds = time.perf_counter() - started
            done = self._answers.partly_failed(connection, push, running, partial, seconds)
        except BaseException as error:
            done = self._answers.failed(push, running, error, time.perf_counter() - started)
        del self._calls[key]
        self._waiting.discard(key)  # it may have been cancelled there
        if done is not None:
            self._answers.answer(connection, done, made)
        else:
            self._answers.drop(connection, push)
        group.flush_soon(is_last=self._begun.is_idle)
        if self._endings.may_exit():
            self.exit_if_idle()

    async def _stream(
        self, group: _Group, connection: Connection, push: Push, result: Any, running: Execution
    ) -> None:
        results = self._results
        if hasattr(result, "__next__") or (hasattr(result, "__anext__") and push.num_returns == STREAMING):
            await results.stream_async(connection, push, result, group.flush_soon)
        else:
            results.stream(connection, push, result, running)  # says what is wrong


async def _construct(make: Construct, cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(cls.__init__):
        return make(cls, args, kwargs)
    actor = cls.__new__(cls, *args, **kwargs)
    await actor.__init__(*args, **kwargs)
    return actor
