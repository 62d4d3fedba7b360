"""Runs the calls of an async actor: the main thread becomes an event loop, which pumps the sockets as well."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runtime._transport.connection import Connection
from runtime._wire.messages.worker import ActorSetup, Done, Push

from . import arguments
from .context import Execution, execution
from .objects import Entry
from .process_end import end_fork
from .results import PartialResult
from .streaming import STREAMING

if TYPE_CHECKING:
    from .core_worker import Core
    from .executor import Executor


class AsyncExecutor:
    """The event loop of one actor, with a limit of calls at once for each concurrency group."""

    def __init__(self, core: Core, executor: Executor, setup: ActorSetup) -> None:
        self._core = core
        self._executor = executor
        self._main = threading.current_thread()
        self._loop = asyncio.new_event_loop()
        self._limits = {"": asyncio.Semaphore(setup.max_concurrency)} | {
            group: asyncio.Semaphore(limit) for group, limit in setup.concurrency_groups.items()
        }
        self._calls: dict[bytes, asyncio.Task[Any]] = {}  # those that began, by task id
        self._flush_scheduled = False

    def construct(self, cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Makes the actor, in the loop: a constructor may start tasks there, or be a coroutine itself."""
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(_construct(cls, args, kwargs))

    def serve(self) -> None:
        """Turns the main thread into the loop, until the process ends."""
        self._loop.call_soon(self._executor.exit_if_idle)  # the constructor may have had enough
        pump = self._core.pump
        pump.drive_externally()
        self._loop.add_reader(pump.epoll.fileno(), pump.poll_once)
        self._loop.call_soon(pump.poll_once)
        self._loop.run_forever()

    def submit(self, connection: Connection, push: Push, running: Execution) -> None:
        """Starts a call. From any thread."""
        if threading.current_thread() is self._main:
            self._start(connection, push, running)
        else:
            self._loop.call_soon_threadsafe(self._start, connection, push, running)

    def cancel(self, task_id: bytes) -> None:
        """Cancels a call that is marked as cancelled. From any thread."""
        self._loop.call_soon_threadsafe(self._cancel, task_id)

    def exit_if_idle(self) -> None:
        """Ends the process once no call is left. From any thread."""
        self._loop.call_soon_threadsafe(self._executor.exit_if_idle)

    def _start(self, connection: Connection, push: Push, running: Execution) -> None:
        self._loop.create_task(self._run(connection, push, running))

    def _cancel(self, task_id: bytes) -> None:
        call = self._calls.get(task_id)  # none: it has ended, or will see the mark when it begins
        if call is not None:
            call.cancel()

    async def _run(self, connection: Connection, push: Push, running: Execution) -> None:
        execution.set(running)
        task = asyncio.current_task()
        assert task is not None
        self._calls[push.task_id] = task
        started = time.perf_counter()
        made: list[Entry] = []
        results = self._executor.results
        done: Done | None
        try:
            try:
                if running.cancelled:
                    raise asyncio.CancelledError
                async with self._limits.get(push.concurrency_group) or self._limits[""]:
                    if self._executor.leaving:
                        running.leaves = True
                        raise asyncio.CancelledError
                    if push.refs:
                        args, kwargs, made = await self._loop.run_in_executor(
                            None, arguments.unpack, self._core, push.args, push.refs
                        )
                    else:
                        args, kwargs, made = arguments.unpack(self._core, push.args, push.refs)
                    result = self._executor.callable_of(push)(*args, **kwargs)
                    if inspect.isawaitable(result):
                        result = await result
                    if running.cancelled:
                        raise asyncio.CancelledError  # whatever the method made of it
                    if push.num_returns < 0:
                        await self._stream(connection, push, result, running)
                    del args, kwargs
                    values = results.pack(connection, push, result)
                done = Done(push.task_id, values, time.perf_counter() - started)
            finally:
                if self._core.forked:
                    end_fork()
        except PartialResult as partial:
            seconds = time.perf_counter() - started
            done = self._executor.partly_failed(connection, push, running, partial, seconds)
        except BaseException as error:
            done = self._executor.failed(push, running, error, time.perf_counter() - started)
        del self._calls[push.task_id]
        if done is not None:
            self._executor.answer(connection, done, made)
        else:
            self._executor.drop(push)
        self._flush_soon()
        self._executor.exit_if_idle()

    async def _stream(self, connection: Connection, push: Push, result: Any, running: Execution) -> None:
        results = self._executor.results
        if hasattr(result, "__next__") or (hasattr(result, "__anext__") and push.num_returns == STREAMING):
            await results.stream_async(connection, push, result, self._flush_soon)
        else:
            results.stream(connection, push, result, running)  # says what is wrong

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._core.pump.flush_all()


async def _construct(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(cls.__init__):
        return cls(*args, **kwargs)
    actor = cls.__new__(cls, *args, **kwargs)
    await actor.__init__(*args, **kwargs)
    return actor
