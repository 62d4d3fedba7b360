"""`python -m runtime._remote_driver.server`: listens for programs outside the cluster and gives each a driver process.

The head starts it. It relays bytes and keeps none: both ends know what has arrived, and send again what was under way
when a connection broke.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import msgspec

from runtime._node.zygote_spawn import daemon_environment
from runtime._session.discovery import find_agent
from runtime._system import stacks
from runtime._wire.handshake import Handshake, HandshakeError

from . import frames, tls, versions
from .link import OPTIONS, SERVICE
from .messages import PROTOCOL, Greeting, GreetReply

log = logging.getLogger(__name__)
_MAX_GREETINGS = 1000
"""So many programs may be between Greet and Connect."""
_LIMIT_BYTES = 4 << 20
_END_S = 2.0


class Relay(asyncio.Protocol):
    """One session: a driver process, and the connection of its program, if there is one at the moment.

    It is the protocol of the socket to the driver process, so that no task lies between that and gRPC's stream.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._incoming = frames.RelayDecoder()
        self._epoch = 0
        self._handler: asyncio.Task[Any] | None = None
        self.ended = asyncio.Event()
        """The driver process has ended."""
        self._transport: asyncio.Transport
        self._is_writable = asyncio.Event()  # the socket takes more
        self._is_writable.set()
        self._is_lost = asyncio.Event()  # the driver process has closed its end
        self._news = asyncio.Event()
        self._waiting = bytearray()  # envelopes for the program
        self._is_finished = False
        self._status: int | None = None  # the driver process has ended by itself

    @classmethod
    async def start(cls, agent_path: str) -> Relay:
        """Starts a driver process."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "runtime._remote_driver.driver",
                "--fd", str(theirs.fileno()), "--agent", agent_path,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd="/", env=daemon_environment(),
                process_group=0,
            )  # fmt: skip
        relay = cls(process)
        await asyncio.get_running_loop().create_unix_connection(lambda: relay, sock=ours)
        return relay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ready."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_LIMIT_BYTES)

    def connection_lost(self, error: Exception | None) -> None:
        """The driver process has ended, or is about to."""
        if error is not None:
            log.warning("a driver process broke off: %s", error)
        self._is_writable.set()
        self._is_lost.set()

    def data_received(self, data: bytes) -> None:
        """The driver process has said something."""
        for epoch, kind, payload in self._incoming.feed(data):
            if kind == frames.FINISHED:
                self._is_finished = True
            elif epoch == self._epoch:
                self._waiting += payload  # envelopes are joined by joining their bytes
        self._news.set()
        if len(self._waiting) > _LIMIT_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The driver process reads more slowly than its program writes."""
        self._is_writable.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_writable.set()

    async def run(self) -> None:
        """Returns when the driver process has ended."""
        try:
            await self._is_lost.wait()
        finally:
            self._transport.close()
            if not self._is_finished:  # the program is to know how it died
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_S):
                        self._status = await self._process.wait()
            self.ended.set()
            self._news.set()
            status = await self._process.wait()
            log.info("the driver process %d %s", self._process.pid, _end(status))

    async def serve(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Relays between the driver process and a program, until either is gone. An earlier connection ends."""
        was_over = self.ended.is_set()
        before, self._handler = self._handler, asyncio.current_task()
        if before is not None and not before.done():
            before.cancel()
            await asyncio.wait([before])
        self._epoch += 1
        self._take_waiting()
        epoch = self._epoch
        self._transport.write(frames.relayed(epoch, frames.ATTACHED))
        inward = asyncio.create_task(self._inward(requests, epoch))
        outward = asyncio.create_task(self._outward(context, epoch))
        try:
            await asyncio.wait([inward, outward], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (inward, outward):
                task.cancel()
            await asyncio.gather(inward, outward, return_exceptions=True)
            if self._epoch == epoch:
                self._epoch += 1  # what the driver process still says to this connection has no reader
            self._take_waiting()
            if not self._is_lost.is_set():
                self._transport.write(frames.relayed(epoch, frames.DETACHED))
        if self.ended.is_set() and (was_over or not self._is_finished):
            how = "has ended" if self._status is None else _end(self._status)
            await context.abort(grpc.StatusCode.NOT_FOUND, f"its driver process {how}{_GONE}")

    async def _inward(self, requests: AsyncIterator[bytes], epoch: int) -> None:
        async for envelope in requests:
            self._transport.write(frames.relayed(epoch, frames.ENVELOPE, envelope))
            await self._is_writable.wait()

    async def _outward(self, context: Any, epoch: int) -> None:
        while True:
            while self._waiting and epoch == self._epoch:
                await context.write(self._take_waiting())
            if self.ended.is_set():
                return
            await self._news.wait()
            self._news.clear()

    def _take_waiting(self) -> bytes:
        waiting = bytes(self._waiting)
        self._waiting.clear()
        self._transport.resume_reading()
        return waiting

    async def end(self) -> None:
        """Ends the driver process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_END_S):
                await self.ended.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


def _end(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


_GONE = (
    ", and with it what it owned. It ends when the program stays away, with the node agent and with the head. "
    "Call shutdown() and init() to start again."
)


class Server:
    """All sessions.

    Args:
        secret: of the cluster.
        control_address: which cluster's node agent the driver processes join.
    """

    def __init__(self, secret: bytes, control_address: str) -> None:
        self._secret = secret
        self._control_address = control_address
        self._greetings: OrderedDict[bytes, tuple[Handshake, bytes]] = OrderedDict()
        self._sessions: dict[bytes, Relay] = {}
        self._starting: dict[bytes, asyncio.Task[Relay | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> Any:
        """The service, for a gRPC server."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Greet": grpc.unary_unary_rpc_method_handler(self._greet),
                "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
            },
        )

    async def close(self) -> None:
        """Ends all driver processes."""
        await asyncio.gather(*(relay.end() for relay in self._sessions.values()))

    async def _greet(self, request: bytes, context: Any) -> bytes:
        handshake = Handshake(self._secret, is_client=False)
        try:
            greeting = msgspec.msgpack.decode(frames.decode(request)[0], type=Greeting)
            proof = handshake.proof(greeting.greeting)
        except (ValueError, IndexError, msgspec.MsgspecError, HandshakeError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no greeting of clusterctl: {error}")
            raise AssertionError from error  # abort raises
        mine = versions.own_python(), versions.own_version()
        why = versions.mismatch(PROTOCOL, *mine, (greeting.protocol, greeting.python, greeting.version))
        if why:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        self._greetings[greeting.greeting] = handshake, proof
        while len(self._greetings) > _MAX_GREETINGS:
            self._greetings.popitem(last=False)
        reply = GreetReply(handshake.greeting, proof, PROTOCOL, *mine)
        return frames.encode([msgspec.msgpack.encode(reply)])

    async def _connect(self, requests: AsyncIterator[bytes], context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        session = metadata.get("session-bin", b"")
        greeted = self._greetings.pop(metadata.get("greeting-bin", b""), None)
        try:
            if greeted is None:
                raise HandshakeError("greet first")
            greeted[0].verify(metadata.get("proof-bin", b""))
        except HandshakeError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        relay = self._sessions.get(session)
        if relay is None:
            if metadata.get("resume") == "1":
                await context.abort(grpc.StatusCode.NOT_FOUND, f"its driver process has ended{_GONE}")
            relay = await self._start_once(session)
            if relay is None:
                await context.abort(
                    grpc.StatusCode.NOT_FOUND, "the head has no node agent at the moment. Try again."
                )
                raise AssertionError  # abort raises
        await relay.serve(requests, context)

    async def _start_once(self, session: bytes) -> Relay | None:
        """Starts the driver process of a session. A program that is cut off meanwhile finds the same."""
        starting = self._starting.get(session)
        if starting is None:
            starting = self._starting[session] = asyncio.create_task(self._start(session))
            starting.add_done_callback(lambda _task: self._starting.pop(session))
        return await asyncio.shield(starting)

    async def _start(self, session: bytes) -> Relay | None:
        record = await asyncio.to_thread(find_agent, self._control_address)
        if record is None:
            return None
        relay = self._sessions[session] = await Relay.start(record.unix_path)

        async def run() -> None:
            try:
                await relay.run()
            finally:
                del self._sessions[session]

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return relay


async def _serve(options: argparse.Namespace, secret: bytes) -> None:
    server = Server(secret, options.control)
    listener = grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", 0)])
    listener.add_generic_rpc_handlers((server.handlers(),))
    address = f"{options.host}:{options.port}"
    try:
        port = (
            listener.add_secure_port(address, tls.server_credentials(grpc))
            if tls.is_wanted()
            else listener.add_insecure_port(address)
        )
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from None
    await listener.start()
    if options.ready_fd >= 0:
        with os.fdopen(options.ready_fd, "w") as ready:
            ready.write(json.dumps({"address": f"{options.host}:{port}"}) + "\n")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.close()
    await listener.stop(0.5)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secret-file", required=True, help="the cluster's secret")
    parser.add_argument("--control", required=True, help="host:port of the cluster's control store")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that it listens")
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    stacks.register("remote drivers")
    secret = Path(options.secret_file).read_text(encoding="ascii").strip().encode()
    asyncio.run(_serve(options, secret))


if __name__ == "__main__":
    main()
