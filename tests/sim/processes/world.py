"""Many processes in one: an event heap, a virtual clock, and threads that take turns.

The code of the engine runs unchanged. Handlers run on the thread of the world; the code that waits (a driver's program,
a worker's loop) runs on a fiber, a thread that moves only while the world stands still. So one seed gives one run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runtime._process import core_worker
from tests.sim.events import Events

if TYPE_CHECKING:
    from tests.sim.processes.process import Process


class Killed(BaseException):
    """Unwinds the fiber of a process that died."""


class World(Events):
    """Events, and whose turn it is."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.fiber: Fiber | None = None

    @contextmanager
    def inside(self, process: Process | None) -> Iterator[None]:
        """What runs within belongs to this process."""
        before = core_worker.current_or_none()
        core_worker.set_current(process.core if process is not None else None)
        try:
            yield
        finally:
            core_worker.set_current(before)


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
