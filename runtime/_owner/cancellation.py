"""Cancelling what makes an object: here when this process submitted it, else where that was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime._core import ids
from runtime._ownership.calls import Call
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import CancelObject

if TYPE_CHECKING:
    from runtime._process.core_worker import Core

NOT_BY_FORCE = (
    "force=True is not supported for actor tasks: it would kill the whole actor. Use kill() if that is meant."
)


class Cancellation:
    """Finds the task or call behind an object."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def cancel(self, entry: Entry, force: bool, recursive: bool) -> None:
        """Cancels the task or call whose result is `entry`; nothing happens when it is over.

        Raises:
            ValueError: `force` on an actor's call.
        """
        core = self._core
        task_id = ids.task_id_of(entry.object_id)
        with core.lock:
            if entry.owner is None:
                if force and isinstance(core.outcomes.pending.get(task_id), Call):
                    raise ValueError(NOT_BY_FORCE)
                core.outcomes.cancel(task_id, force, recursive)
            elif entry.value is None:
                if force and ids.is_actor(ids.actor_id_of(task_id)):
                    raise ValueError(NOT_BY_FORCE)
                owner = core.peer(entry.owner)
                if owner is not None:
                    owner.send(CancelObject(entry.object_id, force, recursive))
        core.pump.kick()

    def on_cancel(self, _connection: Connection, message: CancelObject, _correlation: int) -> None:
        """A borrower of one of our objects wants its task cancelled."""
        self._core.outcomes.cancel(ids.task_id_of(message.object_id), message.force, message.recursive)
