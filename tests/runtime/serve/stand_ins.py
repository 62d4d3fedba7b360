"""A replica of a few lines that speaks the real protocol, and followed keys in memory."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from runtime.serve._core.published import Target, Targets, dump, targets_key
from runtime.serve._core.slots import Effects, Lender
from runtime.serve._wire import values
from runtime.serve._wire.connection import Connection
from runtime.serve._wire.messages import (
    WINDOW_BYTES,
    Call,
    Cancel,
    Chunk,
    End,
    Event,
    Failure,
    Hello,
    Http,
    Item,
    Models,
    Result,
    Return,
    Start,
    Statistics,
    Want,
    Welcome,
    Window,
)

TOKEN = b"token"
NODE = "aa"


class Keys:
    """Followed keys without a control store."""

    def __init__(self, deliver: Any) -> None:
        self._deliver = deliver
        self._values: dict[bytes, bytes] = {}
        self._followed: set[bytes] = set()

    def follow(self, key: bytes) -> None:
        self._followed.add(key)
        self._deliver(key, self._values.get(key))

    def publish(self, targets: Targets | None, app: str = "app", deployment: str = "D") -> None:
        key = targets_key(app, deployment)
        if targets is None:
            self._values.pop(key, None)
        else:
            self._values[key] = dump(targets)
        if key in self._followed:
            self._deliver(key, self._values.get(key))

    def forget(self, key: bytes) -> None:
        self._followed.discard(key)

    def close(self) -> None:
        self._followed.clear()


class Deployment:
    """What a stand-in runs."""

    def __init__(self, replica: StandIn) -> None:
        self.replica = replica
        self.gate = asyncio.Event()

    async def __call__(self, value: Any = None) -> Any:
        return value

    async def who(self) -> str:
        return self.replica.name

    async def pause(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return self.replica.name

    async def wait(self) -> str:
        await self.gate.wait()
        return self.replica.name

    async def fail(self, text: str) -> None:
        raise ValueError(text)

    async def exit(self) -> None:
        os._exit(1)

    async def count(self, count: int, size: int = 0) -> AsyncIterator[Any]:
        for number in range(count):
            yield bytes(size) if size else number

    async def count_and_fail(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number
        raise ValueError("at the end")

    async def most_running(self) -> int:
        return self.replica.most_running

    async def items_sent(self) -> int:
        return self.replica.items_sent


class StandIn:
    """A replica on a Unix socket of the running loop."""

    def __init__(self, slots: int = 5, name: str = "") -> None:
        self.name = name or f"app#D#{uuid.uuid4().hex[:6]}"
        self.lender = Lender(slots)
        self.code = Deployment(self)
        self.most_running = 0
        self.items_sent = 0
        self.refuse_next = 0
        self.without_slot = 0
        self.cancelled: list[str] = []
        self.begun: list[str] = []
        self.http: list[Http] = []
        self._slots = slots
        self._unix = f"\0{uuid.uuid4().hex}"
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._tasks: dict[tuple[Connection, int], asyncio.Task[None]] = {}
        self._credit: dict[tuple[Connection, int], int] = {}
        self._room: dict[tuple[Connection, int], asyncio.Event] = {}
        self._kept: dict[Connection, values.Kept] = {}
        self._bodies: dict[tuple[Connection, int], deque[bytes]] = {}
        self._more: dict[tuple[Connection, int], asyncio.Event] = {}

    async def start(self) -> Target:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: Connection(self._received, self._lost, from_replica=False), self._unix
        )
        return self.target

    @property
    def target(self) -> Target:
        return Target(self.name, TOKEN, NODE, self._unix, "", 0, self._slots)

    @property
    def kept(self) -> int:
        return sum(len(kept) for kept in self._kept.values())

    def describe(self, models: list[str], **statistics: Any) -> None:
        for connection in self._connections:
            connection.send(Models(models))
            connection.send(Statistics(statistics))

    def resize(self, slots: int) -> None:
        self._slots = slots
        self._send(self.lender.resize(slots))

    def drain(self) -> None:
        self._send(self.lender.drain())

    def close(self) -> None:
        """As if the process died."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            assert connection._transport is not None
            connection._transport.abort()
        for task in self._tasks.values():
            task.cancel()

    # ------------------------------------------------------------ the protocol

    def _send(self, effects: Effects) -> None:
        for connection, message in effects:
            assert isinstance(connection, Connection)
            connection.send(message)

    def _lost(self, connection: Connection, _error: BaseException | None) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            for (owner, _), task in self._tasks.items():
                if owner is connection:
                    task.cancel()
            self._send(self.lender.gone(connection))

    def _received(self, connection: Connection, message: Any) -> None:
        match message:
            case Hello():
                if message.token != TOKEN:
                    connection.close()
                    return
                self._connections.add(connection)
                self._kept[connection] = values.Kept()
                self.lender.connect(connection)
                connection.send(Welcome(self.name, self._slots))
            case Want():
                self._send(self.lender.want(connection, message.waiting))
            case Return():
                self._send(self.lender.give_back(connection, message.slots))
            case Call() | Http():
                self._begin(connection, message)
            case Cancel():
                if task := self._tasks.get((connection, message.number)):
                    asyncio.get_running_loop().call_soon(
                        task.cancel
                    )  # before its first turn it would not answer
            case Window():
                self._kept[connection].used(message.number, message.size)
                place = connection, message.number
                if place in self._credit:
                    self._credit[place] += message.size
                    self._room[place].set()
            case Chunk():
                self._bodies[connection, message.number].append(message.body)
                connection.send(Window(message.number, len(message.body)))
                if not message.more:
                    self._more[connection, message.number].set()
            case Event():
                connection.send(
                    Event(message.number, {"type": "websocket.send", **message.event, "echo": True})
                )

    def _begin(self, connection: Connection, message: Call | Http) -> None:
        if not self.lender.begin(connection):
            self.without_slot += 1
            raise ValueError("a request without a slot")
        place = connection, message.number
        if self.refuse_next:
            self.refuse_next -= 1
            self._end(place, lambda keep: Failure(message.number, "refused", b"", keep))
            return
        self.begun.append(message.meta.request_id)
        self.most_running = max(self.most_running, self.lender.ongoing)
        self._credit[place], self._room[place] = WINDOW_BYTES, asyncio.Event()
        self._bodies[place], self._more[place] = deque(), asyncio.Event()
        run = (
            self._answer(connection, message) if isinstance(message, Http) else self._run(connection, message)
        )
        self._tasks[place] = asyncio.get_running_loop().create_task(run)

    def _end(self, place: tuple[Connection, int], last: Any) -> None:
        connection, _ = place
        keep, effects = self.lender.end(connection)
        for table in (self._tasks, self._credit, self._room, self._bodies, self._more):
            table.pop(place, None)
        connection.send(last(keep))
        self._send(effects)

    async def _run(self, connection: Connection, call: Call) -> None:
        number, place = call.number, (connection, call.number)
        kept = self._kept[connection]
        try:
            args, kwargs = (
                await asyncio.to_thread(values.load_arguments, call.body)
                if values.is_address(call.body)
                else values.load_arguments(call.body)
            )
            made = getattr(self.code, call.method)(*args, **kwargs)
            if call.stream:
                async for value in made:
                    dumped = values.dump(value)
                    while self._credit[place] <= 0:
                        self._room[place].clear()
                        await self._room[place].wait()
                    self._credit[place] -= len(dumped.body)
                    kept.sent(number, dumped)
                    connection.send(Item(number, dumped.body))
                    self.items_sent += 1
                    await asyncio.sleep(0)
                kept.ended(number)
                self._end(place, lambda keep: End(number, keep))
            else:
                dumped = values.dump(await made)
                if dumped.kept is not None:
                    kept.sent(number, dumped)
                    kept.ended(number)
                self._end(place, lambda keep: Result(number, dumped.body, keep))
        except asyncio.CancelledError:
            self.cancelled.append(call.meta.request_id)
            self._end(place, lambda keep: Failure(number, "cancelled", b"", keep))
        except Exception as error:
            body = values.dump_failure(error)
            self._end(place, lambda keep: Failure(number, "user", body, keep))

    async def _answer(self, connection: Connection, request: Http) -> None:
        """Echoes the body in chunks; events of WebSockets are echoed by `_received` until `end` comes as a path."""
        number, place = request.number, (connection, request.number)
        self.http.append(request)
        try:
            if request.kind == "websocket":
                connection.send(Event(number, {"type": "websocket.accept"}))
                await self._more[place].wait()
                self._end(place, lambda keep: End(number, keep))
                return
            if request.path == "/wait":
                await self.code.gate.wait()
            if request.path == "/begin":
                connection.send(Start(number, 200, []))
                await self.code.gate.wait()
            if request.more:
                await self._more[place].wait()
            connection.send(Start(number, 200, [(b"x-replica", self.name.encode())]))
            for part in [request.body, *self._bodies[place]]:
                connection.send(Chunk(number, part, True))
            self._end(place, lambda keep: Chunk(number, b"", False, keep))
        except asyncio.CancelledError:
            self._end(place, lambda keep: Failure(number, "cancelled", b"", keep))


async def serve(slots: int, name: str) -> None:
    """A stand-in as a process of its own: prints its target and runs until its input ends."""
    replica = StandIn(slots, name)
    target = await replica.start()
    sys.stdout.buffer.write(dump(Targets(1, "running", [target])).hex().encode() + b"\n")
    sys.stdout.buffer.flush()
    await asyncio.to_thread(sys.stdin.buffer.read)
    replica.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
