"""Runs the calls of a threaded actor side by side, each concurrency group in threads of its own."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from runtime._owner.context import Execution
from runtime._transport.connection import Connection
from runtime._transport.pump import Pump
from runtime._wire.messages.worker import ActorSetup, Push

from .answers import Answers
from .call_threads import CallThreads
from .endings import Endings


class Runner(Protocol):
    """Runs calls on the thread that asks."""

    def run(self, connection: Connection, push: Push, running: Execution) -> None:
        """Runs one call to its end, and answers."""

    def flush_now_and_then(self) -> None:
        """Sends the answers so far, if that was not done just before."""


class ThreadedExecutor:
    """The threads of one actor."""

    def __init__(
        self, pump: Pump, answers: Answers, endings: Endings, runner: Runner, setup: ActorSetup
    ) -> None:
        self._pump = pump
        self._answers = answers
        self._endings = endings
        self._runner = runner
        self._default = CallThreads(setup.max_concurrency, "actor", self._run)
        self._groups = {
            name: CallThreads(limit, f"actor-{name}", self._run)
            for name, limit in setup.concurrency_groups.items()
        }

    def submit(self, connection: Connection, push: Push, running: Execution) -> None:
        """Queues a call. Under the lock."""
        threads = self._groups.get(push.concurrency_group, self._default)
        threads.submit(threads, connection, push, running)

    def cancel(self, _connection: Connection, _task_id: bytes) -> None:
        """A thread cannot be interrupted: the call sees its mark when it begins or ends."""

    def waiting(self) -> set[tuple[Connection, bytes]]:
        """The calls that no thread has taken. Under the lock."""
        return {
            (connection, push.task_id)
            for threads in (self._default, *self._groups.values())
            for _, connection, push, _ in threads.waiting
        }

    def drop_waiting(self) -> None:
        """No call begins any more. Under the lock."""
        for threads in (self._default, *self._groups.values()):
            for _, connection, push, _ in threads.clear():
                self._answers.drop(connection, push)

    def exit_if_idle(self) -> None:
        """The main thread looks whether the process is to exit. From any thread."""
        self._pump.wake()

    def finish(self, last: Coroutine[Any, Any, Any]) -> None:
        """There is no event loop: the coroutine does not run."""
        last.close()

    def _run(self, threads: CallThreads, connection: Connection, push: Push, running: Execution) -> None:
        self._runner.run(connection, push, running)
        if threads.backlog:
            self._runner.flush_now_and_then()
        else:
            self._pump.flush_all()
        if self._endings.may_exit():
            self._pump.wake()
