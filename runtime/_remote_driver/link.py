"""The program's connection to its driver process: a gRPC stream that is made anew after a cut.

One thread with an event loop connects, sends, receives and dispatches. The blocking interface of gRPC would take three
threads, which wake each other some forty times per call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc
import grpc.aio
import msgspec

from runtime._wire.framing import MAX_FRAME_BYTES
from runtime._wire.handshake import Handshake, HandshakeError

from . import frames, tls, versions
from .messages import GRACE_S, PROTOCOL, AnyMessage, Greeting, GreetReply
from .stream import Stream

log = logging.getLogger("runtime")
SERVICE = "clusterctl.remote_driver.v1.RemoteDriver"
OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES + (1 << 20)),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
"""Of both sides. A peer that does not answer pings is cut off."""
MAX_UNACKNOWLEDGED_BYTES = 64 << 20
"""Whoever sends waits while the head has not received this much."""
ENVELOPE_BYTES = 4 << 20
_GREET_TIMEOUT_S = 10.0
_OPEN_S = 5.0
"""So long `open` tries: a head may have begun to listen everywhere else a moment ago."""
_AGAIN_S = 0.2
_IDLE_S = 0.01
"""How long references that have died wait for others, to be released by one message."""
_LEAVE_S = 5.0
_FATAL = frozenset(
    {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND}
)
_OPENED_S = _OPEN_S + 2 * _GREET_TIMEOUT_S
_was_opened = False
_is_unusable = False
"""gRPC's threads do not survive a fork: a child of a process that has used it can neither connect nor wait."""


def _after_fork() -> None:
    global _is_unusable
    _is_unusable = _was_opened


os.register_at_fork(after_in_child=_after_fork)


class Link:
    """One session. Messages arrive at `on_message` on one thread, in order.

    Args:
        address: host:port.
        secret: of the cluster.
        on_message: takes a message.
        on_lost: takes the reason why there will be no more messages.
        on_idle: called on the same thread after `wake`.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        on_message: Callable[[Any], None],
        on_lost: Callable[[Exception], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._address = address
        self._secret = secret
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_idle = on_idle
        self._session = os.urandom(16)
        self.lock = threading.RLock()  # reentrant only to know who holds it, see `Requests.interrupts`
        self._room = threading.Condition(self.lock)
        self._stream = Stream()
        self._unsent: deque[bytes] = deque()  # of this connection
        self._is_woken = False  # the thread knows that there is something to send
        self._is_ready = False  # the peer has said how far it has received
        self._has_begun = False  # it has said anything: there is a driver process
        self._is_closing = False
        self._gives_up_s: float | None = None  # when, as the connection has broken and nothing has come since
        self._call: Any = None
        self._channel: Any = None
        self.failure: Exception | None = None
        self._opened: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._work = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="remote-driver", daemon=True)

    def open(self) -> None:
        """Connects.

        Raises:
            ConnectionError: nobody is there, or they do not fit together; the message says why. Or this process was
                forked from one that had used a connection.
        """
        global _was_opened
        if _is_unusable:
            raise ConnectionError(
                "This process was forked from one that had connected to ray://, and gRPC does not work in such a "
                "child. Start it by multiprocessing's method 'spawn', or as a program of its own."
            )
        _was_opened = True
        self._thread.start()
        try:
            try:
                self._opened.result(_OPENED_S)
            except TimeoutError:
                raise ConnectionError(
                    f"ray://{self._address} did not answer within {_OPENED_S:g} s."
                ) from None
        except BaseException:
            self.close()
            raise

    def send(self, message: AnyMessage, waits: bool = False) -> None:
        """Sends a message, now or after the cut. `waits`: while much is unacknowledged, for room.

        Raises:
            Exception: `failure`.
        """
        with self.lock:
            if waits and self._stream.unacknowledged_bytes > MAX_UNACKNOWLEDGED_BYTES:
                self._room.wait_for(
                    lambda: (
                        self.failure is not None
                        or self._stream.unacknowledged_bytes <= MAX_UNACKNOWLEDGED_BYTES
                    )
                )
            if self.failure is not None:
                raise self.failure
            body = self._stream.send(message)
            if self._is_ready:
                self._unsent.append(body)
                if not self._is_woken:
                    self._is_woken = True
                    self._rouse(self._work.set)

    def wake(self) -> None:
        """Has `on_idle` called soon. Finalizers may call it."""
        if self.failure is None:
            self._rouse(self._idle_soon)

    def leave(self) -> None:
        """The session is about to end: a broken connection is not made again."""
        self._is_closing = True

    def close(self) -> None:
        """Ends the connection, not the session: the driver process is told by a message."""
        self._is_closing = True
        self.fail(ConnectionError("The connection to the cluster was closed."), tell=False)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._rouse(self._end)
            self._thread.join(_LEAVE_S)

    def fail(self, error: Exception, tell: bool = True) -> None:
        """Nothing can be sent any more, for this reason. An earlier one stays."""
        with self.lock:
            if self.failure is None:
                self.failure = error
            self._room.notify_all()
        if tell:
            self._on_lost(self.failure)

    # ------------------------------------------------------------ the thread

    def _rouse(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    def _idle_soon(self) -> None:
        self._loop.call_later(_IDLE_S, self._idle)

    def _idle(self) -> None:
        if self.failure is None:
            self._on_idle()

    def _end(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            log.exception("The connection to the cluster ended unexpectedly.")
            self.fail(ConnectionError(f"The connection to the cluster is lost: {error!r}"))
        finally:
            if not self._opened.done():
                self._opened.set_exception(ConnectionError("The connection to the cluster was closed."))

    async def _live(self) -> None:
        """The whole life of the connection."""
        self._main = asyncio.current_task()
        self._loop.set_exception_handler(_unless_another_was_first)
        if self._is_closing:  # before `_end` could find this task
            return
        try:
            try:
                await self._open()
            except Exception as error:
                self._opened.set_exception(error)
                return
            self._opened.set_result(None)
            while True:
                cut = await self._work_until_cut()
                if self._is_closing or self.failure is not None or not await self._reconnect(cut):
                    return
        finally:
            await self._disconnect()

    async def _open(self) -> None:
        deadline = time.monotonic() + _OPEN_S
        while True:
            try:
                await self._connect(False)
                return
            except (grpc.RpcError, HandshakeError) as error:
                if not _may_come(error) or time.monotonic() > deadline:
                    raise ConnectionError(
                        f"Failed to connect to the server for remote drivers at ray://{self._address}: {_reason(error)}"
                    ) from None
            await self._disconnect()
            await asyncio.sleep(_AGAIN_S)

    async def _connect(self, resumes: bool) -> None:
        """Makes a channel and a stream.

        Raises:
            grpc.RpcError: that failed.
            HandshakeError: the head does not know the secret.
            ConnectionError: the head is of another version.
        """
        channel = self._channel = (
            grpc.aio.secure_channel(self._address, tls.channel_credentials(grpc), OPTIONS)
            if tls.is_wanted()
            else grpc.aio.insecure_channel(self._address, OPTIONS)
        )
        handshake = Handshake(self._secret, is_client=True)
        greeting = Greeting(handshake.greeting, PROTOCOL, versions.own_python(), versions.own_version())
        replied = await channel.unary_unary(f"/{SERVICE}/Greet")(
            frames.encode([msgspec.msgpack.encode(greeting)]), timeout=_GREET_TIMEOUT_S
        )
        try:
            reply = msgspec.msgpack.decode(frames.decode(replied)[0], type=GreetReply)
        except (ValueError, IndexError, msgspec.MsgspecError):
            raise HandshakeError("what listens there is no remote driver server of clusterctl") from None
        mismatch = versions.mismatch(reply.protocol, reply.python, reply.version)
        if mismatch:
            raise ConnectionError(mismatch)
        proof = handshake.proof(reply.greeting)
        handshake.verify(reply.proof)
        metadata = (
            ("greeting-bin", handshake.greeting),
            ("proof-bin", proof),
            ("session-bin", self._session),
            ("resume", "1" if resumes else "0"),
        )
        with self.lock:
            self._is_ready = False
            self._unsent.clear()
            self._unsent.append(self._stream.acknowledgement())
        self._work.set()
        self._call = channel.stream_stream(f"/{SERVICE}/Connect")(metadata=metadata)

    async def _disconnect(self) -> None:
        call, self._call = self._call, None
        channel, self._channel = self._channel, None
        if call is not None:
            call.cancel()
        if channel is not None:
            await channel.close()

    async def _work_until_cut(self) -> Exception:
        """Sends and receives, until the stream breaks. Returns why it did."""
        sending = asyncio.create_task(self._send_all(self._call))
        try:
            return await self._receive_all(self._call)
        finally:
            sending.cancel()
            await asyncio.wait([sending])

    async def _reconnect(self, why: Exception) -> bool:
        """Connects again within the grace period; False when that is over or in vain."""
        if self._gives_up_s is None:
            self._gives_up_s = time.monotonic() + GRACE_S
            log.warning(
                "The connection to the cluster broke (%s). Reconnecting for %g s.", _reason(why), GRACE_S
            )
        while True:
            await self._disconnect()
            await asyncio.sleep(_AGAIN_S)
            if self._is_closing:
                return False
            if time.monotonic() > self._gives_up_s:
                self.fail(
                    ConnectionError(
                        f"The connection to the cluster at ray://{self._address} is lost: it broke, and could not be "
                        f"made again within {GRACE_S:g} s ({_reason(why)}). The driver process has ended, and with it "
                        "what it owned. Is the head still up? Call shutdown() and init() to start again."
                    )
                )
                return False
            try:
                await self._connect(self._has_begun)
                return True
            except grpc.RpcError as error:
                if _is_fatal(error):
                    self.fail(_ended(error))
                    return False
                why = error
            except (HandshakeError, ConnectionError) as error:
                self.fail(ConnectionError(f"The connection to the cluster is lost: {error}"))
                return False

    # ------------------------------------------------------------ one stream

    async def _send_all(self, call: Any) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            bodies: list[bytes] = []
            size = 0
            with self.lock:
                self._is_woken = False
                while self._unsent and (not bodies or size + len(self._unsent[0]) <= ENVELOPE_BYTES):
                    bodies.append(self._unsent.popleft())
                    size += len(bodies[-1])
                if self._unsent:
                    self._work.set()
            if bodies:
                try:
                    await call.write(frames.encode(bodies))
                except (grpc.RpcError, asyncio.InvalidStateError):
                    return  # receiving says why
                except Exception as error:  # it would come again on a new connection
                    log.exception("A message to the head cannot be sent.")
                    self.fail(
                        ConnectionError(
                            f"The connection to the cluster is lost: a message cannot be sent ({error!r})."
                        )
                    )
                    call.cancel()
                    return

    async def _receive_all(self, call: Any) -> Exception:
        try:
            while (envelope := await call.read()) is not grpc.aio.EOF:
                for body in frames.decode(envelope):
                    self._receive(body)
            return ConnectionError("the head closed the connection")
        except grpc.RpcError as error:
            broken: Exception = error
            if _is_fatal(broken):
                self.fail(_ended(broken))
            return broken
        except Exception as error:  # it would come again on a new connection
            log.exception("A message of the head cannot be handled.")
            self.fail(
                ConnectionError(
                    "The connection to the cluster is lost: a message of the head cannot be handled "
                    f"({type(error).__name__}: {error}). This is a bug; the log has its traceback."
                )
            )
            return error

    def _receive(self, body: bytes) -> None:
        with self.lock:
            message = self._stream.receive(body)
            if not self._is_ready:
                self._is_ready = self._has_begun = True
                self._gives_up_s = None
                self._unsent.extend(self._stream.again())
                self._work.set()
            elif self._stream.is_acknowledgement_due:
                self._unsent.append(self._stream.acknowledgement())
                self._work.set()
            self._room.notify_all()
        if message is not None:
            self._on_message(message)


def _unless_another_was_first(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """All loops that use gRPC are woken by one socket, and all but the first find it empty: no harm, and no log."""
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)


def _may_come(error: Exception) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.UNAVAILABLE


def _is_fatal(error: Exception) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() in _FATAL


def _ended(error: Exception) -> ConnectionError:
    return ConnectionError(f"The connection to the cluster is lost: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        return str(error.details() or error.code().name)
    return str(error)
