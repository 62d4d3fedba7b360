"""The program's connection to its driver process: a gRPC stream that is made anew after a cut."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
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
_LEAVE_S = 5.0
_FATAL = frozenset(
    {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND}
)
_Out = queue.SimpleQueue[bytes | None | bool]
"""What one stream is to send: bodies, None to look at what has died, False to end."""


class Link:
    """One session. Messages arrive at `on_message` on one thread, in order.

    Args:
        address: host:port.
        secret: of the cluster.
        on_message: takes a message.
        on_lost: takes the reason why there will be no more messages.
        on_idle: called on the sending thread after `wake`.
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
        self._out: _Out = queue.SimpleQueue()
        self._is_ready = False  # the peer has said how far it has received
        self._has_begun = False  # it has said anything: there is a driver process
        self._closing = threading.Event()
        self._call: Any = None
        self._channel: Any = None
        self.failure: Exception | None = None
        self._receiver = threading.Thread(target=self._run, name="remote-driver", daemon=True)

    def open(self) -> None:
        """Connects.

        Raises:
            ConnectionError: nobody is there, or they do not fit together; the message says why.
        """
        deadline = time.monotonic() + _OPEN_S
        while True:
            try:
                self._connect(False)
                break
            except (grpc.RpcError, HandshakeError) as error:
                self._disconnect()
                if _may_come(error) and time.monotonic() < deadline:
                    time.sleep(_AGAIN_S)
                    continue
                raise ConnectionError(
                    f"Failed to connect to the server for remote drivers at ray://{self._address}: {_reason(error)}"
                ) from None
            except BaseException:
                self._disconnect()
                raise
        self._receiver.start()

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
                self._out.put(body)

    def wake(self) -> None:
        """Has `on_idle` called. Finalizers may call it."""
        self._out.put(None)

    def leave(self) -> None:
        """The session is about to end: a broken connection is not made again."""
        self._closing.set()

    def close(self) -> None:
        """Ends the connection, not the session: the driver process is told by a message."""
        self._closing.set()
        self.fail(ConnectionError("The connection to the cluster was closed."), tell=False)
        self._disconnect()
        if self._receiver.is_alive() and threading.current_thread() is not self._receiver:
            self._receiver.join(_LEAVE_S)

    # ------------------------------------------------------------ connecting

    def _connect(self, resumes: bool) -> None:
        """Makes a channel and a stream.

        Raises:
            grpc.RpcError: that failed.
            HandshakeError: the head does not know the secret.
            ConnectionError: the head is of another version.
        """
        channel = self._channel = (
            grpc.secure_channel(self._address, tls.channel_credentials(grpc), OPTIONS)
            if tls.is_wanted()
            else grpc.insecure_channel(self._address, OPTIONS)
        )
        handshake = Handshake(self._secret, is_client=True)
        greeting = Greeting(handshake.greeting, PROTOCOL, versions.own_python(), versions.own_version())
        replied = channel.unary_unary(f"/{SERVICE}/Greet", None, None)(
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
            self._out.put(False)
            self._is_ready = False
            out = self._out = queue.SimpleQueue()
            out.put(self._stream.acknowledgement())
            out.put(None)
        self._call = channel.stream_stream(f"/{SERVICE}/Connect", None, None)(
            self._envelopes(out), metadata=metadata
        )

    def _disconnect(self) -> None:
        """The call is gone afterwards: one that is collected when the interpreter ends waits for a lock, which a thread
        of gRPC may hold that does not run any more."""
        self._out.put(False)
        call, self._call = self._call, None
        channel, self._channel = self._channel, None
        if call is not None:
            call.cancel()
        if channel is not None:
            channel.close()

    # ------------------------------------------------------------ sending

    def _envelopes(self, out: _Out) -> Iterator[bytes]:
        """What one stream sends. Runs on a thread of gRPC."""
        while True:
            item = out.get()
            bodies: list[bytes] = []
            size = 0
            idle = False
            while True:
                if item is False:
                    return
                if isinstance(item, bytes):
                    bodies.append(item)
                    size += len(item)
                else:
                    idle = True
                if size > ENVELOPE_BYTES:
                    break
                try:
                    item = out.get_nowait()
                except queue.Empty:
                    break
            if bodies:
                yield frames.encode(bodies)
            if idle and self.failure is None:
                self._on_idle()

    # ------------------------------------------------------------ receiving

    def _run(self) -> None:
        while True:
            error = self._receive()
            if self._closing.is_set() or self.failure is not None:
                self._disconnect()  # `close` may have come while the connection was made again
                return
            if _is_fatal(error) or not self._reconnect(error):
                break
        if not self._closing.is_set():
            self._disconnect()

    def _receive(self) -> Exception:
        """Takes what comes, until the stream breaks. Returns why it did."""
        call = self._call
        if call is None:
            return ConnectionError("the connection was closed")
        try:
            for envelope in call:
                for body in frames.decode(envelope):
                    with self.lock:
                        message = self._stream.receive(body)
                        if not self._is_ready:
                            self._is_ready = self._has_begun = True
                            for again in self._stream.again():
                                self._out.put(again)
                        elif self._stream.is_acknowledgement_due:
                            self._out.put(self._stream.acknowledgement())
                        self._room.notify_all()
                    if message is not None:
                        self._on_message(message)
            return ConnectionError("the head closed the connection")
        except grpc.RpcError as error:
            broken: Exception = error
            # The call is its own error, which its frames refer to: see `_disconnect`.
            broken.__traceback__ = None
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

    def _reconnect(self, why: Exception) -> bool:
        """Connects again within the grace period; False when that is over or in vain."""
        deadline = time.monotonic() + GRACE_S
        log.warning("The connection to the cluster broke (%s). Reconnecting for %g s.", _reason(why), GRACE_S)
        while not self._closing.wait(_AGAIN_S):
            self._disconnect()
            try:
                self._connect(self._has_begun)
                return True
            except grpc.RpcError as error:
                if _is_fatal(error):
                    self.fail(_ended(error))
                    return False
                why = error
            except (HandshakeError, ConnectionError) as error:
                self.fail(ConnectionError(f"The connection to the cluster is lost: {error}"))
                return False
            if time.monotonic() > deadline:
                self.fail(
                    ConnectionError(
                        f"The connection to the cluster at ray://{self._address} is lost: it broke, and could not be "
                        f"made again within {GRACE_S:g} s ({_reason(why)}). The driver process has ended, and with it "
                        "what it owned. Is the head still up? Call shutdown() and init() to start again."
                    )
                )
                return False
        return False

    def fail(self, error: Exception, tell: bool = True) -> None:
        """Nothing can be sent any more, for this reason. An earlier one stays."""
        with self.lock:
            if self.failure is None:
                self.failure = error
            self._room.notify_all()
        if tell:
            self._on_lost(self.failure)


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
