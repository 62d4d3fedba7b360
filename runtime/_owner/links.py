"""The connections of a driver or worker: to its node agent, and to other drivers and workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from runtime import exceptions
from runtime._transport.connection import Connection
from runtime._transport.failures import report
from runtime._transport.pump import Pump
from runtime._wire.messages.base import ErrorKind, ErrorReply, Request, WorkerAddress
from runtime._wire.messages.node import NodeDied, Register, Registered
from runtime._wire.messages.worker import Hello

from .errors import session_over

log = logging.getLogger("runtime")
REGISTER_TIMEOUT_S = 30.0


class Lending(Protocol):
    """Lends the CPUs of tasks that wait."""

    def check_event_loop(self) -> None:
        """Warns when the calling thread, which is about to wait, runs an event loop."""

    def may_block(self) -> bool:
        """Whether the calling thread holds CPUs that it could lend while it waits."""

    def blocking_wait(self, ready: Callable[[], Any], timeout_s: float | None) -> bool:
        """Waits like `Pump.wait`, and lends them if that takes a while."""


class Links:
    """Registers this process with its node agent, listens for other processes, and connects to them.

    Args:
        pump: carries everything. Its dispatcher keeps early messages until the process can serve them.
        agent_path: Unix socket of the node agent.
        register: the registration to send; `address` and `pid` are filled in here.
        worker_id: 28 bytes.
        host: the node's address, where it is known beforehand.
        on_agent_lost: called under the lock when the agent is gone, unless this process has left before.

    Raises:
        RaySystemError: the agent is not there or refuses.
    """

    def __init__(
        self,
        pump: Pump,
        agent_path: str,
        register: Register,
        worker_id: bytes,
        host: str,
        on_agent_lost: Callable[[], None],
    ) -> None:
        self.pump = pump
        self.lock = pump.lock
        self.closing = False
        self.lending: Lending | None = None
        """Set in a worker."""
        self._on_agent_lost = on_agent_lost
        self.on_peer_lost: tuple[Callable[[Connection], None], ...] = ()
        """Called under the lock, each although another one fails, with the connection to a lost process."""
        self._peers: dict[bytes, Connection] = {}
        listen_path = os.path.join(os.path.dirname(agent_path), f"w-{worker_id.hex()[:16]}")
        self._listen_path = listen_path
        pump.listen_unix(listen_path, self._accepted)
        try:
            # Callers may come before the agent has told us the secret: they wait until `admit`.
            port = pump.listen_tcp(host, self._accepted) if host else 0
            self.address = WorkerAddress(worker_id, b"", listen_path, host, port)
            self.agent = pump.connect_unix(agent_path, "the node agent")
            self.agent.on_close = self._agent_lost
            register = msgspec.structs.replace(register, address=self.address, pid=os.getpid())
            reply = pump.call(self.agent, register, REGISTER_TIMEOUT_S)
        except OSError as error:
            self.close()
            raise exceptions.RaySystemError(
                f"The node agent at {agent_path} does not answer ({error}). Is the cluster still up?"
            ) from error
        if isinstance(reply, ErrorReply):
            self.close()
            raise exceptions.RaySystemError(f"The node agent refused this process: {reply.message}")
        self.session: Registered = reply
        pump.admit(reply.secret)
        host = reply.node_host
        port = port or pump.listen_tcp(host, self._accepted)
        self.address = WorkerAddress(worker_id, reply.node_id, listen_path, host, port)

    # ------------------------------------------------------------ waiting and calling

    def wait(self, ready: Callable[[], Any], timeout_s: float | None) -> bool:
        """Waits like `Pump.wait`; a task that waits lends its CPUs meanwhile."""
        if ready():
            return True
        lending = self.lending
        if lending is not None:
            lending.check_event_loop()
            if lending.may_block():
                return lending.blocking_wait(ready, timeout_s)
        return self.pump.wait(ready, timeout_s)

    def call_agent(self, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """Calls the agent (or, through it, the control store) and waits for the reply, errors included.

        Raises:
            RaySystemError: the agent is gone.
        """
        reply = self.pump.call(self.agent, request, timeout_s)
        if isinstance(reply, ErrorReply):
            self.check()
        return reply

    def ask(self, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """Like `call_agent`, but errors raise.

        Raises:
            GetTimeoutError, RaySystemError: by the kind of the error.
        """
        reply = self.call_agent(request, timeout_s)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.TIMEOUT:
                raise exceptions.GetTimeoutError(reply.message)
            raise exceptions.RaySystemError(reply.message)
        return reply

    def check(self) -> None:
        """Raises why this process has left the cluster, if it has: nothing new can be started then.

        Raises:
            RaySystemError: the agent is gone, or `shutdown` was called.
        """
        if self.pump.failure is not None:
            raise self.pump.failure.with_traceback(None)

    # ------------------------------------------------------------ other processes

    def peer(self, address: WorkerAddress, connect: bool = True) -> Connection | None:
        """The connection to another driver or worker; None when it cannot be reached. Under the lock."""
        connection = self._peers.get(address.worker_id)
        if connection is not None or not connect:
            return connection
        name = f"worker {address.worker_id.hex()[:12]}"
        try:
            if address.node_id == self.address.node_id:
                connection = self.pump.connect_unix(address.unix_path, name)
            else:
                name = f"{name} at {address.host}:{address.port}"
                connection = self.pump.connect_tcp(address.host, address.port, self.session.secret, name)
        except OSError as error:
            log.debug("cannot reach worker %s: %s", address.worker_id.hex(), error)
            return None
        connection.peer = address
        connection.on_close = self._peer_lost
        connection.send(Hello(self.address, self.session.job_id))
        self._peers[address.worker_id] = connection
        return connection

    def peers(self) -> list[Connection]:
        """The connections to other drivers and workers. Under the lock."""
        return list(self._peers.values())

    def on_hello(self, connection: Connection, message: Hello, _correlation: int) -> None:
        connection.peer = message.address
        self._peers.setdefault(message.address.worker_id, connection)

    def on_node_died(self, _connection: Connection, message: NodeDied, _correlation: int) -> None:
        for peer in self.peers():
            if peer.peer.node_id == message.node_id:
                peer.close()

    def _accepted(self, connection: Connection) -> None:
        connection.on_close = self._peer_lost

    def _peer_lost(self, connection: Connection) -> None:
        if self.closing or connection.peer is None:
            return
        worker_id = connection.peer.worker_id
        if self._peers.get(worker_id) is connection:
            del self._peers[worker_id]
        for tell in self.on_peer_lost:
            try:
                tell(connection)
            except Exception:
                report("telling of a lost process")

    # ------------------------------------------------------------ the end

    def _agent_lost(self, _connection: Connection) -> None:
        if not self.closing:
            self._on_agent_lost()

    def abandon(self, failure: Exception) -> None:
        """In a forked child: lets go of the parent's connections. Every wait raises `failure` from now on."""
        self.pump.abandon()
        self.pump.failure = failure
        self.lock = self.pump.lock

    def close(self) -> None:
        """Leaves the cluster. The agent notices by the closed socket."""
        self.closing = True
        if self.pump.failure is None:
            self.pump.failure = session_over()
        self.pump.stop()
        try:
            os.unlink(self._listen_path)
        except FileNotFoundError:
            pass
