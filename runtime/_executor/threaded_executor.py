"""Runs the calls of a threaded actor side by side, each concurrency group in threads of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime._owner.context import Execution
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import ActorSetup, Push

from .call_threads import CallThreads

if TYPE_CHECKING:
    from runtime._process.core_worker import Core

    from .executor import Executor


class ThreadedExecutor:
    """The threads of one actor."""

    def __init__(self, core: Core, executor: Executor, setup: ActorSetup) -> None:
        self._core = core
        self._executor = executor
        self._default = CallThreads(setup.max_concurrency, "actor", self._run)
        self._groups = {
            name: CallThreads(limit, f"actor-{name}", self._run)
            for name, limit in setup.concurrency_groups.items()
        }

    def submit(self, connection: Connection, push: Push, running: Execution) -> None:
        """Queues a call. Under the lock."""
        threads = self._groups.get(push.concurrency_group, self._default)
        threads.submit(threads, connection, push, running)

    def drop_waiting(self) -> None:
        """No call begins any more. Under the lock."""
        for threads in (self._default, *self._groups.values()):
            for _, connection, push, _ in threads.clear():
                self._executor.drop(connection, push)

    def _run(self, threads: CallThreads, connection: Connection, push: Push, running: Execution) -> None:
        executor, pump = self._executor, self._core.pump
        executor.run(connection, push, running)
        if threads.backlog:
            executor.flush_now_and_then()
        else:
            pump.flush_all()
        if executor.may_exit():
            pump.wake()
