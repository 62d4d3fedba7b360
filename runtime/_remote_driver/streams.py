"""Generators of a remote driver: each item is asked for when it is wanted, so that their limits hold as anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import messages

if TYPE_CHECKING:
    from runtime.object_ref import ObjectRef

    from .objects import RemoteObjects
    from .requests import Requests

_ANSWER_S = 60.0


class RemoteStream:
    """See `_owner.streaming.StreamReader`. The driver process has the stream."""

    def __init__(
        self, caller: Requests, objects: RemoteObjects, task_id: bytes, completed: ObjectRef
    ) -> None:
        self.caller = caller
        self._objects = objects
        self.task_id = task_id
        self.completed = completed

    @property
    def items(self) -> list[None]:
        """As many things as there are items; their values are not here."""
        return [None] * self._state()[0]

    @property
    def ended(self) -> bool:
        """Whether there will be no more items."""
        return self._state()[1]

    def _state(self) -> tuple[int, bool]:
        state: tuple[int, bool] = self.caller.request(
            lambda number: messages.StreamState(number, self.task_id), tuple[int, bool], _ANSWER_S
        )
        return state

    def next(self, timeout_s: float | None) -> ObjectRef | None:
        """See `StreamReader.next`."""
        return self._next(timeout_s, True)

    def peek(self) -> ObjectRef:
        """See `StreamReader.peek`."""
        ref = self._next(None, False)
        assert ref is not None
        return ref

    def _next(self, timeout_s: float | None, takes: bool) -> ObjectRef | None:
        caller = self.caller
        object_id: bytes | None = caller.request(
            lambda number: messages.Next(number, self.task_id, timeout_s, takes), bytes | None
        )
        if object_id is None:
            return None
        with caller.lock:
            self._objects.tell_of(object_id, caller.address)
            return self._objects.new_ref(self._objects.table.entries[object_id])

    def abandon(self) -> None:
        """The generator is gone. Under the lock."""
        self.caller.send(messages.DropStream(self.task_id))
