"""What a worker is told by its callers and its agent. Runs on the pumping thread, under the engine's lock."""

from __future__ import annotations

from runtime._transport.connection import Connection
from runtime._transport.dispatch import Handlers
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.node import MayEnd
from runtime._wire.messages.worker import (
    BindLease,
    Cancel,
    ExitActor,
    Push,
    ReleaseHold,
    Returned,
    StreamConsumed,
    TakeBack,
)

from .answers import Answers
from .assignment import Assignment
from .calls import Calls
from .concurrent_calls import ConcurrentCalls
from .cpu_lending import CpuLending
from .endings import Endings
from .main_thread import MainThread
from .owner_side import OwnerSide
from .results import Results


class Receiver:
    """The handlers of the messages that only workers get."""

    def __init__(
        self,
        owner: OwnerSide,
        calls: Calls,
        assignment: Assignment,
        main: MainThread,
        lending: CpuLending,
        results: Results,
        answers: Answers,
        endings: Endings,
    ) -> None:
        self._owner = owner
        self._calls = calls
        self._assignment = assignment
        self._main = main
        self._lending = lending
        self._results = results
        self._answers = answers
        self._endings = endings
        self._life = endings.life
        self._concurrent: ConcurrentCalls | None = None

    def handlers(self) -> Handlers:
        """The table of them."""
        return {
            Push: self._on_push,
            BindLease: self._on_bind,
            TakeBack: self._on_take_back,
            Cancel: self._on_cancel,
            ReleaseHold: self._on_release,
            StreamConsumed: self._results.backpressure.on_consumed,
            ExitActor: self._on_exit,
            MayEnd: self._on_may_end,
        }

    def pass_on(self, concurrent: ConcurrentCalls) -> None:
        """From now on calls run beside each other, those that wait already included. Under the lock."""
        self._concurrent = concurrent
        waiting = self._calls.waiting
        while waiting:
            connection, push = waiting.popleft()
            concurrent.submit(connection, push, self._calls.begin(connection, push))

    def connection_lost(self, connection: Connection) -> None:
        """A caller died: drop what it queued and what was kept for it."""
        self._calls.caller_lost(connection)
        self._results.caller_lost(connection)

    def _on_push(self, connection: Connection, push: Push, _correlation: int) -> None:
        if not self._life.accepts_calls:
            return  # the process ends, and says more to the caller than we could
        if self._concurrent is not None:
            self._concurrent.submit(connection, push, self._calls.begin(connection, push))
        elif self._lending.sends_back:
            connection.send(Returned([push.task_id], blocked=True))
        else:
            self._calls.waiting.append((connection, push))

    def _on_bind(self, _connection: Connection, message: BindLease, _correlation: int) -> None:
        self._assignment.bind(message)

    def _on_take_back(self, connection: Connection, message: TakeBack, _correlation: int) -> None:
        connection.send(Returned(self._calls.take_back(connection, message.count)))

    def _on_cancel(self, connection: Connection, message: Cancel, _correlation: int) -> None:
        task_id = message.task_id
        if self._calls.withdraw(connection, task_id):
            connection.send(self._answers.cancelled(task_id))
            return
        running = self._calls.begun.get((connection, task_id))
        ends_process = False
        if running is not None:
            running.cancelled = True
            if self._endings.concurrent is not None:
                self._endings.concurrent.cancel(connection, task_id)
            elif self._assignment.actor is None:
                ends_process = message.force
                if not ends_process:
                    self._main.interrupt(running)
        if message.recursive:
            self._owner.cancel_children(task_id, message.force)
        if ends_process:
            self._endings.abort("its task was cancelled")

    def _on_release(self, connection: Connection, message: ReleaseHold, _correlation: int) -> None:
        self._results.release(connection, message.task_id, message.attempt)

    def _on_may_end(self, connection: Connection, _message: MayEnd, correlation: int) -> None:
        if self._calls.waiting or self._results.lends or self._owner.is_needed():
            connection.reply(ErrorReply(ErrorKind.BUSY, "others refer to what this worker owns"), correlation)
        else:
            connection.reply(Ok(), correlation)

    def _on_exit(self, _connection: Connection, _message: ExitActor, _correlation: int) -> None:
        self._endings.unreferenced()
