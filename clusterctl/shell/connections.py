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
import threading
import time
from collections.abc import Container
from contextlib import AbstractContextManager
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

from . import keys, known_hosts
from .channel import Channel, in_time
from .proxy import Proxy
from .target import SshTarget
from .watched import Watched, channel_errors

if TYPE_CHECKING:
    import paramiko

CONNECT_S = 20.0
"""How long a connection may take, greetings and keys included."""
_FULL_RETRY_S = 0.1
"""An sshd that refuses a session has as many as it allows, ten as a rule: so often it is asked again."""
_CLOSE_S = 0.2
_NEVER_S = 3600.0
"""A channel that has not come by then does not."""
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN)
_ROUNDING_S = 0.05
"""paramiko measures its waits by another clock."""
_BOOTING = "nologin"
"""In what pam_nologin says while a machine lets nobody in yet."""
_CONNECT_FAILED = 2
"""SSH_OPEN_CONNECT_FAILED of RFC 4254: sshd has tried."""


class HostKeyChanged(ShellError):
    """The machine shows another host key than the one that is pinned."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """One that is logged in.

    Attributes:
        stream: what it is spoken over.
        proxy: where that leads through a command.
    """

    client: paramiko.SSHClient
    transport: paramiko.Transport
    stream: Watched
    proxy: Proxy | None

    @property
    def is_alive(self) -> bool:
        return bool(self.transport.is_active())

    def open(self, kind: str, destination: tuple[str, int] | None, deadline: float) -> paramiko.Channel:
        """A new channel; one that comes too late is closed then. Raises TimeoutError, and what paramiko raises."""
        source = ("127.0.0.1", 0) if destination else None

        def late(channel: paramiko.Channel) -> None:
            with contextlib.suppress(*channel_errors()):
                channel.close()

        def work() -> paramiko.Channel:
            return self.transport.open_channel(kind, destination, source, timeout=_NEVER_S)

        return in_time(work, deadline, late)

    def end(self) -> None:
        self.client.close()
        if self.proxy is not None:
            self.proxy.end()


@dataclass(slots=True)
class _Entry:
    """The connection to one target, or the place for it. `lock` is held while it is made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: _Connection | None = None

    def disconnect(self) -> None:
        """To be called with `lock`."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.end()


class Connections:
    """The kept connections of a process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[SshTarget, _Entry] = {}

    def session(self, target: SshTarget, deadline: float) -> AbstractContextManager[Channel]:
        """A new session channel, closed at the end. Connects first where it must.

        Args:
            deadline: on the monotonic clock, for what happens before it is there.
        """
        return contextlib.closing(self._open(target, deadline, None))

    def tunnel(self, target: SshTarget, host: str, port: int, deadline: float) -> Channel:
        """A channel that leads to a port that the machine reaches. The caller closes it."""
        return self._open(target, deadline, (host, port))

    def close(self, target: SshTarget) -> None:
        """Ends the connection, if there is one; the next use makes another."""
        entry = self._entry(target)
        with entry.lock:
            entry.disconnect()

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
                entry.disconnect()
            finally:
                if held:
                    entry.lock.release()

    # -- inside

    def _entry(self, target: SshTarget) -> _Entry:
        with self._lock:
            return self._entries.setdefault(target, _Entry())

    def _open(self, target: SshTarget, deadline: float, destination: tuple[str, int] | None) -> Channel:
        """A tunnel to `destination`, or a session."""
        import paramiko

        entry, kind = self._entry(target), "direct-tcpip" if destination else "session"
        retried = False
        while True:
            connection, is_new = self._connection(entry, target, deadline)
            try:
                channel = connection.open(kind, destination, deadline)
                return Channel(channel, str(target), connection.stream)
            except TimeoutError:  # what runs over the connection may go on: it is slow, or `Watched` ends it
                what = f"way to {destination[0]}" if destination else "session"
                raise ShellTimedOut(f"{target} opens no {what} in time") from None
            except channel_errors() as error:
                if isinstance(error, paramiko.SSHException) and connection.is_alive:
                    if destination is not None:
                        raise _no_tunnel(target, destination[1], error) from error
                    if time.monotonic() + _FULL_RETRY_S > deadline:
                        # Of refusals at the same time paramiko tells the reason of one only.
                        reason = getattr(error, "text", error)
                        raise ShellTimedOut(f"{target} opens no further session: {reason}") from error
                    time.sleep(_FULL_RETRY_S)
                    continue
                with entry.lock:
                    if entry.connection is connection:
                        entry.disconnect()
                if is_new or retried:
                    why = connection.stream.silent or str(error) or type(error).__name__
                    raise ShellLost(f"the connection to {target} is lost: {why}") from error
            retried = True  # it had died unnoticed

    def _connection(self, entry: _Entry, target: SshTarget, deadline: float) -> tuple[_Connection, bool]:
        """The live connection, and whether it was made just now."""
        if not entry.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ShellTimedOut(f"{target} does not answer in time")
        try:
            if entry.connection is not None and entry.connection.is_alive:
                return entry.connection, False
            entry.disconnect()
            limit_s = min(CONNECT_S, max(0.1, deadline - time.monotonic()))
            entry.connection = self._connect(target, time.monotonic() + limit_s)
            return entry.connection, True
        finally:
            entry.lock.release()

    def _connect(self, target: SshTarget, deadline: float) -> _Connection:
        # An agent may hold the key of an identity file that only has its public half, or wants a passphrase.
        is_shut_out = bool(target.key_file) or (
            target.identities_only and any(map(keys.is_usable, target.identities))
        )
        no_agent = "" if is_shut_out else keys.agent_silence()
        with contextlib.ExitStack() as opened:
            proxy: Proxy | None = None
            try:
                if target.jump is None and target.proxy_command:
                    user = target.user or getpass.getuser()
                    proxy = Proxy.start(target.proxy_command, target.host, target.port, user)
                    opened.callback(proxy.end)
                stream = self._stream(target, proxy, deadline)
                opened.callback(stream.close)
                client = _log_in(stream, target, deadline, not (is_shut_out or no_agent))
            except ShellError as error:
                if proxy is not None and (words := proxy.last_words()):
                    raise type(error)(f"{error}; its proxy command says: {words}") from error
                if no_agent and isinstance(error, ShellAuthFailed):
                    raise ShellAuthFailed(f"{error}; {no_agent}") from error
                raise
            except OSError as error:
                raise _unreached(target, error) from error
            opened.pop_all()
            return _Connection(client, client.get_transport(), stream, proxy)

    def _stream(self, target: SshTarget, proxy: Proxy | None, deadline: float) -> Watched:
        """What SSH is spoken over: a socket, or a channel through another machine."""
        if target.jump is not None:
            try:
                tunnel = self.tunnel(target.jump, target.host, target.port, deadline)
            except PortClosed as error:  # of the machine itself, not of a port that somebody asked for
                raise ShellRefused(str(error)) from error
            return tunnel.watched(str(target))
        if proxy is not None:
            return Watched(proxy.stream, str(target))
        # A name may have several addresses: one that does not answer leaves time for the others.
        limit_s = max(0.1, deadline - time.monotonic()) / 2
        stream = socket.create_connection((target.host, target.port), limit_s)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Watched(stream, str(target))


CONNECTIONS = Connections()
"""Of this process."""
atexit.register(CONNECTIONS.close_all)


def _no_tunnel(target: SshTarget, port: int, error: paramiko.SSHException) -> ShellError:
    """Whether nobody listens where the tunnel should lead, or sshd opens no tunnel."""
    reason = getattr(error, "text", "") or error
    if getattr(error, "code", _CONNECT_FAILED) == _CONNECT_FAILED:
        return PortClosed(f"{target}: port {port}: {reason}")
    return ShellError(f"{target}: its sshd opens no tunnel to port {port}: {reason}")


def _log_in(stream: Watched, target: SshTarget, deadline: float, allow_agent: bool) -> paramiko.SSHClient:
    """The only place that knows what can go wrong in it."""
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
            pkey=keys.certified(target.certificate, target.identities) if target.certificate else None,
            key_filename=os.path.expanduser(target.key_file) if target.key_file else [*target.identities],
            allow_agent=allow_agent,
            look_for_keys=not (target.key_file or target.identities),
            transport_factory=functools.partial(_transport, known.algorithms),
        )
    except BaseException as error:
        transport = client.get_transport()
        is_connected, said = False, b""
        if transport is not None:
            is_connected, said = transport.is_active(), transport.get_banner() or b""
            transport.packetizer.complete_handshake()  # or the timer that watches over it keeps the process
        client.close()
        if not isinstance(error, (*channel_errors(), paramiko.hostkeys.InvalidHostKey, ValueError)):
            raise
        is_late = time.monotonic() > deadline - _ROUNDING_S
        raise _not_entered(target, error, is_late, is_connected, said.decode(errors="replace")) from error
    transport = client.get_transport()
    stream.watch(lambda: threading.Thread(target=_ask, args=(transport,), daemon=True).start())
    return client


def _transport(host_keys: Container[str], stream: Watched, **options: object) -> paramiko.Transport:
    """One that prefers host keys of these types."""
    import paramiko

    transport = paramiko.Transport(stream, **options)
    security = transport.get_security_options()
    security.key_types = sorted(security.key_types, key=lambda name: name not in host_keys)
    return transport


def _ask(transport: paramiko.Transport) -> None:
    """Sends a request that no sshd knows, to which each has to say so."""
    with contextlib.suppress(*channel_errors()):
        transport.global_request("keepalive@openssh.com", wait=True)


def _not_entered(
    target: SshTarget, error: BaseException, is_late: bool, is_connected: bool, banner: str
) -> ShellError:
    """Why nobody got in.

    Args:
        is_late: it took as long as it may.
        is_connected: the connection is there still.
        banner: what the machine said before.
    """
    import paramiko

    tried = target.key_file or " or ".join(target.identities) or "any key of the agent or of ~/.ssh"
    match error:
        case paramiko.BadHostKeyException():
            return HostKeyChanged(
                f"{target} shows the host key {error.key.fingerprint} and not {error.expected_key.fingerprint}, by "
                "which it is known. If the machine was installed anew, remove its old key: "
                f"{known_hosts.removal(target)}; otherwise somebody may be listening in between"
            )
        case paramiko.hostkeys.InvalidHostKey():
            return ShellError(
                f"{target}: {target.known_hosts} has a line that is no host key; remove it: {error.line}"
            )
        case paramiko.PasswordRequiredException():
            advice = "give it to an agent (ssh-add), and leave out auth.ssh_private_key"
            return ShellAuthFailed(f"{target}: the private key has a passphrase: {advice}")
        case paramiko.AuthenticationException() if _BOOTING in banner:
            return ShellRefused(f"{target} lets nobody in while it boots")
        case paramiko.ssh_exception.IncompatiblePeer():
            return ShellError(f"{target} speaks another kind of SSH: {error}")
        case paramiko.SSHException() if is_late or isinstance(error.__context__, TimeoutError):
            return ShellTimedOut(f"{target} does not answer: {error}")
        case paramiko.AuthenticationException():
            return ShellAuthFailed(f"{target} does not accept {tried}: {error}")
        case paramiko.SSHException() if is_connected:  # it lets in whoever has a key that we do not have
            return ShellAuthFailed(f"{target} cannot be entered with {tried}: {error}")
        case paramiko.SSHException():
            return ShellRefused(f"{target} hangs up: {error}")
        case EOFError():
            return ShellRefused(f"{target} refuses the connection")
        case OSError():
            return _unreached(target, error)
        case _:  # a key file in an unknown form
            return ShellAuthFailed(f"{target}: the key {target.key_file}: {error}")


def _unreached(target: SshTarget, error: OSError) -> ShellError:
    """What a socket's error says of a machine, or a file's of a key."""
    if isinstance(error, socket.gaierror):
        return ShellError(f"{target}: the name is not known: {error.strerror}")
    if isinstance(error, TimeoutError):
        return ShellTimedOut(f"{target} does not answer")
    if isinstance(error, ConnectionError):
        return ShellRefused(f"{target} refuses the connection")
    if error.errno in _UNREACHABLE:
        return ShellTimedOut(f"{target} cannot be reached: {error.strerror}")
    if target.key_file and error.filename == os.path.expanduser(target.key_file):
        return ShellAuthFailed(f"{target}: the key {target.key_file}: {error.strerror}")
    return ShellError(f"{target}: {error}")
