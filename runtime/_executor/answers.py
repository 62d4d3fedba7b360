"""How a call ends for its caller: with results, with an error, or, as the process ends, without an answer."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._owner.context import ActorExit, Execution
from runtime._owner.errors import cannot_send
from runtime._owner.functions import instance_name
from runtime._owner.links import Links
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.worker import Done, Push

from .assignment import Assignment
from .calls import Calls
from .endings import Endings
from .owner_side import OwnerSide
from .process_end import exit_status
from .results import PartialResult, Results

log = logging.getLogger("runtime")


class Answers:
    """Answers the calls of a worker."""

    def __init__(
        self,
        links: Links,
        owner: OwnerSide,
        calls: Calls,
        assignment: Assignment,
        results: Results,
        endings: Endings,
    ) -> None:
        self._links = links
        self._owner = owner
        self._calls = calls
        self._assignment = assignment
        self._results = results
        self._endings = endings

    # ------------------------------------------------------------ to the caller

    def drop(self, connection: Connection, push: Push) -> None:
        """Ends a call without an answer: the process ends, and says more to its caller than we could."""
        with self._links.lock:
            self._calls.end(connection, push.task_id)

    def answer(self, connection: Connection, done: Done, made: list[Entry]) -> None:
        """Ends a task: sends its answer, once the owners know of the references in `made` that are still here."""
        owner = self._owner
        with self._links.lock:
            self._calls.begun.pop((connection, done.task_id), None)
            if owner.released:
                owner.drain()
            kept = owner.unregistered(made) if made else ()
            if kept:
                # The caller lets go of its references with our answer: ours must be known by then.
                owner.when_registered(kept, lambda: self._send(connection, done))
            else:
                try:
                    connection.send(done)
                except Exception as error:
                    self._cannot_send(connection, done, error)

    def _send(self, connection: Connection, done: Done) -> None:
        try:
            connection.send(done)
        except Exception as error:
            self._cannot_send(connection, done, error)

    def _cannot_send(self, connection: Connection, done: Done, error: Exception) -> None:
        value = self._owner.error_value(cannot_send("result of the call", error))
        self._results.release(connection, done.task_id)
        connection.send(msgspec.structs.replace(done, values=[value], failed=True))

    # ------------------------------------------------------------ errors

    def cancelled(self, task_id: bytes) -> Done:
        """The answer to a task that was cancelled before it began."""
        error = exceptions.TaskCancelledError(ids.TaskID(task_id))
        return Done(task_id, [self._owner.error_value(error)], failed=True)

    def failed(self, push: Push, running: Execution, error: BaseException, seconds: float) -> Done | None:
        """The answer to a call that raised. None when it ends the actor; no return when it ends the process."""
        assignment = self._assignment
        ends = (
            isinstance(error, ActorExit | exceptions.AsyncioActorExit)
            and not self._endings.life.accepts_calls
        )
        if running.leaves or ends:  # perhaps it was a thread of its own that called exit_actor
            return None
        setup = assignment.setup
        if isinstance(error, SystemExit):
            if setup is None:
                self._endings.exit(exit_status(error))
            self._endings.leave("sys.exit() was called.", exit_status(error))
            return None
        cancelled = isinstance(error, KeyboardInterrupt) or (
            running.cancelled and (assignment.is_async or isinstance(error, asyncio.CancelledError))
        )
        if push.method == "__init__":
            with self._links.lock:
                self._endings.life.not_constructed()
        name = running.function_name.rpartition(".")[2]
        wrapped = exceptions.RayTaskError.from_exception(
            error,
            f"{setup.class_name}.{push.method}" if setup is not None and push.method else name,
            pid=os.getpid(),
            ip=self._links.session.node_host,
            actor_repr=self._actor_name(),
            actor_id=setup.actor_id.hex() if setup is not None else None,
        )
        if push.method == "__init__":
            print(f"Exception raised in creation task: {exceptions.ActorDiedError(wrapped)}", file=sys.stderr)
        if cancelled:
            wrapped = wrapped.because_of(exceptions.TaskCancelledError(ids.TaskID(push.task_id)))
        retry = bool(push.retry_on) and _is_one_of(wrapped.cause, push.retry_on)
        return Done(push.task_id, [self._owner.error_value(wrapped)], seconds, True, retry)

    def _actor_name(self) -> str | None:
        setup, assignment = self._assignment.setup, self._assignment
        if setup is None:
            return None
        actor = assignment.actor if assignment.actor is not None else assignment.unfinished
        return instance_name(actor, setup.class_name)

    def partly_failed(
        self, connection: Connection, push: Push, running: Execution, partial: PartialResult, seconds: float
    ) -> Done:
        """The answer to a call whose generator gave some of the returns: those, and the error for each other one."""
        done = self.failed(push, running, partial.error, seconds)
        assert done is not None  # an Exception ends nothing
        given = self._results.pack_items(connection, push, partial.values)
        missing = push.num_returns - len(given)
        return msgspec.structs.replace(done, values=[*given, *done.values * missing])


def _is_one_of(error: BaseException | None, classes: Sequence[bytes]) -> bool:
    """Whether an error is of one of these pickled classes. Those that are unknown here cannot be its class."""
    for pickled in classes:
        try:
            if isinstance(error, serialization.deserialize(pickled)[0]):
                return True
        except Exception as problem:
            log.debug("a class of retry_exceptions cannot be loaded: %s", problem)
    return False
