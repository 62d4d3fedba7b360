"""A replica and its caller, as small as they can be: they speak the real messages over a real socket.

What the replica does is in the path of the request:

    /                 answers "ok"                      /echo        "<bytes> <crc32>" of the body
    /inspect          the request as JSON               /chunks/N    N chunks of 10 bytes
    /bytes/N          N zero bytes                      /hang        nothing, until it is cancelled
    /fail, /half      fails before, after the start     /deaf        answers without reading the body
    /die              the connection to the replica is lost
"""

from __future__ import annotations

import asyncio
import json
import pickle
import zlib
from collections import deque
from typing import Any

import grpc

from runtime.serve._wire import messages as m
from runtime.serve._wire.connection import Connection
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError
from runtime.serve.grpc_util import dump_context, dump_response, input_stream, load_context

PART = bytes(256 << 10)
SLOTS = 100


class Run:
    """A request in the replica: what came, and how much may be sent."""

    def __init__(self, replica: Replica, connection: Connection, first: m.Http | m.Call) -> None:
        self.replica, self.connection, self.first = replica, connection, first
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.credit = m.WINDOW_BYTES
        self.may_send = asyncio.Event()

    @property
    def number(self) -> int:
        return self.first.number

    async def body(self) -> bytes:
        """The whole body, given back to the sender part by part."""
        assert isinstance(self.first, m.Http)
        parts, more = [self.first.body], self.first.more
        while more:
            chunk = await self.inbox.get()
            self.connection.send(m.Window(self.number, len(chunk.body)))
            parts.append(chunk.body)
            more = chunk.more
        return b"".join(parts)

    def start(self, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        self.connection.send(m.Start(self.number, status, list(headers)))

    async def chunk(self, body: bytes, more: bool) -> None:
        while self.credit <= 0:
            self.may_send.clear()
            await self.may_send.wait()
        self.credit -= len(body)
        self.replica.sent_bytes += len(body)
        self.connection.send(m.Chunk(self.number, body, more, not more))

    async def answer(self, body: bytes, status: int = 200) -> None:
        self.start(status, (b"content-length", b"%d" % len(body)), (b"content-type", b"text/plain"))
        await self.chunk(body, False)


class Replica:
    """Serves one Unix socket.

    Attributes:
        running: the requests under way.
        cancelled: how many were cancelled.
        sent_bytes: of bodies.
    """

    def __init__(self) -> None:
        self.running: dict[tuple[Connection, int], tuple[Run, asyncio.Task[None]]] = {}
        self.lent: set[Connection] = set()
        self.cancelled = 0
        self.sent_bytes = 0

    async def listen(self, path: str) -> None:
        def serve() -> Connection:
            return Connection(self.received, self.lost, from_replica=False)

        self.server = await asyncio.get_running_loop().create_unix_server(serve, path)

    def received(self, connection: Connection, message: Any) -> None:
        if isinstance(message, m.Hello):
            connection.send(m.Welcome("app#d#1", SLOTS))
        elif isinstance(message, m.Want):
            if connection not in self.lent:  # all at once: they are never scarce here
                self.lent.add(connection)
                connection.send(m.Grant(SLOTS))
        elif isinstance(message, m.Return):
            pass
        elif isinstance(message, m.Http | m.Call):
            run = Run(self, connection, message)
            task = asyncio.create_task(self.run(run))
            self.running[connection, message.number] = run, task
            task.add_done_callback(lambda _: self.running.pop((connection, message.number), None))
        elif (found := self.running.get((connection, message.number))) is not None:
            run, task = found
            if isinstance(message, m.Cancel):
                task.cancel()
            elif isinstance(message, m.Window):
                run.credit += message.size
                run.may_send.set()
            else:
                run.inbox.put_nowait(message)

    def lost(self, connection: Connection, _error: BaseException | None) -> None:
        for (owner, _number), (_run, task) in list(self.running.items()):
            if owner is connection:
                task.cancel()

    async def run(self, run: Run) -> None:
        try:
            if isinstance(run.first, m.Call):
                await self.call(run, run.first)
            elif run.first.kind == "websocket":
                await self.websocket(run)
            else:
                await self.http(run, run.first)
        except asyncio.CancelledError:
            self.cancelled += 1
            run.connection.send(m.Failure(run.number, "cancelled", b"", True))
            raise
        except ValueError:  # no number in the path
            run.connection.send(m.Failure(run.number, "user", b"", True))

    async def http(self, run: Run, first: m.Http) -> None:
        name, _, argument = first.path.removeprefix(first.root_path).strip("/").partition("/")
        if name == "echo":
            body = await run.body()
            await run.answer(b"%d %d" % (len(body), zlib.crc32(body)))
        elif name == "inspect":
            shown = {
                "path": first.path,
                "raw_path": first.raw_path.decode(),
                "root_path": first.root_path,
                "query": first.query.decode(),
                "scheme": first.scheme,
                "method": first.method,
                "headers": {key.decode(): value.decode("latin-1") for key, value in first.headers},
                "request_id": first.meta.request_id,
                "model_id": first.meta.model_id,
                "app": first.meta.app,
                "deadline_s": first.meta.deadline_s,
                "trace": first.meta.trace,
            }
            await run.answer(json.dumps(shown).encode())
        elif name == "chunks":
            run.start()
            for i in range(int(argument)):
                await run.chunk(b"chunk%5d" % i, True)
            await run.chunk(b"", False)
        elif name == "bytes":
            left = int(argument)
            run.start(200, (b"content-length", b"%d" % left))
            while left > len(PART):
                left -= len(PART)
                await run.chunk(PART, True)
            await run.chunk(bytes(left), False)
        elif name == "hang":
            await asyncio.Event().wait()
        elif name == "fail":
            run.connection.send(m.Failure(run.number, "user", b"", True))
        elif name == "half":
            run.start()
            await run.chunk(b"half", True)
            run.connection.send(m.Failure(run.number, "user", b"", True))
        elif name == "die":
            run.connection.close()
        else:
            await run.answer(b"ok")

    async def websocket(self, run: Run) -> None:
        def send(event: dict[str, Any]) -> None:
            run.connection.send(m.Event(run.number, event))

        assert isinstance(run.first, m.Http)
        if run.first.path == "/refuse":
            send({"type": "websocket.close", "code": 1008})
        elif run.first.path == "/fail":
            run.connection.send(m.Failure(run.number, "user", b"", True))
            return
        elif run.first.path == "/hang":
            await asyncio.Event().wait()
        else:
            subprotocols = run.first.subprotocols
            send({"type": "websocket.accept", "subprotocol": subprotocols[0] if subprotocols else None})
            while (event := (await run.inbox.get()).event)["type"] != "websocket.disconnect":
                if event.get("text") == "close":
                    send({"type": "websocket.close", "code": 4000, "reason": "asked"})
                    break
                if event.get("text") == "fail":
                    run.connection.send(m.Failure(run.number, "user", b"", True))
                    return
                send({**event, "type": "websocket.send"})
        run.connection.send(m.End(run.number, True))

    async def call(self, run: Run, call: m.Call) -> None:
        """The methods of the service in `talk`."""

        async def chunk() -> bytes:
            body: bytes = (await run.inbox.get()).body
            run.connection.send(m.Window(run.number, len(body)))
            return body

        context = load_context(call.context)
        try:
            if call.inputs:
                argument: Any = input_stream(chunk, asyncio.Event())
            else:
                (argument,), _ = pickle.loads(call.body)
            result = getattr(Talk(self), call.method)(argument, context)
            if not call.stream:
                body = dump_response(await result)
                run.connection.send(m.Result(run.number, body, True, dump_context(context)))
                return
            async for value in result:
                run.connection.send(m.Item(run.number, dump_response(value)))
            run.connection.send(m.End(run.number, True, dump_context(context)))
        except Exception as error:
            body = pickle.dumps(error)
            run.connection.send(m.Failure(run.number, "user", body, True, dump_context(context)))


class Talk:
    """What a user would write."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    async def Say(self, request: Any, grpc_context: Any) -> Any:
        from google.protobuf.wrappers_pb2 import StringValue

        if request.value == "fail":
            raise ValueError("no")
        if request.value == "coded":
            grpc_context.set_code(grpc.StatusCode.ALREADY_EXISTS)
            grpc_context.set_details("it is there")
            raise ValueError("no")
        if request.value == "hang":
            await asyncio.Event().wait()
        grpc_context.set_trailing_metadata([("length", str(len(request.value)))])
        model = grpc_context.multiplexed_model_id() or ""
        return StringValue(value=request.value.upper() + model)

    async def Count(self, request: Any, grpc_context: Any) -> Any:
        from google.protobuf.wrappers_pb2 import StringValue

        for i in range(int(request.value)):
            yield StringValue(value=str(i) if i else "")
        grpc_context.set_trailing_metadata([("counted", request.value)])

    async def Join(self, requests: Any, grpc_context: Any) -> Any:
        from google.protobuf.wrappers_pb2 import StringValue

        return StringValue(value="".join([request.value async for request in requests]))

    async def Chat(self, requests: Any, grpc_context: Any) -> Any:
        async for request in requests:
            yield type(request)(value=request.value + "!")


class Exchange:
    def __init__(self, caller: Caller, number: int) -> None:
        self.caller, self.number = caller, number
        self.replica = "app#d#1"
        self.inbox: deque[Any] = deque()
        self.came = asyncio.Event()
        self.credit = m.WINDOW_BYTES
        self.may_send = asyncio.Event()

    def put(self, message: Any) -> None:
        self.inbox.append(message)
        self.came.set()

    def arrived(self, most_bytes: int) -> m.Chunk | None:
        chunk = self.inbox[0] if self.inbox else None
        if not isinstance(chunk, m.Chunk) or len(chunk.body) > most_bytes:
            return None
        self.caller.connection.send(m.Window(self.number, len(chunk.body)))
        self.inbox.popleft()
        return chunk

    async def receive(self) -> Any:
        while not self.inbox:
            self.came.clear()
            await self.came.wait()
        message = self.inbox.popleft()
        if isinstance(message, BaseException):
            raise message
        if isinstance(message, m.Chunk | m.Item):
            self.caller.connection.send(m.Window(self.number, len(message.body)))
        return message

    async def send(self, chunk: bytes, more: bool) -> None:
        while self.credit <= 0:
            self.may_send.clear()
            await self.may_send.wait()
        self.credit -= len(chunk)
        self.caller.connection.send(m.Chunk(self.number, chunk, more))

    async def send_event(self, event: dict[str, Any]) -> None:
        self.caller.connection.send(m.Event(self.number, event))

    def cancel(self) -> None:
        if self.caller.open.pop(self.number, None) is not None:
            self.caller.connection.send(m.Cancel(self.number))


class Queue:
    def __init__(self, caller: Caller, deployment: str) -> None:
        self.caller, self.deployment = caller, deployment

    async def begin(self, message: Any, *, timeout_s: float | None = None) -> Exchange:
        if self.deployment == "full":
            raise BackPressureError(3, 2, retry_after_s=1.5)
        if self.deployment == "gone":
            raise DeploymentUnavailableError("gone")
        if self.deployment == "busy":
            self.caller.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.caller.waiting -= 1
        return await self.caller.begin(message)


class Caller:
    """Attributes:
    open: the exchanges under way, by number.
    waiting: the requests for a slot of "busy".
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.open: dict[int, Exchange] = {}
        self.waiting = 0
        self.numbers = 0
        self.connection: Connection

    async def connect(self) -> None:
        def made() -> Connection:
            return Connection(self.received, self.lost, from_replica=True)

        _, self.connection = await asyncio.get_running_loop().create_unix_connection(made, self.path)
        self.connection.send(m.Hello(m.VERSION, b"", "stand-in"))

    def queue(self, _app: str, deployment: str) -> Queue:
        return Queue(self, deployment)

    async def begin(self, message: Any) -> Exchange:
        if not self.connection.is_open:
            await self.connect()
        self.numbers += 1
        exchange = self.open[self.numbers] = Exchange(self, self.numbers)
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        self.connection.send(type(message)(**{**fields, "number": self.numbers}))
        return exchange

    def received(self, _connection: Connection, message: Any) -> None:
        exchange = self.open.get(getattr(message, "number", 0))
        if exchange is None:
            return
        if isinstance(message, m.Window):
            exchange.credit += message.size
            exchange.may_send.set()
            return
        if isinstance(message, m.Result | m.Failure | m.End) or (
            isinstance(message, m.Chunk) and not message.more
        ):
            del self.open[message.number]
        exchange.put(message)

    def lost(self, _connection: Connection, _error: BaseException | None) -> None:
        exchanges, self.open = self.open, {}
        for exchange in exchanges.values():
            exchange.put(ConnectionError("The replica died."))
