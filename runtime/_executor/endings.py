"""Carries out how a worker process ends, as its lifecycle decides. Every end but a crash goes through here."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from runtime import exceptions
from runtime._owner.context import ActorExit, execution
from runtime._owner.links import Links
from runtime._transport.connection import Connection
from runtime._wire.messages.node import WorkerExiting
from runtime._wire.messages.worker import Retiring

from .assignment import Assignment
from .calls import Calls
from .concurrent_calls import ConcurrentCalls
from .lifecycle import Lifecycle
from .owner_side import OwnerSide
from .process_end import flush_output

log = logging.getLogger("runtime")
EXIT_NOTICE_S = 2.0
"""How long the agent may take to confirm that it knows why this process exits."""


class Endings:
    """The ends of one worker process.

    Attributes:
        life: what was decided.
        concurrent: what runs the actor's calls beside each other, if something does.
    """

    def __init__(self, links: Links, owner: OwnerSide, calls: Calls, assignment: Assignment) -> None:
        self._links = links
        self._owner = owner
        self._calls = calls
        self._assignment = assignment
        self._counts: Counter[bytes] = Counter()  # calls of the functions with max_calls
        self.life = Lifecycle()
        self.concurrent: ConcurrentCalls | None = None

    # ------------------------------------------------------------ what begins an end

    def unreferenced(self) -> None:
        """The last handle of the actor is gone. Under the lock."""
        self.life.unreferenced()
        if self.concurrent is not None:
            self.concurrent.exit_if_idle()

    def leave(self, reason: str, status: int = 0) -> None:
        """Starts a graceful exit: queued calls are dropped, concurrent ones finish, the calling one gets no reply. From
        any thread.
        """
        with self._links.lock:
            running = execution.get()
            if running is not None:
                running.cancelled = running.leaves = True
            self.life.leave(reason, status)
            # From now on our agent gives us some time, for what runs beside may never end.
            self._links.agent.call(self._exit_notice(), lambda _: None)
            self._links.pump.kick()
            self._calls.waiting.clear()
            if self.concurrent is not None:
                self.concurrent.drop_waiting()
        if self.concurrent is not None:
            self.concurrent.exit_if_idle()
        else:
            self._links.pump.wake()

    def terminate(self, reason: str = "exit_actor() is called.") -> NoReturn:
        """Ends the actor, out of one of its calls."""
        self.leave(reason)
        raise ActorExit(0)

    def is_last_call(self, key: bytes) -> bool:
        """Counts a call of a function that is over. Whether it is the last one that `max_calls` allows here."""
        limit = self._owner.functions.max_calls.get(key)
        if limit is None:
            return False
        self._counts[key] += 1
        if self._counts[key] == limit:
            # Before the answer, after which the worker could be leased to somebody.
            self._notify(WorkerExiting())
        return self._counts[key] >= limit

    def retire(self, connection: Connection, key: bytes, is_needed: Callable[[], bool]) -> NoReturn:
        """Ends the process when nobody needs it any more: others hold what we own, or wait for what we have started.
        The last answer, and `Retiring` after it, may wait until owners know of the references that are kept here."""
        name, limit = self._owner.functions.name(key), self._owner.functions.max_calls.get(key)
        told: list[bool] = []

        def tell() -> None:
            connection.send(Retiring())
            told.append(True)

        with self._links.lock:
            self.life.retire(f"{name} has reached max_calls={limit}.")
            self._calls.waiting.clear()
            self._owner.when_all_registered(tell)
        self._links.pump.flush_all()
        self._links.pump.wait(lambda: told and not is_needed())
        self.exit()

    # ------------------------------------------------------------ the end

    def may_exit(self) -> bool:
        """Whether the process was told to end, and nothing runs any more."""
        return self.life.ends_when_idle and self._calls.is_idle

    def exit_if_idle(self) -> None:
        """Ends the process if it was told to and nothing runs."""
        if self.may_exit():
            self.exit()

    def abort(self, reason: str) -> NoReturn:
        """Ends the process in the middle of a call. Under the lock."""
        self._links.agent.send(WorkerExiting(reason))
        self._links.pump.flush_all()
        os._exit(1)

    def exit(self, status: int | None = None) -> NoReturn:
        """Ends the process, with everything sent, when the last handlers of user code are through.

        Args:
            status: the choice of a task that called `sys.exit`.
        """
        with self._links.lock:
            self.life.exit(status)
        pump = self._links.pump
        pump.flush_all()
        if self.life.reason:
            self._notify(self._exit_notice())
        self._run_last_handlers()
        self._owner.report_tasks()
        flush_output()
        pump.flush_all()
        try:
            os.unlink(self._links.address.unix_path)
        except FileNotFoundError:
            pass
        os._exit(self.life.status)

    def _exit_notice(self) -> WorkerExiting:
        status = self.life.status
        return WorkerExiting(f"Worker exits with an exit code {status}. {self.life.reason}", status == 0)

    def _notify(self, message: WorkerExiting) -> None:
        try:
            self._links.pump.call(self._links.agent, message, EXIT_NOTICE_S)
        except (exceptions.RayError, OSError, TimeoutError):
            pass  # the agent is gone, or busy: it will see the end itself

    def _run_last_handlers(self) -> None:
        hook = getattr(self._assignment.actor, "__ray_shutdown__", None)
        if hook is not None:
            try:
                last = hook()
                if asyncio.iscoroutine(last) and self.concurrent is not None:
                    self.concurrent.finish(last)
            except BaseException:
                log.exception("__ray_shutdown__ of %s failed", self._assignment.current_name)
        del hook
        self._assignment.actor = None
        # No public function runs these alone: the interpreter's own end would first wait for threads of user code.
        atexit._run_exitfuncs()
