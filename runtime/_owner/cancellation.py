"""Cancelling what makes an object: here when this process submitted it, else where that was."""

from __future__ import annotations

from runtime._core import ids
from runtime._ownership.calls import Call
from runtime._ownership.outcomes import Outcomes
from runtime._ownership.records import STORED, Entry
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import CancelObject

from .links import Links

NOT_BY_FORCE = (
    "force=True is not supported for actor tasks: it would kill the whole actor. Use kill() if that is meant."
)


class Cancellation:
    """Finds the task or call behind an object."""

    def __init__(self, links: Links, outcomes: Outcomes) -> None:
        self._links = links
        self._outcomes = outcomes

    def cancel(self, entry: Entry, force: bool, recursive: bool) -> None:
        """Cancels the task or call whose result is `entry`. Once it is over, its lost results are not rebuilt any more.

        Raises:
            ValueError: `force` on an actor's call.
        """
        links = self._links
        task_id = ids.task_id_of(entry.object_id)
        with links.lock:
            if entry.owner is None:
                if force and isinstance(self._outcomes.pending.get(task_id), Call):
                    raise ValueError(NOT_BY_FORCE)
                self._outcomes.cancel(entry.object_id, force, recursive)
            elif entry.value is None or entry.value.kind == STORED:
                if force and entry.value is None and ids.is_actor(ids.actor_id_of(task_id)):
                    raise ValueError(NOT_BY_FORCE)
                owner = links.peer(entry.owner)
                if owner is not None:
                    owner.send(CancelObject(entry.object_id, force, recursive))
        links.pump.kick()

    def on_cancel(self, _connection: Connection, message: CancelObject, _correlation: int) -> None:
        """A borrower of one of our objects wants its task cancelled."""
        self._outcomes.cancel(message.object_id, message.force, message.recursive)
