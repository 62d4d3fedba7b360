"""Many processes in one: an event heap, a virtual clock, and threads that take turns.

The code of the engine runs unchanged. Handlers run on the thread of the world; the code that waits (a driver's program,
a worker's loop) runs on a fiber, a thread that moves only while the world stands still. So one seed gives one run.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from runtime._process import core_worker
from runtime._wire.messages.base import WorkerAddress

if TYPE_CHECKING:
    from tests.sim.ownership.process import Process

MAX_EVENTS = 200_000
TRACE_LENGTH = 400


class Violation(AssertionError):
    """An invariant does not hold."""


class Killed(BaseException):
    """Unwinds the fiber of a process that died."""


class World:
    """Time, chance, and whose turn it is."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.fiber: Fiber | None = None
        self.failure: BaseException | None = None
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=TRACE_LENGTH)
        self.events = 0
        self.after_event: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Runs `action` after a while."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._sequence, action))

    def note(self, *what: Any) -> None:
        """Something for the trace that a failure shows."""
        self.trace.append((round(self.now - 1000.0, 6), *what))

    def story(self) -> str:
        """The last events, one per line."""
        return "\n".join(" ".join(map(_shown, line)) for line in self.trace)

    def fail(self, message: str) -> None:
        """An invariant broke; the run ends after this event, whoever swallows the exception.

        Raises:
            Violation: always.
        """
        violation = Violation(message)
        if self.failure is None:
            self.failure = violation
        raise violation

    def run(self) -> None:
        """Until nothing will ever happen again.

        Raises:
            BaseException: what `fail` was told, or what escaped from a fiber.
        """
        while self._heap:
            self.now, _, action = heapq.heappop(self._heap)
            self.events += 1
            if self.events > MAX_EVENTS:
                raise Violation(f"{MAX_EVENTS} events: this never comes to rest")
            action()
            if self.failure is not None:
                raise self.failure
            self.after_event()

    @contextmanager
    def inside(self, process: Process | None) -> Iterator[None]:
        """What runs within belongs to this process."""
        before = core_worker.current_or_none()
        core_worker.set_current(process.core if process is not None else None)
        try:
            yield
        finally:
            core_worker.set_current(before)

    def delay_s(self, scale_s: float) -> float:
        """A random delay, sometimes much longer than usual."""
        return self.rng.random() * scale_s * (20 if self.rng.random() < 0.05 else 1)


def _shown(what: Any) -> str:
    """Ids by their first bytes, and no pickles: what one reads a trace for."""
    if isinstance(what, bytes):
        return what.hex()[:16] + what.hex()[48:50] if len(what) == 28 else what.hex()[:16]
    if isinstance(what, WorkerAddress):
        return what.worker_id.rstrip(b".").decode()
    if isinstance(what, Struct):
        shown = [
            f"{name}={_shown(value)}"
            for name, value in structs.asdict(what).items()
            if value and name not in ("data", "buffers", "key", "pickled", "runtime_env")
        ]
        return f"{type(what).__name__}({', '.join(shown)})"
    if isinstance(what, list | tuple):
        return f"[{', '.join(map(_shown, what))}]"
    return str(what)


class Fiber:
    """A thread of a simulated process. `body` starts at the first turn."""

    def __init__(self, process: Process, body: Callable[[], None]) -> None:
        self.process = process
        self.done = False
        self.ready: Callable[[], Any] | None = None
        self.deadline: float | None = None
        self._body = body
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._main, name=f"fiber {process.name}", daemon=True)
        self.thread.start()

    def _main(self) -> None:
        self._go.acquire()
        try:
            if self.process.alive:
                self._body()
        except Killed:
            pass
        except BaseException as error:
            if self.process.alive and self.process.world.failure is None:
                self.process.world.failure = error
        self.done = True
        self._back.release()

    def turn(self) -> None:
        """Lets it run until it waits again. Called by the world."""
        world = self.process.world
        assert world.fiber is None
        world.fiber = self
        with world.inside(self.process):
            self._go.release()
            self._back.acquire()
        world.fiber = None
        if self.done:
            self.thread.join()

    def park(self, ready: Callable[[], Any], deadline: float | None = None) -> None:
        """Waits for another turn, which comes when `ready` or the deadline has. Called by the fiber.

        Raises:
            Killed: the process died meanwhile.
        """
        if not self.process.alive:
            raise Killed
        self.ready, self.deadline = ready, deadline
        if deadline is not None:
            world = self.process.world
            world.at(max(0.0, deadline - world.now), self.process.wake_fibers)
        self._back.release()
        self._go.acquire()
        self.ready = None
        if not self.process.alive:
            raise Killed

    def can_run(self) -> bool:
        """Whether its wait is over."""
        if self.done or self.ready is None:
            return False
        now = self.process.world.now
        return bool(self.ready()) or (self.deadline is not None and now >= self.deadline)

    def pause(self, delay_s: float) -> None:
        """Lets the rest of the world go on for a while."""
        world = self.process.world
        until = world.now + delay_s
        self.park(lambda: world.now >= until, until)
