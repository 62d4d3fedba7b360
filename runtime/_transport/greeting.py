"""The handshake of a pump's TCP connections: incoming ones without threads, outgoing ones on a blocking socket.

An unproven peer costs a bounded amount: one deadline covers its whole handshake, at whatever pace it sends its bytes,
and the number of concurrent handshakes is limited.
"""

from __future__ import annotations

import logging
import math
import random
import resource
import socket
import time
from collections.abc import Callable

from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError

from .listener import Listener
from .pumping import Watcher

log = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0
CROWDED_TIMEOUT_S = 2.0
"""The deadline of a handshake while the limit is reached and more callers wait."""
MAX_UNPROVEN = 4096
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0


def unproven_limit() -> int:
    """Returns how many concurrent handshakes this process can afford: half of its descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_UNPROVEN if soft == resource.RLIM_INFINITY else max(1, min(MAX_UNPROVEN, soft // 2))


class Greeter:
    """The incoming handshakes of one pump. Everything here runs under the pump's lock.

    Thousands of workers may connect to one process at the same moment, so a full greeter must not drop a peer in
    favor of a newer one: honest peers would evict each other. Instead, new callers wait in the kernel's backlog until
    a place is free, and an honest peer frees its place after one round trip. Unresponsive peers would hold theirs for
    the whole deadline, so while callers wait, a peer that has had `crowded_s` is dropped. Unresponsive peers that fill
    the limit therefore delay an honest one by `crowded_s`, and dropped clients may retry (`connect_proven`).

    Args:
        pump: watches the sockets.
        timeout_s: the deadline of one handshake.
        crowded_s: its deadline while callers wait for a place.
        limit: how many handshakes may be under way.
    """

    def __init__(
        self,
        pump: Watcher,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
        crowded_s: float = CROWDED_TIMEOUT_S,
        limit: int | None = None,
    ) -> None:
        self.pump = pump
        self.timeout_s = timeout_s
        self.crowded_s = crowded_s
        self.limit = unproven_limit() if limit is None else limit
        self.peers: dict[int, _Peer] = {}  # by descriptor, the oldest first
        self._held: list[Listener] = []
        self.dropped = 0
        """How many peers were dropped before `timeout_s` because callers waited."""

    @property
    def is_full(self) -> bool:
        """Whether as many handshakes are under way as may be."""
        return len(self.peers) >= self.limit

    def hold(self, listener: Listener) -> None:
        """Resumes the listener as soon as there is room."""
        self._held.append(listener)
        self.pump.schedule(self)

    def greet(self, sock: socket.socket, secret: bytes, on_proven: Callable[[socket.socket], None]) -> None:
        """Begins a handshake. `on_proven` gets the socket when the peer has proved that it knows the secret."""
        peer = _Peer(self, sock, secret, on_proven)
        self.peers[sock.fileno()] = peer
        self.pump.schedule(self)
        peer.begin()

    def expire(self) -> float:
        """Drops the peers that are past their deadline. Returns how many seconds the next one has left."""
        now = time.monotonic()
        late = 0
        left = math.inf
        while self.peers:
            peer = next(iter(self.peers.values()))
            age = now - peer.began_s
            left = (min(self.crowded_s, self.timeout_s) if self._held else self.timeout_s) - age
            if left > 0:
                break
            left = math.inf
            if peer.proceed():  # this process may be the slow one: the proof may lie unread in the socket
                continue
            if age < self.timeout_s:
                self._drop(peer)
            else:
                peer.close()
                late += 1
        if late:
            log.warning("refused %d connections: no proof of the secret within %g s", late, self.timeout_s)
        if not self.peers:
            self.pump.timed.discard(self)
        return left

    def leave(self, peer: _Peer) -> None:
        """The handshake is over, however it ended: its place is free."""
        fd = peer.sock.fileno()
        self.peers.pop(fd, None)
        self.pump.forget(fd)
        held, self._held = self._held, []
        for listener in held:
            listener.resume()

    def close(self) -> None:
        """Drops all of them."""
        self._held.clear()
        for peer in list(self.peers.values()):
            peer.close()

    def abandon(self) -> None:
        """In a forked child: closes the descriptors and nothing else. See `Pump.abandon`."""
        for peer in self.peers.values():
            peer.sock.close()
        self.peers.clear()

    def _drop(self, peer: _Peer) -> None:
        if not self.dropped:
            log.warning(
                "%d connections have not proved the secret and more wait: those older than %g s are closed",
                self.limit,
                self.crowded_s,
            )
        self.dropped += 1
        peer.close()


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
        try:
            self._greeter.pump.watch(self.sock, self.on_events)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._say(self._handshake.greeting)
        except OSError as error:
            self.refuse(str(error))

    def on_events(self, _events: int) -> None:
        """Reads what has come."""
        self.proceed()

    def proceed(self) -> bool:
        """Takes the handshake as far as the received bytes allow. Returns whether that ended it.

        Reads no byte beyond the handshake: those belong to the connection.
        """
        try:
            while True:
                data = self.sock.recv(self._wanted - len(self._received))
                if not data:
                    self.close()  # perhaps it only looked whether anybody listens here
                    return True
                self._received += data
                if len(self._received) < self._wanted:
                    continue
                received, self._received = self._received, b""
                if self._wanted == PROOF_BYTES:
                    self._handshake.verify(received)
                    break
                self._wanted = PROOF_BYTES
                self._say(self._handshake.proof(received))
        except BlockingIOError:
            return False
        except (HandshakeError, OSError) as error:
            self.refuse(str(error))
            return True
        self._greeter.leave(self)
        self._on_proven(self.sock)
        return True

    def refuse(self, why: str) -> None:
        """Closes, and says so in the log."""
        log.warning("refused a connection: %s", why)
        self.close()

    def close(self) -> None:
        """Closes without a word."""
        self._greeter.leave(self)
        self.sock.close()

    def _say(self, data: bytes) -> None:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent != len(data):  # these are the first bytes of the connection: they always fit
            raise HandshakeError("the peer does not read")


def connect_proven(
    host: str, port: int, secret: bytes, connect_timeout_s: float, is_wanted: Callable[[], bool]
) -> socket.socket:
    """Connects and runs the handshake. Blocks, for `connect_timeout_s` and `HANDSHAKE_TIMEOUT_S` together at most.

    A crowded listener closes connections during the handshake. Then this tries again, with jitter, until the deadline:
    no message has been sent yet, so none can be lost or arrive twice. It does not try again when nobody listens, for
    then the process has ended, and its callers must learn that at once.

    Args:
        is_wanted: asked before each further attempt.

    Raises:
        HandshakeError: the peer does not know the secret.
        OSError: the connection cannot be made, or was closed until the deadline.
    """
    deadline = time.monotonic() + connect_timeout_s + HANDSHAKE_TIMEOUT_S
    pause_s = FIRST_RETRY_S
    while True:
        try:
            return _connect_once(host, port, secret, connect_timeout_s, deadline)
        except ConnectionRefusedError:
            raise
        except ConnectionError:
            if time.monotonic() + pause_s > deadline or not is_wanted():
                raise
        time.sleep(random.uniform(0, pause_s))
        pause_s = min(2 * pause_s, LAST_RETRY_S)


def _connect_once(
    host: str, port: int, secret: bytes, connect_timeout_s: float, deadline: float
) -> socket.socket:
    left = max(deadline - time.monotonic(), FIRST_RETRY_S)
    sock = socket.create_connection((host, port), min(left, connect_timeout_s))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        left = deadline - time.monotonic()
        prove(sock, secret, is_client=True, timeout_s=min(left, HANDSHAKE_TIMEOUT_S))
    except BaseException:
        sock.close()
        raise
    return sock


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
            raise ConnectionAbortedError("the peer closed the connection during the handshake")
        data += part
    return data
