"""The handshake of a pump's TCP connections: incoming ones without threads, outgoing ones on a blocking socket.

Nobody has proved anything yet, so what a peer can cost is bounded: one deadline for its whole handshake, however it
sends its bytes, and a limit on how many handshakes are under way.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError

if TYPE_CHECKING:
    from .pump import Pump

log = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0
MAX_UNPROVEN = 64
"""Handshakes that may be under way. With one more the oldest is dropped: a proper peer needs one round trip."""


class Greeter:
    """The incoming handshakes of one pump. Everything here runs under the pump's lock.

    Args:
        pump: watches the sockets.
        timeout_s: for one handshake as a whole.
        limit: how many may be under way.
    """

    def __init__(self, pump: Pump, timeout_s: float = HANDSHAKE_TIMEOUT_S, limit: int = MAX_UNPROVEN) -> None:
        self.pump = pump
        self.timeout_s = timeout_s
        self.limit = limit
        self.peers: dict[int, _Peer] = {}  # by descriptor, the oldest first
        self.dropped = 0
        """How many were dropped for newer ones."""

    def greet(self, sock: socket.socket, secret: bytes, on_proven: Callable[[socket.socket], None]) -> None:
        """Begins a handshake. `on_proven` gets the socket when the peer has proved that it knows the secret."""
        if len(self.peers) >= self.limit:
            if not self.dropped:
                log.warning("more than %d connections have proved nothing yet: the oldest go", self.limit)
            self.dropped += 1
            next(iter(self.peers.values())).close()
        peer = _Peer(self, sock, secret, on_proven)
        self.peers[sock.fileno()] = peer
        peer.begin()

    def expire(self) -> float:
        """Drops those that take too long. Returns how many seconds the next one has left."""
        now = time.monotonic()
        while self.peers:
            peer = next(iter(self.peers.values()))
            left = peer.began_s + self.timeout_s - now
            if left > 0:
                return left
            peer.refuse(f"it did not prove the secret within {self.timeout_s:g} s")
        return self.timeout_s

    def close(self) -> None:
        """Drops all of them."""
        for peer in list(self.peers.values()):
            peer.close()

    def abandon(self) -> None:
        """In a forked child: closes the descriptors and nothing else. See `Pump.abandon`."""
        for peer in self.peers.values():
            peer.sock.close()
        self.peers.clear()


class _Peer:
    """One incoming connection until it has proved the secret."""

    __slots__ = ("_greeter", "_handshake", "_on_proven", "_received", "_wanted", "began_s", "sock")

    def __init__(
        self,
        greeter: Greeter,
        sock: socket.socket,
        secret: bytes,
        on_proven: Callable[[socket.socket], None],
    ) -> None:
        self._greeter = greeter
        self._handshake = Handshake(secret, is_client=False)
        self._on_proven = on_proven
        self._received = b""
        self._wanted = GREETING_BYTES
        self.began_s = time.monotonic()
        self.sock = sock

    def begin(self) -> None:
        """Says our greeting, and listens."""
        self._greeter.pump.watch(self.sock, self.on_events)
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._say(self._handshake.greeting)
        except OSError as error:
            self.refuse(str(error))

    def on_events(self, _events: int) -> None:
        """Reads what has come. Never more than the handshake: what follows is for the connection."""
        try:
            data = self.sock.recv(self._wanted - len(self._received))
            if not data:
                self.close()  # perhaps it only looked whether anybody listens here
                return
            self._received += data
            if len(self._received) < self._wanted:
                return
            received, self._received = self._received, b""
            if self._wanted == GREETING_BYTES:
                self._wanted = PROOF_BYTES
                self._say(self._handshake.proof(received))
                return
            self._handshake.verify(received)
        except BlockingIOError:
            return
        except (HandshakeError, OSError) as error:
            self.refuse(str(error))
            return
        self._forget()
        self._on_proven(self.sock)

    def refuse(self, why: str) -> None:
        """Closes, and says so in the log."""
        log.warning("refused a connection: %s", why)
        self.close()

    def close(self) -> None:
        """Closes without a word."""
        self._forget()
        self.sock.close()

    def _forget(self) -> None:
        fd = self.sock.fileno()
        self._greeter.peers.pop(fd, None)
        self._greeter.pump.forget(fd)

    def _say(self, data: bytes) -> None:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent != len(data):  # these are the first bytes of the connection: they always fit
            raise HandshakeError("the peer takes nothing")


def prove(
    sock: socket.socket, secret: bytes, *, is_client: bool, timeout_s: float = HANDSHAKE_TIMEOUT_S
) -> None:
    """Runs the handshake on a blocking socket.

    Raises:
        HandshakeError: the peer does not know the secret.
        OSError: the connection broke, or all of it took longer than `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    handshake = Handshake(secret, is_client)
    sock.sendall(handshake.greeting)
    sock.sendall(handshake.proof(_exactly(sock, GREETING_BYTES, deadline)))
    handshake.verify(_exactly(sock, PROOF_BYTES, deadline))


def _exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the peer did not prove the secret in time")
        sock.settimeout(left)
        part = sock.recv(count - len(data))
        if not part:
            raise HandshakeError("the peer closed the connection during the handshake")
        data += part
    return data
