"""The pump and its connections in the simulated world: messages arrive in order per direction, late by a seeded time,
and the last ones of a process that dies may never arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime._transport.connection import ReplyCallback
from runtime._wire.framing import REPLY_BIT
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message
from runtime._wire.messages.worker import Borrowed, BorrowRefs

if TYPE_CHECKING:
    from tests.sim.processes.process import Process
    from tests.sim.processes.world import World

STEP_S = 1e-7
SPEEDS_S = (0.0001, 0.001, 0.001, 0.01, 0.1)
"""Some connections are slow for the whole run: that is what reorders messages of different connections."""


class SimLock:
    """The lock of a process. Taking or leaving it, a fiber may lose its turn, as a thread may to the pumping one."""

    def __init__(self, process: Process, preempt: float) -> None:
        self._process = process
        self._preempt = preempt
        self.depth = 0

    def __enter__(self) -> None:
        if not self.depth:
            self._maybe_pause()
        self.depth += 1

    def __exit__(self, *_error: object) -> None:
        self.depth -= 1

    def _maybe_pause(self) -> None:
        world = self._process.world
        if world.fiber is not None and world.rng.random() < self._preempt:
            world.fiber.pause(world.delay_s(0.001))


class SimConnection:
    """One end. The interface of `runtime._transport.connection.Connection`."""

    def __init__(self, pump: SimPump, name: str, speed_s: float) -> None:
        self.pump = pump
        self.name = name
        self.handler: Callable[[Any, Message, int], None] = pump.handler
        self.on_close: Callable[[Any], None] | None = None
        self.context: Any = None
        self.peer: Any = None
        self.sent_functions: set[bytes] = set()
        self.closed = False
        self.congested = False
        self.other: SimConnection
        self._speed_s = speed_s
        self._last = 0.0
        self._cut = float("inf")
        self._calls: dict[int, tuple[Any, ReplyCallback]] = {}
        self._next = 0
        pump.connections.append(self)

    def send(self, message: Message, correlation: int = 0) -> None:
        if self.closed:
            return
        payload = codec.encode(message)
        self._later(lambda: self.other.receive(payload, correlation))

    def _later(self, action: Callable[[], None]) -> None:
        world = self.pump.world
        self._last = due = max(self._last + STEP_S, world.now + world.delay_s(self._speed_s))

        def arrive() -> None:
            if due <= self._cut:
                action()

        world.at(due - world.now, arrive)

    def call(self, request: Any, callback: ReplyCallback) -> None:
        if self.closed:
            callback(ErrorReply(ErrorKind.UNAVAILABLE, f"the connection to {self.name} is closed"))
            return
        self._next += 1
        self._calls[self._next] = (request, callback)
        if isinstance(request, BorrowRefs) and self.pump.process is not None:
            self.pump.process.borrows.update(dict.fromkeys(request.object_ids, request))
        self.send(request, self._next)

    def reply(self, message: Message, correlation: int) -> None:
        self.send(message, correlation | REPLY_BIT)

    def flush(self) -> None:
        """Everything is on its way already."""

    def close(self) -> None:
        if not self.closed:
            self._later(self.other.closed_by_peer)
            self._shut()

    def closed_by_peer(self) -> None:
        if not self.closed:
            self.pump.round(self._shut)

    def cut(self, clean: bool) -> None:
        """This end's process died. Unless it left cleanly, what was not flushed is lost; the end itself never is."""
        if self.closed:
            return
        world = self.pump.world
        self.closed = True
        unsent_s = max(0.0, self._last - world.now)
        if not clean:
            unsent_s *= world.rng.random()
            self._cut = world.now + unsent_s
        world.at(unsent_s + STEP_S, self.other.closed_by_peer)

    def receive(self, payload: bytes, correlation: int) -> None:
        if self.closed or not self.pump.alive():
            return
        message = codec.decode(payload)
        self.pump.world.note(self.other.pump.name, "->", self.pump.name, correlation, message)

        def dispatch() -> None:
            if not correlation & REPLY_BIT:
                self.handler(self, message, correlation)
                return
            request, callback = self._calls.pop(correlation & ~REPLY_BIT, (None, None))
            if isinstance(message, Borrowed) and message.unknown:
                self.pump.borrow_failed(request, message.unknown, ErrorKind.LOST)
            if callback is not None:
                callback(message)

        self.pump.round(dispatch)

    def _shut(self) -> None:
        self.closed = True
        calls, self._calls = self._calls, {}
        for request, callback in calls.values():
            error = ErrorReply(ErrorKind.UNAVAILABLE, f"the connection to {self.name} closed")
            if isinstance(request, BorrowRefs):
                self.pump.borrow_failed(request, request.object_ids, error.kind)
            callback(error)
        if self.on_close is not None:
            self.on_close(self)


class SimPump:
    """The interface of `runtime._transport.pump.Pump`. `process` is None for the agents' side."""

    def __init__(
        self, world: World, name: str, process: Process | None, handler: Callable[[Any, Any, int], None]
    ) -> None:
        self.world = world
        self.name = name
        self.process = process
        self.handler = handler
        self.lock: Any = SimLock(process, world.rng.choice((0.0, 0.05, 0.3))) if process is not None else None
        self.on_wait: Callable[[], float] | None = None
        self.failure: Exception | None = None
        self.connections: list[SimConnection] = []
        self._next_round = float("inf")

    def alive(self) -> bool:
        return self.process is None or self.process.alive

    # ------------------------------------------------------------ connections

    def connect_unix(self, path: str, name: str) -> SimConnection:
        assert self.process is not None
        return self.process.network.connect(self, path, name)

    def connect_tcp(self, host: str, port: int, _secret: bytes, name: str) -> SimConnection:
        assert self.process is not None
        try:
            return self.process.network.connect(self, f"{host}:{port}", name)
        except OSError:
            return self.process.network.connect_to_nobody(self, name)

    def listen_unix(self, path: str, on_accept: Callable[[Any], None]) -> None:
        assert self.process is not None
        self.process.network.listeners[path] = (self, on_accept)

    def listen_tcp(self, host: str, on_accept: Callable[[Any], None]) -> int:
        assert self.process is not None
        port = len(self.process.network.listeners) + 10_000
        self.process.network.listeners[f"{host}:{port}"] = (self, on_accept)
        return port

    def admit(self, _secret: bytes) -> None:
        """Everybody is admitted."""

    # ------------------------------------------------------------ waiting

    def wait(self, ready: Callable[[], Any], timeout_s: float | None = None, look_s: float = 0.0) -> bool:
        world = self.world
        if ready():
            return True
        fiber = world.fiber
        if fiber is None or self.lock.depth:
            world.fail("somebody waits under the lock or in a handler: nothing could ever come")
        assert fiber is not None
        deadline = None if timeout_s is None else world.now + timeout_s
        while not ready():
            if self.failure is not None:
                raise self.failure
            if deadline is not None and world.now >= deadline:
                return bool(ready())
            fiber.park(ready, deadline)
        return True

    def call(self, connection: SimConnection, request: Any, timeout_s: float | None = 30.0) -> Any:
        if self.world.fiber is None:
            return connection.context(request)  # a process that starts: the agent answers at once
        box: list[Any] = []
        connection.call(request, box.append)
        if not self.wait(lambda: box, timeout_s):
            return ErrorReply(ErrorKind.TIMEOUT, "no answer")
        return box[0]

    def poll_once(self) -> None:
        """Gives what is under way a chance to arrive."""
        if self.world.fiber is not None and not self.lock.depth:
            self.world.fiber.pause(self.world.delay_s(0.001))

    def round(self, dispatch: Callable[[], None] | None = None) -> None:
        """Handles one event under the lock, and what is due after it."""
        if not self.alive():
            return
        process = self.process
        if process is None:
            if dispatch is not None:
                dispatch()
            return
        with self.world.inside(process):
            self.lock.depth += 1
            try:
                if dispatch is not None:
                    dispatch()
                again_s = self.on_wait() if self.on_wait is not None else 1.0
            finally:
                self.lock.depth -= 1
        process.touched = True
        if again_s < 0.2:
            self.round_soon(again_s)
        process.wake_fibers()

    def round_soon(self, delay_s: float) -> None:
        """Sees to it that a round happens by then."""
        due = self.world.now + delay_s
        if due >= self._next_round:
            return
        self._next_round = due

        def tick() -> None:
            if self._next_round == due:
                self._next_round = float("inf")
                self.round()

        self.world.at(delay_s, tick)

    def borrow_failed(self, request: BorrowRefs, unknown: list[bytes], kind: str) -> None:
        if self.process is not None:
            self.process.borrow_failed(request, unknown, kind)

    def kick(self) -> None:
        """Messages leave by themselves here."""

    wake = flush_all = start = stop = kick


class Network:
    """Who listens where."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[str, tuple[SimPump, Callable[[Any], None]]] = {}
        self._nobody = SimPump(world, "nobody", None, lambda _connection, _message, _correlation: None)

    def connect(self, pump: SimPump, address: str, name: str) -> SimConnection:
        """A pair of connected ends.

        Raises:
            OSError: nobody listens there any more.
        """
        found = self.listeners.get(address)
        if found is None or not found[0].alive():
            raise ConnectionRefusedError(address)
        speed_s = self.world.rng.choice(SPEEDS_S)
        ours, theirs = SimConnection(pump, name, speed_s), SimConnection(found[0], pump.name, speed_s)
        ours.other, theirs.other = theirs, ours
        found[1](theirs)
        return ours

    def connect_to_nobody(self, pump: SimPump, name: str) -> SimConnection:
        """Connections to other nodes are made in the background: that nobody is there turns out later."""
        ours, theirs = SimConnection(pump, name, 0.01), SimConnection(self._nobody, pump.name, 0.01)
        ours.other, theirs.other = theirs, ours
        theirs.closed = True
        self.world.at(self.world.delay_s(0.1), ours.closed_by_peer)
        return ours
