"""The calls of a worker: those that wait for its main thread, and those that have begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from runtime._owner.context import Execution
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import Push


class Calls:
    """Changes under the engine's lock only.

    Attributes:
        waiting: in the order they came.
        begun: by caller and task id. As in every table of a worker, the id alone would not do: only each caller by
            itself keeps its ids apart.
    """

    __slots__ = ("_record", "begun", "waiting")

    def __init__(self, record: Callable[[Push], Execution]) -> None:
        """`record`: makes the record of a call that begins."""
        self._record = record
        self.waiting: deque[tuple[Connection, Push]] = deque()
        self.begun: dict[tuple[Connection, bytes], Execution] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing that came waits to."""
        return not self.begun and not self.waiting

    def begin(self, connection: Connection, push: Push) -> Execution:
        """From here on a call can be cancelled."""
        running = self.begun[connection, push.task_id] = self._record(push)
        return running

    def end(self, connection: Connection, task_id: bytes) -> None:
        """A call is over."""
        self.begun.pop((connection, task_id), None)

    def running_tasks(self, waiting: Container[tuple[Connection, bytes]] = ()) -> list[tuple[bytes, bool]]:
        """The ids of what has begun and is not over, and whether it runs: `waiting` are those that do not yet."""
        return [(call[1], call not in waiting) for call in self.begun]

    def take_back(self, connection: Connection, count: int) -> list[bytes]:
        """Gives up to `count` of the calls at the end of the queue back to their caller. Returns their ids in the
        order of the queue."""
        returned: list[bytes] = []
        while len(returned) < count and self.waiting and self.waiting[-1][0] is connection:
            returned.append(self.waiting.pop()[1].task_id)
        return returned[::-1]

    def take_back_all(self) -> dict[Connection, list[bytes]]:
        """Gives everything that waits back to its callers."""
        back: dict[Connection, list[bytes]] = {}
        while self.waiting:
            connection, push = self.waiting.popleft()
            back.setdefault(connection, []).append(push.task_id)
        return back

    def withdraw(self, connection: Connection, task_id: bytes) -> bool:
        """Drops a call that waits; whether there was one."""
        for item in self.waiting:
            if item[1].task_id == task_id and item[0] is connection:
                self.waiting.remove(item)
                return True
        return False

    def caller_lost(self, connection: Connection) -> None:
        """A caller died: nobody wants what it queued."""
        self.waiting = deque(item for item in self.waiting if item[0] is not connection)
