"""What the programs of a run expect, outside of the simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from runtime._core import ids
from runtime._ownership.records import Entry

if TYPE_CHECKING:
    from tests.sim.ownership.process import Process


class Book:
    """Everything has an order: each `put`, the results of each call, each actor. Programs wait for older things only,
    so that none waits for itself; and nothing keeps what keeps it, as no reference count frees a cycle.
    """

    def __init__(self) -> None:
        self.orders: dict[bytes, int] = {}
        """By task id."""
        self.once: set[bytes] = set()
        """The tasks and calls without retries."""
        self.begun: Counter[bytes] = Counter()
        self.ended: set[tuple[bytes, int]] = set()
        self._inside: dict[int, set[int]] = {}
        self._count = 0
        self._expected: dict[int, Process] = {}
        self._heard: Counter[int] = Counter()

    def expect(self, process: Process) -> int:
        """A process wants to be called when an object has a value. Returns what `heard` takes."""
        number = len(self._expected)
        self._expected[number] = process
        return number

    def heard(self, number: int) -> None:
        """The call came."""
        self._heard[number] += 1
        if self._heard[number] > 1:
            raise AssertionError("a completion came twice")

    def unheard(self) -> list[str]:
        """Which completions were lost."""
        lost = [process for number, process in self._expected.items() if not self._heard[number]]
        return [f"{process} was never told of a value" for process in lost if process.alive]

    def enter(self, task_id: bytes) -> int:
        """A new thing. Returns its order."""
        self._count += 1
        self.orders[task_id] = self._count
        return self._count

    def order(self, entry: Entry) -> int:
        """Of an object."""
        return self.orders[ids.task_id_of(entry.object_id)]

    def nest(self, order: int, entries: Iterable[Entry]) -> list[Entry]:
        """Notes that `order` will keep these, and returns those that would not make a cycle."""
        fine = [entry for entry in entries if not self._reaches(self.order(entry), order)]
        self._inside.setdefault(order, set()).update(self.order(entry) for entry in fine)
        return fine

    def _reaches(self, start: int, goal: int) -> bool:
        seen, queue = {start}, [start]
        while queue:
            new = self._inside.get(queue.pop(), set()) - seen
            seen |= new
            queue += new
        return goal in seen

    def begin(self, task_id: bytes) -> None:
        """A worker calls user code."""
        self.begun[task_id] += 1
        if task_id in self.once and self.begun[task_id] > 1:
            raise AssertionError(f"{task_id.hex()} has no retries and was called twice")

    def attempt_ended(self, task_id: bytes, attempt: int) -> None:
        """The owner counts an attempt as over."""
        if (task_id, attempt) in self.ended:
            raise AssertionError(f"attempt {attempt} of {task_id.hex()} ended twice")
        self.ended.add((task_id, attempt))
