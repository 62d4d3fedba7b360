"""A simulated driver or worker: the real `Core` with everything in it, on a simulated pump and store."""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

from runtime import exceptions
from runtime._executor import endings, executor, main_thread
from runtime._owner import arguments, objects, reading, submitter
from runtime._owner.links import Links
from runtime._owner.store import Pin
from runtime._ownership.released import Released
from runtime._process import core_worker
from runtime._process.owner_side import OwnerSide
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.node import Register, StoreFree
from runtime._wire.messages.worker import BorrowRefs
from tests.sim.processes.network import Network, SimPump
from tests.sim.processes.world import Fiber, World

if TYPE_CHECKING:
    from runtime._ownership.records import Entry
    from tests.sim.processes.cluster import Cluster, Node

INLINE_BYTES = 1000
"""Small, so that small values go to the store."""


class SimMainThread(main_thread.MainThread):
    """A task that runs may end before the signal comes that would interrupt it: here it always does."""

    def interrupt(self, running: Any) -> None:
        """The signal comes too late."""


class SimEndings(endings.Endings):
    """Ends a simulated process only."""

    def __init__(self, process: Process, *parts: Any) -> None:
        super().__init__(*parts)
        self._process = process

    def exit(self, status: int | None = None) -> NoReturn:
        self._process.kill(clean=True)
        self._process.fibers[0].park(lambda: False)
        raise AssertionError("a process that has ended runs on")


class SimStore:
    """The interface of `runtime._owner.store.Store`, on a node of the simulated cluster."""

    lingers = False
    ahead_limit_bytes = 1 << 20

    def __init__(
        self, links: Links, released: Released, drain: Callable[[], None], _path: str, _capacity_bytes: int
    ) -> None:
        self._links = links
        self._released = released
        self._drain = drain
        pump: Any = links.pump
        self._process: Process = pump.process
        self._node: Node = self._process.node

    def put(self, object_id: bytes, serialized: serialization.Serialized) -> int:
        return self.create(object_id, serialized, self._links.address)[0]

    def create(
        self,
        object_id: bytes,
        serialized: serialization.Serialized,
        owner: WorkerAddress,
        *,
        again: bool = False,
        keeper: bytes = b"",
    ) -> tuple[int, int]:
        self._drain()
        self._pause()
        self._node.objects[object_id] = (
            serialized.data,
            list(map(bytes, serialized.buffers)),
            owner.worker_id,
        )
        self._node.primary.add(object_id)
        return serialized.size_bytes, -1

    def fetch(self, object_id: bytes, locations: list[bytes], _timeout_s: float | None) -> Pin:
        self._pause()
        found = self._process.cluster.find_copy(self._node, object_id, locations)
        if found is None:
            raise exceptions.ObjectLostError(object_id.hex(), b"", "")
        self._node.objects[object_id] = found
        pin = Pin(object_id, 0, len(found[0]), self._released)
        pin.count = 1
        self._process.pins += 1
        return pin

    def prefetch(
        self, object_id: bytes, locations: list[bytes], callback: Callable[[ErrorReply | None], None]
    ) -> None:
        def arrive() -> None:
            found = self._process.cluster.find_copy(self._node, object_id, locations)
            if found is not None:
                self._node.objects[object_id] = found
            lost = ErrorReply(ErrorKind.LOST, "no copy is left")
            self._process.pump.round(lambda: callback(None if found is not None else lost))

        self._process.world.at(self._process.world.delay_s(0.01), arrive)

    def read(self, pin: Pin) -> tuple[Any, list[Any]]:
        data, buffers, _ = self._node.objects[pin.object_id]
        return serialization.deserialize(data, buffers)

    def release(self, pin: Pin) -> None:
        pin.count -= 1
        self._process.pins -= 1

    def free(self, object_ids: list[bytes], locations: list[bytes]) -> None:
        self._links.agent.send(StoreFree(object_ids, locations, unpinned=True))

    def empty(self, object_id: bytes, locations: list[bytes]) -> None:
        self._links.agent.send(StoreFree([object_id], locations))

    def say_all(self) -> None:
        """The node knows each object at once."""

    def on_settle(self, *_: Any) -> None:
        raise AssertionError("the simulated agent does not ask")

    def outdate(self, _object_id: bytes) -> None:
        """See `forget`."""

    def forget(self, _object_ids: list[bytes]) -> None:
        """Pins of nothing are not simulated."""

    def tick(self, _now: float) -> None:
        """See `forget`."""

    def close(self) -> None:
        """Nothing is mapped."""

    def _pause(self) -> None:
        fiber = self._process.world.fiber
        assert fiber is not None
        fiber.pause(self._process.world.delay_s(0.001))


class Process:
    """One process. `state` is what user code keeps in it from task to task."""

    def __init__(
        self, world: World, cluster: Cluster, network: Network, node: Node, name: str, is_driver: bool
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.network = network
        self.node = node
        self.name = name
        self.is_driver = is_driver
        self.alive = True
        self.touched = False
        self.doomed = False
        self.state: list[Any] = []
        self.pins = 0
        self.fibers: list[Fiber] = []
        self.borrows: dict[bytes, BorrowRefs] = {}
        self.failed_borrows: set[bytes] = set()
        self.rng = random.Random(world.rng.random())
        worker_id = name.encode().ljust(28, b".")  # what differs comes first: paths use only that
        self.core: core_worker.Core
        self.pump: SimPump

        def pump(handler: Callable[[Any, Any, int], None]) -> SimPump:
            self.pump = SimPump(world, name, self, handler)
            return self.pump

        register = Register(is_driver, WorkerAddress(worker_id, b"", ""), 1)
        with mock.patch.multiple(core_worker, Pump=pump, Store=SimStore):
            self.core = core_worker.Core(node.agent_path, register, worker_id)
        self.entries: dict[bytes, Entry] = self.core.objects.table.entries

    def start(self, body: Callable[[], None] | None = None) -> None:
        """Begins: a driver with its program, a worker with its loop."""
        if body is not None:
            self.fibers.append(Fiber(self, body))
            self.core.start({})
        else:
            self.fibers.append(Fiber(self, lambda: calls.run_forever()))
            calls = executor.Executor(
                self.core.links,
                OwnerSide(self.core),
                functools.partial(SimEndings, self),
                SimMainThread,
                self.fibers[0].thread,
            )
            self.core.start(calls.handlers(), calls)
        fiber = self.fibers[0]
        fiber.ready = lambda: True
        self.world.at(self.world.delay_s(0.001), self.wake_fibers)

    def wake_fibers(self) -> None:
        """Gives every fiber whose wait is over its turn: now, or a little later."""
        for fiber in self.fibers:
            while self.alive and fiber.can_run():
                if self.world.rng.random() < 0.3:
                    self.world.at(self.world.delay_s(0.001), self.wake_fibers)
                    break
                self.touched = True
                fiber.turn()
                if self.world.failure is not None:
                    return
        if self.alive and self.core.released:
            self.pump.round_soon(self.world.delay_s(0.01))

    def kill(self, clean: bool = False) -> None:
        """The process ends at once; `clean`: after everything it said has left."""
        if not self.alive:
            return
        self.world.note("killed", self.name, "cleanly" if clean else "")
        self.alive = False
        self.cluster.ended = True
        for connection in self.pump.connections:
            connection.cut(clean)
        me = self.world.fiber
        for fiber in self.fibers:
            if fiber is not me and not fiber.done:
                self.world.at(0.0, fiber.turn)
        if me is not None and me not in self.fibers:
            raise AssertionError("one process kills another from its fiber")

    def borrow_failed(self, request: BorrowRefs, unknown: list[bytes], kind: str) -> None:
        """The owner did not know one of these, or was gone. It matters while we hold what we asked for just then."""
        held = [o for o in unknown if o in self.entries and self.borrows[o] is request]
        self.failed_borrows.update(held)
        if held and kind == ErrorKind.LOST and not self.cluster.killed and not self.cluster.is_doomed(self):
            self.world.fail(f"{self.name} borrowed what was freed: {[o.hex() for o in held]}")


@contextlib.contextmanager
def simulated_time(world: World) -> Iterator[None]:
    """The clock and the random bytes of the engine come from the world meanwhile, and nothing else is chance."""
    clock = SimpleNamespace(
        monotonic=lambda: world.now, perf_counter=lambda: world.now, time=lambda: world.now
    )
    entropy = random.Random(world.rng.random())
    before = signal.getsignal(signal.SIGINT)
    with contextlib.ExitStack() as stack:
        for module in (reading, submitter, executor, core_worker):
            stack.enter_context(mock.patch.object(module, "time", clock))
        for module in (objects, arguments):
            stack.enter_context(mock.patch.object(module, "INLINE_BYTES", INLINE_BYTES))
        stack.enter_context(mock.patch("os.urandom", entropy.randbytes))
        # They would be logged from threads of their own.
        stack.enter_context(mock.patch.dict("os.environ", RAY_IGNORE_UNHANDLED_ERRORS="1"))
        gc.disable()  # when it runs is chance, and references die by it
        try:
            yield
        finally:
            gc.enable()
            signal.signal(signal.SIGINT, before)
