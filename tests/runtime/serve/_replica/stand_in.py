"""A caller of replicas for tests: a real connection, and slots that it takes one by one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from runtime.serve import context
from runtime.serve._replica.log import ReplicaLog
from runtime.serve._replica.service import Service
from runtime.serve._replica.threads import Threads
from runtime.serve._replica.user_code import UserCode
from runtime.serve._wire import values
from runtime.serve._wire.connection import Connection
from runtime.serve._wire.messages import (
    VERSION,
    Call,
    Chunk,
    Failure,
    Grant,
    Hello,
    Http,
    Item,
    Meta,
    Recall,
    Return,
    Want,
    Welcome,
    Window,
)

TOKEN = b"secret"
REPLICA = "app#Deployment#abc"


async def until(true: Callable[[], Any]) -> None:
    """Waits until a condition holds."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 -- what changes it tells nobody
            await asyncio.sleep(0.001)


class Caller:
    """One caller; `received[number]` are the messages that answer a request. It reads all of them at once."""

    def __init__(self, reads: bool = True) -> None:
        self.reads = reads
        self.received: dict[int, asyncio.Queue[Any]] = {}
        self.others: list[Any] = []
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.slots = 0
        self.recalls = 0
        self.slots_came = asyncio.Event()
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.connection: Connection = None  # type: ignore[assignment]
        self._last = 0

    async def connect(self, name: str, token: bytes = TOKEN) -> None:
        loop = asyncio.get_running_loop()
        unix = socket.socket(socket.AF_UNIX)
        unix.setblocking(False)
        unix.connect(name)
        _, connection = await loop.create_unix_connection(
            lambda: Connection(self._take, self._lose, from_replica=True), sock=unix
        )
        self.connection = connection
        self.connection.send(Hello(VERSION, token, "test"))

    def _lose(self, _: Connection, error: BaseException | None) -> None:
        self.lost.set_result(error)

    def _take(self, _: Connection, message: Any) -> None:
        if isinstance(message, Grant):
            self.slots += message.slots
            self.slots_came.set()
        elif isinstance(message, Recall):
            self.recalls += 1
            self.connection.send(Return(self.slots))
            self.slots = 0
        elif isinstance(message, Welcome):
            self.welcome.set_result(message)
        elif hasattr(message, "number"):
            if getattr(message, "keep", False):
                self.slots += 1
                self.slots_came.set()
            if self.reads and isinstance(message, Chunk | Item):
                self.connection.send(Window(message.number, len(message.body)))
            self.received[message.number].put_nowait(message)
        else:
            self.others.append(message)

    async def slot(self) -> None:
        while not self.slots:
            self.slots_came.clear()
            self.connection.send(Want(1))
            await asyncio.wait_for(self.slots_came.wait(), 10)
        self.slots -= 1

    def number(self) -> int:
        self._last += 1
        self.received[self._last] = asyncio.Queue()
        return self._last

    async def next(self, number: int) -> Any:
        return await asyncio.wait_for(self.received[number].get(), 10)

    async def begin_call(
        self, method: str, *args: Any, stream: bool = False, model: str = "", **kwargs: Any
    ) -> int:
        await self.slot()
        number = self.number()
        body = values.dump((args, kwargs)).body
        self.connection.send(Call(number, method, Meta(f"id-{number}", "app", model_id=model), body, stream))
        return number

    async def call(self, method: str, *args: Any, model: str = "", **kwargs: Any) -> Any:
        """The value of a call, or its exception."""
        message = await self.next(await self.begin_call(method, *args, model=model, **kwargs))
        if isinstance(message, Failure):
            raise values.load_failure(message.body)
        return values.load(message.body)

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        number = await self.begin_call(method, *args, stream=True)
        while True:
            message = await self.next(number)
            if isinstance(message, Failure):
                raise values.load_failure(message.body)
            if not isinstance(message, Item):
                return
            yield values.load(message.body)

    async def begin_http(
        self,
        path: str = "/",
        method: str = "GET",
        body: bytes = b"",
        more: bool = False,
        kind: str = "http",
        query: bytes = b"",
        headers: tuple[tuple[bytes, bytes], ...] = (),
        root_path: str = "",
    ) -> int:
        await self.slot()
        number = self.number()
        self.connection.send(
            Http(
                number,
                Meta(f"id-{number}", "app", "/"),
                kind,
                method,
                "http",
                "1.1",
                path,
                path.encode(),
                query,
                root_path,
                [(b"host", b"x"), *headers],
                ("1.2.3.4", 5),
                ("5.6.7.8", 80),
                body,
                more,
            )
        )
        return number

    async def response(self, number: int) -> tuple[int, dict[bytes, bytes], bytes]:
        """Status, headers and body."""
        start = await self.next(number)
        assert not isinstance(start, Failure), values.load_failure(start.body)
        body = b""
        while True:
            chunk = await self.next(number)
            body += chunk.body
            if not chunk.more:
                return start.status, dict(start.headers), body

    async def http(self, path: str = "/", **options: Any) -> tuple[int, dict[bytes, bytes], bytes]:
        return await self.response(await self.begin_http(path, **options))


@contextlib.asynccontextmanager
async def serving(
    target: Any, *args: Any, slots: int = 10, folder: str = "", changed: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Service, Caller]]:
    """A replica of a class or function in this process, and a caller that is connected."""
    replica = context.ReplicaID.parse(REPLICA)
    threads = Threads(slots)
    user = UserCode("Deployment", target, (args, {}), threads)
    context.set_replica(
        context.ReplicaContext(replica, None, context.ReplicaRank(0), 1, max_ongoing_requests=slots)
    )
    log = ReplicaLog(replica, folder, {})
    if folder:
        log.configure(None)
    await user.construct()
    context.current_replica().servable_object = user.instance  # type: ignore[union-attr]
    await user.start_app()
    service = Service(REPLICA, TOKEN, slots, user, threads, log, changed, {"node_ip": "127.0.0.1"})
    name, _ = await service.listen("127.0.0.1")
    caller = Caller()
    await caller.connect(name)
    try:
        yield service, caller
    finally:
        await service.drain(5)
        await user.end()
        service.close()
        threads.close()
        log.close()
        context.set_replica(None)
        if not caller.lost.done():
            caller.connection.close()
            await caller.lost
        while service._peers:  # noqa: ASYNC110 -- the other side of the connection ends as the loop turns
            await asyncio.sleep(0)
