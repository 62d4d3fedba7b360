"""SSH connections: one per machine and process, made when it is first needed and kept.

Everything that paramiko or a socket raises is translated here, once, into the errors of `Shell`:

    ShellRefused      nobody listens, or whoever does hangs up before the greeting, or lets nobody in while it boots
    PortClosed        nobody listens at the port to which a tunnel should lead
    ShellTimedOut     no answer, or no way there
    ShellAuthFailed   our keys are not accepted, or cannot be read
    HostKeyChanged    it is not the machine that it was
    ShellLost         the connection broke
    ShellError        anything else, e.g. an unknown name
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import getpass
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autoscaler.provider import (
    PortClosed,
    ShellAuthFailed,
    ShellError,
    ShellLost,
    ShellRefused,
    ShellTimedOut,
)

from . import agent, certificates, known_hosts
from .channel import Channel
from .kept import Kept
from .opening import GivenUp, Opening
from .proxy import Proxy
from .target import SshTarget
from .watched import Watched

if TYPE_CHECKING:
    import paramiko

CONNECT_S = 20.0
"""How long a connection may take, greetings and keys included."""
_SESSIONS = 8
"""At once, of one connection. sshd allows ten."""
_SPARE = 2
"""The rest is for those that it has not yet noticed the end of, and for those that came too late. The one that is kept
goes where there is no room for it."""
_OPEN_S = 5.0
"""How long the opening of a session may take at least: whatever is slower counts against `_SPARE`."""
_FULL_RETRY_S = 0.1
_CLOSE_S = 0.2
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN)
_TIMED_OUT = ("timeout", "timed out", "no existing session")
_HUNG_UP = ("banner", "eof", "negotiation failed", "session not active")
"""What paramiko says of it; the class of its error does not."""
_BOOTING = "nologin"
"""In what pam_nologin says while a machine lets nobody in yet."""
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""They bring their own MAC; that of others is compared in Python, byte by byte."""
_KEY_EXCHANGES = ("mlkem768x25519-sha256", "ecdh-sha2-nistp256")
"""The one that withstands quantum computers, where there is one; then that which sshd leaves to OpenSSL: it computes
curve25519, which is no stronger, by plain C of its own."""
_MIN_RTT = 148
"""Where Linux's `struct tcp_info` has the shortest round trip, in microseconds."""
_NEAR_US = 5000
_CONNECT_FAILED = 2
"""SSH_OPEN_CONNECT_FAILED of RFC 4254: sshd has tried."""


class HostKeyChanged(ShellError):
    """The machine shows another host key than the one that is pinned."""


@dataclass(slots=True)
class _Entry:
    """The connection to one target, or the place for it. `lock` is held while it is made.

    Attributes:
        late: sessions of this connection for which nobody waits any more. Those that have ended count no more.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    sessions: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_SESSIONS)
    )
    client: paramiko.SSHClient | None = None
    proxy: Proxy | None = None
    late: list[Opening] = field(default_factory=list)
    kept: Kept = field(default_factory=Kept)


class Connections:
    """The kept connections of a process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[SshTarget, _Entry] = {}

    @contextlib.contextmanager
    def session(self, target: SshTarget, deadline: float, *, is_new: bool = True) -> Iterator[Channel]:
        """A session channel, closed at the end. Connects first where it must. If a shell waits in it at the end, it is
        kept for whoever needs no new one.

        Args:
            deadline: on the monotonic clock, for what happens before the body begins.
            is_new: nothing has run in it.
        """
        entry = self._entry(target)
        if not entry.sessions.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ShellTimedOut(f"{target}: no session became free in time")
        try:
            age = entry.kept.age
            channel = None if is_new else entry.kept.take()
            if channel is None:
                channel = Channel(self._open(entry, target, deadline, "session", None), str(target))
                age = entry.kept.age
            try:
                yield channel
            except BaseException:
                channel.waits = False
                raise
            finally:
                if channel.waits:
                    entry.kept.put(channel, age)
                else:
                    channel.close()
                    entry.kept.end_age()
        finally:
            entry.sessions.release()

    def tunnel(self, target: SshTarget, host: str, port: int, deadline: float) -> Channel:
        """A channel that leads to a port that the machine reaches. The caller closes it."""
        return Channel(self._tunnel(target, host, port, deadline), str(target))

    def close(self, target: SshTarget) -> None:
        """Ends the connection, if there is one; the next use makes another."""
        with self._lock:
            entry = self._entries.get(target)
        if entry is not None:
            with entry.lock:
                _disconnect(entry)

    def close_all(self) -> None:
        """Ends all connections; those that lead through others first."""
        with self._lock:
            targets = sorted(self._entries, key=lambda target: target.jump is None)
        for target in targets:
            entry = self._entry(target)
            held = entry.lock.acquire(
                timeout=_CLOSE_S
            )  # or somebody waits for a machine that does not answer
            try:
                _disconnect(entry)
            finally:
                if held:
                    entry.lock.release()

    # -- inside

    def _tunnel(self, target: SshTarget, host: str, port: int, deadline: float) -> paramiko.Channel:
        return self._open(self._entry(target), target, deadline, "direct-tcpip", (host, port))

    def _entry(self, target: SshTarget) -> _Entry:
        with self._lock:
            return self._entries.setdefault(target, _Entry())

    def _open(
        self,
        entry: _Entry,
        target: SshTarget,
        deadline: float,
        kind: str,
        destination: tuple[str, int] | None,
    ) -> paramiko.Channel:
        import paramiko

        retried = False
        while True:
            transport, fresh = self._transport(entry, target, deadline)
            opening = Opening(transport, kind, destination)
            try:
                return opening.wait(max(_OPEN_S, deadline - time.monotonic()))
            except GivenUp:
                # Slow, or silent: what runs over it may go on, until it is given up.
                if destination is not None:
                    raise ShellTimedOut(f"{target} opens no way to {destination[0]} in time") from None
                self._note_late(entry, transport, opening)
                raise ShellTimedOut(f"{target} opens no session in time") from None
            except (EOFError, OSError) as error:
                lost: Exception = error
            except paramiko.SSHException as error:
                if not transport.is_active():
                    lost = error
                else:  # refused; of refusals at the same time paramiko tells the reason of one only
                    reason = getattr(error, "text", error)
                    if destination is not None:
                        raise _no_tunnel(target, destination[1], error) from error
                    if time.monotonic() + _FULL_RETRY_S > deadline:
                        raise ShellTimedOut(f"{target} opens no further session: {reason}") from error
                    entry.kept.end_age()
                    time.sleep(_FULL_RETRY_S)  # its own limit of sessions; others end
                    continue
            self._drop(entry, transport)
            if fresh or retried:
                why = transport.sock.silent or str(lost) or type(lost).__name__
                raise ShellLost(f"the connection to {target} is lost: {why}") from lost
            retried = True  # it had died unnoticed

    def _transport(
        self, entry: _Entry, target: SshTarget, deadline: float
    ) -> tuple[paramiko.Transport, bool]:
        """The live connection, and whether it was made just now."""
        if not entry.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ShellTimedOut(f"{target} does not answer in time")
        try:
            transport = entry.client.get_transport() if entry.client else None
            if transport is not None and transport.is_active():
                return transport, False
            _disconnect(entry)
            limit_s = min(CONNECT_S, max(0.1, deadline - time.monotonic()))
            self._connect(entry, target, time.monotonic() + limit_s)
            assert entry.client is not None
            transport = entry.client.get_transport()
            assert transport is not None
            return transport, True
        finally:
            entry.lock.release()

    def _drop(self, entry: _Entry, transport: paramiko.Transport) -> None:
        with entry.lock:
            if entry.client is not None and entry.client.get_transport() is transport:
                _disconnect(entry)

    def _note_late(self, entry: _Entry, transport: paramiko.Transport, opening: Opening) -> None:
        """Until it has come it takes a place; where too many do the connection is given up."""
        with entry.lock:
            if entry.client is None or entry.client.get_transport() is not transport:
                return
            entry.late = [late for late in (*entry.late, opening) if not late.has_ended]
            if len(entry.late) > _SPARE:
                _disconnect(entry)

    def _connect(self, entry: _Entry, target: SshTarget, deadline: float) -> None:
        # An agent may hold the key of an identity file that only has its public half, or wants a passphrase.
        is_shut_out = bool(target.key_file) or (
            target.identities_only and any(map(_is_usable, target.identities))
        )
        no_agent = "" if is_shut_out else agent.silence()
        try:
            with _translated(target):
                stream = self._stream(entry, target, deadline)
                try:
                    allow_agent = not (is_shut_out or no_agent)
                    entry.client = _log_in(stream, target, deadline, allow_agent)
                except BaseException:
                    stream.close()
                    raise
        except ShellError as error:
            if entry.proxy is not None and (words := entry.proxy.last_words()):
                raise type(error)(f"{error}; its proxy command says: {words}") from error
            if no_agent and isinstance(error, ShellAuthFailed):
                raise ShellAuthFailed(f"{error}; {no_agent}") from error
            raise
        finally:
            if entry.client is None:
                _disconnect(entry)

    def _stream(self, entry: _Entry, target: SshTarget, deadline: float) -> Watched:
        """What SSH is spoken over: a socket, or a channel through another machine."""
        if target.jump is not None:
            try:
                channel = self._tunnel(target.jump, target.host, target.port, deadline)
            except PortClosed as error:  # of the machine itself, not of a port that somebody asked for
                raise ShellRefused(str(error)) from error
            return Watched(channel, str(target), channel.get_transport().sock)
        if target.proxy_command:
            user = target.user or getpass.getuser()
            entry.proxy = Proxy.start(target.proxy_command, target.host, target.port, user)
            return Watched(entry.proxy.stream, str(target))
        stream = _connected(target.host, target.port, deadline)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Watched(stream, str(target), is_near=_is_near(stream))


def _is_usable(identity: str) -> bool:
    """Whether a file holds a private key that needs no passphrase."""
    import paramiko

    try:
        paramiko.PKey.from_path(identity)
    except Exception:  # paramiko and cryptography have a kind of their own for each way to be no key
        return False
    return True


CONNECTIONS = Connections()
"""Of this process."""
atexit.register(CONNECTIONS.close_all)


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """A socket to the first address that answers. One that does not leaves most of the time to the others."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, address) in zip(reversed(range(len(found))), found, strict=True):
        stream = socket.socket(family, kind, protocol)
        limit_s = max(0.1, deadline - time.monotonic())
        stream.settimeout(limit_s / 3 if left else limit_s)
        try:
            stream.connect(address)
            return stream
        except OSError:
            stream.close()
            if not left:
                raise
    raise AssertionError("a name has an address, or is not known")


def _no_tunnel(target: SshTarget, port: int, error: paramiko.SSHException) -> ShellError:
    """Whether nobody listens where the tunnel should lead, or sshd opens no tunnel."""
    reason = getattr(error, "text", "") or error
    if getattr(error, "code", _CONNECT_FAILED) == _CONNECT_FAILED:
        return PortClosed(f"{target}: port {port}: {reason}")
    return ShellError(f"{target}: its sshd opens no tunnel to port {port}: {reason}")


def _is_near(stream: socket.socket) -> bool:
    """Whether the kernel has seen an answer within milliseconds. Other systems than Linux do not say."""
    asked = getattr(socket, "TCP_INFO", None)
    info = b"" if asked is None else stream.getsockopt(socket.IPPROTO_TCP, asked, _MIN_RTT + 4)
    return len(info) == _MIN_RTT + 4 and struct.unpack_from("I", info, _MIN_RTT)[0] < _NEAR_US


def _disconnect(entry: _Entry) -> None:
    if entry.client is not None:
        entry.client.close()
        entry.client, entry.late = None, []
        entry.kept.end_age()
    if entry.proxy is not None:
        entry.proxy.end()
        entry.proxy = None


def _log_in(stream: Watched, target: SshTarget, deadline: float, allow_agent: bool) -> paramiko.SSHClient:
    import paramiko

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it logs it raises, too
    client = paramiko.SSHClient()
    left = max(0.1, deadline - time.monotonic())
    try:
        known = known_hosts.known(target)
        client.set_missing_host_key_policy(known_hosts.checking(target, known))
        client.connect(
            target.host,
            target.port,
            target.user or None,
            sock=stream,
            timeout=left,
            banner_timeout=left,
            auth_timeout=left,
            channel_timeout=left,
            pkey=certificates.key_of(target.certificate, target.identities) if target.certificate else None,
            key_filename=os.path.expanduser(target.key_file) if target.key_file else [*target.identities],
            allow_agent=allow_agent,
            look_for_keys=not (target.key_file or target.identities),
            transport_factory=functools.partial(_transport, known.algorithms),
        )
        transport = client.get_transport()
        assert transport is not None
        stream.watch(lambda: _ask(transport))
        return client
    except paramiko.AuthenticationException as error:
        transport = client.get_transport()
        said = (transport.get_banner() if transport else None) or b""
        _close(client)
        if _BOOTING in said.decode(errors="replace"):
            raise ShellRefused(f"{target} lets nobody in while it boots") from error
        raise
    except BaseException:
        _close(client)
        raise


def _transport(host_keys: Container[str], stream: Watched, **options: object) -> paramiko.Transport:
    """One that prefers what is cheap among the algorithms that it knows, and host keys of these types; the others
    stay."""
    import paramiko

    transport = paramiko.Transport(stream, **options)
    security = transport.get_security_options()
    security.ciphers = sorted(security.ciphers, key=lambda name: name not in _CIPHERS)
    security.key_types = sorted(security.key_types, key=lambda name: name not in host_keys)
    security.kex = sorted(security.kex, key=lambda name: name not in _KEY_EXCHANGES)
    return transport


def _close(client: paramiko.SSHClient) -> None:
    """Of one that may be in the middle of the greetings: the timer that watches over them ends with it."""
    transport = client.get_transport()
    if transport is not None:
        transport.packetizer.complete_handshake()
    client.close()


def _ask(transport: paramiko.Transport) -> None:
    """Sends a request that no sshd knows, to which each has to say so. By the transport's own thread."""
    from paramiko import Message
    from paramiko.common import cMSG_GLOBAL_REQUEST

    if not transport.clear_to_send.is_set():
        return  # keys are exchanged anew, which is owed an answer, too
    request = Message()
    request.add_byte(cMSG_GLOBAL_REQUEST)
    request.add_string("keepalive@openssh.com")
    request.add_boolean(True)
    transport.packetizer.send_message(request)


def _is_one_of(words: Sequence[str], error: Exception) -> bool:
    return any(word in str(error).lower() for word in words)


@contextlib.contextmanager
def _translated(target: SshTarget) -> Iterator[None]:
    """The only place that knows what can go wrong below."""
    import paramiko

    tried = target.key_file or " or ".join(target.identities) or "any key of the agent or of ~/.ssh"
    try:
        yield
    except ShellError:
        raise
    except paramiko.BadHostKeyException as error:
        raise HostKeyChanged(
            f"{target} shows the host key {error.key.fingerprint} and not {error.expected_key.fingerprint}, by which "
            "it is known. If the machine was installed anew, remove its old key: "
            f"{known_hosts.removal(target)}; otherwise somebody may be listening in between"
        ) from error
    except paramiko.hostkeys.InvalidHostKey as error:
        raise ShellError(
            f"{target}: {target.known_hosts} has a line that is no host key; remove it: {error.line}"
        ) from error
    except paramiko.PasswordRequiredException as error:
        advice = "give it to an agent (ssh-add), and leave out auth.ssh_private_key"
        raise ShellAuthFailed(f"{target}: the private key has a passphrase: {advice}") from error
    except paramiko.AuthenticationException as error:
        if _is_one_of(_TIMED_OUT, error):
            raise ShellTimedOut(f"{target} does not answer: {error}") from error
        raise ShellAuthFailed(f"{target} does not accept {tried}: {error}") from error
    except socket.gaierror as error:
        raise ShellError(f"{target}: the name is not known: {error.strerror}") from error
    except TimeoutError as error:
        raise ShellTimedOut(f"{target} does not answer") from error
    except (ConnectionError, EOFError) as error:
        raise ShellRefused(f"{target} refuses the connection") from error
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise ShellError(f"{target} speaks another kind of SSH: {error}") from error
    except paramiko.SSHException as error:
        if isinstance(error.__cause__ or error.__context__, TimeoutError) or _is_one_of(_TIMED_OUT, error):
            raise ShellTimedOut(f"{target} does not answer: {error}") from error
        if _is_one_of(_HUNG_UP, error):
            raise ShellRefused(f"{target} hangs up: {error}") from error
        if "key" in str(error).lower() or "authentication methods" in str(error):
            raise ShellAuthFailed(f"{target} cannot be entered with {tried}: {error}") from error
        raise ShellError(f"{target}: {error}") from error
    except OSError as error:
        if error.errno in _UNREACHABLE:
            raise ShellTimedOut(f"{target} cannot be reached: {error.strerror}") from error
        if target.key_file and error.filename == os.path.expanduser(target.key_file):
            raise ShellAuthFailed(f"{target}: the key {target.key_file}: {error.strerror}") from error
        raise ShellError(f"{target}: {error}") from error
    except ValueError as error:  # a key file in an unknown form
        raise ShellAuthFailed(f"{target}: the key {target.key_file}: {error}") from error
