"""Generators of a remote driver: each item is asked for when it is wanted, so that their limits hold as anywhere."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from runtime import exceptions

from . import messages

if TYPE_CHECKING:
    from runtime.object_ref import ObjectRef

    from .objects import RemoteObjects
    from .requests import Requests

_ANSWER_S = 60.0


class RemoteStream:
    """See `_owner.streaming.StreamReader`. The driver process has the stream.

    The receiving thread takes the answers, so an interrupt (Ctrl-C) of a thread that waits for one loses no item: the
    same position is asked for, or has come, when `next` is called again.
    """

    def __init__(
        self, caller: Requests, objects: RemoteObjects, task_id: bytes, completed: ObjectRef
    ) -> None:
        self.caller = caller
        self._objects = objects
        self.task_id = task_id
        self.completed = completed
        self._turn = threading.Lock()  # of the one thread that asks
        self._position = 0  # of the next item
        self._came: dict[int, ObjectRef | None] = {}  # by position; None is the end
        self._peeked: ObjectRef | None = None  # kept for those who wait for its value

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
            lambda number: messages.StreamState(number, self.task_id, self._position),
            tuple[int, bool],
            _ANSWER_S,
        )
        return state

    def next(self, timeout_s: float | None) -> ObjectRef | None:
        """See `StreamReader.next`."""
        if not self._turn.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise exceptions.GetTimeoutError(f"Another thread waits for the next item, for {timeout_s:g} s.")
        try:
            position = self._position
            if position not in self._came:
                self._ask(position, timeout_s, True)
            ref = self._came[position]
            if ref is not None:  # else the next call ends, too
                with self.caller.lock:
                    self._position += 1
                    del self._came[position]
            return ref
        finally:
            self._turn.release()

    def peek(self) -> ObjectRef:
        """See `StreamReader.peek`."""
        position = self._position
        ref = self._came.get(position)
        if ref is None:
            ref = self._made(self._ask(position, None, False))
            assert ref is not None
            self._peeked = ref
        return ref

    def _ask(self, position: int, timeout_s: float | None, takes: bool) -> bytes | None:
        object_id: bytes | None = self.caller.request(
            lambda number: messages.Next(number, self.task_id, position, timeout_s, takes),
            bytes | None,
            done=partial(self._take, position) if takes else None,
        )
        return object_id

    def _take(self, position: int, answer: msgspec.Raw) -> None:
        """The item at a position has come, whether or not somebody still waits. On the receiving thread."""
        ref = self._made(msgspec.msgpack.decode(answer, type=bytes | None))
        with self.caller.lock:
            if position >= self._position:
                self._came[position] = ref

    def _made(self, object_id: bytes | None) -> ObjectRef | None:
        if object_id is None:
            return None
        with self.caller.lock:
            self._objects.tell_of(object_id, self.caller.address)
            return self._objects.new_ref(self._objects.table.entries[object_id])

    def abandon(self) -> None:
        """The generator is gone. Under the lock."""
        self.caller.send(messages.DropStream(self.task_id))
