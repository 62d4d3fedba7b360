"""The connection of this process to one replica."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from runtime.exceptions import ActorDeath, ActorDiedError
from runtime.serve._core.published import Target
from runtime.serve._core.slots import Borrower
from runtime.serve._wire.connection import Connection
from runtime.serve._wire.messages import (
    VERSION,
    Chunk,
    End,
    Event,
    Failure,
    Grant,
    Hello,
    Item,
    Message,
    Models,
    Recall,
    Result,
    Return,
    Start,
    Statistics,
    Welcome,
    Window,
)
from runtime.serve.exceptions import ReplicaUnavailableError

from .exchange import Exchange

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
MOST_RETRY_S = 2.0
CONNECT_S = 10.0
"""Timeout of the connection to a replica, including its `Welcome`."""
MOST_REFUSALS = 20
"""A request that this many replicas have refused fails."""


class LinkOwner(Protocol):
    """The queue that a link works for."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of all that belongs to it."""

    @property
    def borrower(self) -> Borrower[Exchange]:
        """The slots of all replicas, and the requests that wait."""

    def connected(self, link: Link) -> None:
        """A replica can be asked for slots."""

    def lost(self, link: Link) -> None:
        """A replica cannot be reached."""

    def described(self, link: Link) -> None:
        """A replica has told which models it has, or its statistics."""

    def send_elsewhere(self, exchange: Exchange) -> None:
        """The replica did not begin with a request."""

    def tell_wants_soon(self) -> None:
        """Another number of slots may be wanted."""

    def served(self) -> None:
        """Waiting requests were sent."""


class Link:
    """Connects, and connects again after a loss until the replica is retired. Belongs to the caller's loop.

    Args:
        caller: names this process to the replica.
        node: id of this node, in hex.
    """

    def __init__(self, queue: LinkOwner, target: Target, caller: str, node: str) -> None:
        self.target = target
        self.is_near = target.node == node
        self._caller = caller
        self.models: frozenset[str] = frozenset()
        self.statistics: dict[str, Any] = {}
        self._queue = queue
        self._exchanges: dict[int, Exchange] = {}
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None
        self._welcome: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._is_retired = False
        self._is_over = False
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Result: self._last,
            Failure: self._last,
            End: self._last,
            Chunk: self._chunk,
            Item: self._part,
            Start: self._part,
            Event: self._part,
            Window: self._window,
            Grant: self._grant,
            Recall: self._recall,
            Welcome: self._welcomed,
            Models: self._models,
            Statistics: self._statistics,
        }

    # ------------------------------------------------------------ for the queue and exchanges

    @property
    def is_retired(self) -> bool:
        """Whether it takes no new requests."""
        return self._is_retired

    @property
    def is_over(self) -> bool:
        """Whether it was retired and its last request has ended: it connects no more."""
        return self._is_over

    async def run(self) -> None:
        """Keeps the connection until the replica is retired."""
        pause_s = FIRST_RETRY_S
        while not self._is_retired:
            try:
                await self._connect()
                pause_s = FIRST_RETRY_S
                assert self._lost is not None
                await self._lost
            except (OSError, TimeoutError) as error:
                log.debug("Replica %s cannot be reached: %s", self.target.replica, error)
            if not self._is_retired:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_RETRY_S)
        self._is_over = True

    def begin(self, exchange: Exchange) -> None:
        """Sends a request, with a slot that it has."""
        connection = self._connection
        if connection is None or not connection.is_open:
            self._queue.borrower.lost(self.target.replica)  # `_connection_lost` is about to be called
            self._queue.send_elsewhere(exchange)
            return
        number = next(self._numbers)
        self._exchanges[number] = exchange
        exchange.sent(self, number)
        connection.send(msgspec.structs.replace(exchange.message, number=number))

    def send(self, message: Message) -> None:
        """Sends a message; nothing after a loss."""
        if self._connection is not None:
            self._connection.send(message)

    def retire(self) -> None:
        """Takes no new requests. The connection ends with the last one."""
        self._is_retired = True
        if slots := self._queue.borrower.retire(self.target.replica):
            self.send(Return(slots))
        self._close_if_unused()

    def restore(self) -> None:
        """Takes requests again: the controller lists the replica after all."""
        self._is_retired = False
        self._queue.borrower.restore(self.target.replica)

    def close(self) -> None:
        """Ends the connection now. Its requests fail."""
        self._is_retired = True
        if self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------ the connection

    async def _connect(self) -> None:
        target, loop = self.target, self._queue.loop
        if target.unix and self.is_near:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            address: Any = target.unix
        else:
            family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address = (target.host, target.port)
        sock.setblocking(False)
        self._welcome, self._lost = loop.create_future(), loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(sock, address)
                _, connection = await loop.create_connection(self._protocol, sock=sock)
                connection.send(Hello(VERSION, target.token, self._caller))
                await self._welcome
        except BaseException:
            if self._connection is not None:
                self._connection.close()
            else:
                sock.close()
            raise
        self._queue.connected(self)

    def _protocol(self) -> Connection:
        return Connection(self._received, self._connection_lost, from_replica=True, opened=self._opened)

    def _opened(self, connection: Connection) -> None:
        self._connection = connection  # before it can be lost

    def _received(self, _connection: Connection, message: Any) -> None:
        self._handlers[type(message)](message)

    def _connection_lost(self, connection: Connection, error: BaseException | None) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        assert self._welcome is not None
        assert self._lost is not None
        if not self._welcome.done():
            self._welcome.set_exception(ConnectionError(f"The replica closed the connection ({error})."))
        if not self._lost.done():
            self._lost.set_result(None)
        self._queue.borrower.lost(self.target.replica)
        exchanges, self._exchanges = self._exchanges, {}
        # Each goes to the head of the queue, so the oldest must be the last one to go there.
        for exchange in reversed(exchanges.values()):
            if exchange.may_follow_a_loss():
                exchange.losses += 1
                self._queue.send_elsewhere(exchange)
                continue
            reason = f"The connection was lost while it worked on request {exchange.message.meta.request_id}"
            app, deployment, _ = self.target.replica.split("#", 2)
            exchange.fail(
                ActorDiedError(
                    ActorDeath(
                        f"{reason}{f' ({error})' if error else ''}. The request may have run in part; send it again if "
                        "that is safe.",
                        class_name=f"{deployment} of application {app}",
                        name=self.target.replica,
                    )
                )
            )
            exchange.ended_at_replica()
        self._queue.lost(self)

    def _close_if_unused(self) -> None:
        if self._is_retired and not self._exchanges and self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------ requests

    def _chunk(self, message: Chunk) -> None:
        if message.more:
            self._part(message)
        else:
            self._last(message)

    def _part(self, message: Item | Start | Chunk | Event) -> None:
        self._exchanges[message.number].came(message)

    def _window(self, message: Window) -> None:
        exchange = self._exchanges.get(message.number)
        if exchange is not None:  # else it was on its way when the request ended
            exchange.gained(message.size)

    def _last(self, message: Result | Failure | End | Chunk) -> None:
        exchange = self._exchanges.pop(message.number)
        self._slot_back(message.keep)
        if isinstance(message, Failure) and message.kind == "refused":
            exchange.refusals += 1
            if exchange.may_be_repeated() and exchange.refusals < MOST_REFUSALS:
                self._queue.send_elsewhere(exchange)
            else:
                exchange.fail(ReplicaUnavailableError(self.target.replica))
                exchange.ended_at_replica()
        else:
            exchange.finished(message)
        self._close_if_unused()

    def _slot_back(self, keep: bool) -> None:
        queue = self._queue
        following = queue.borrower.ended(self.target.replica, keep)
        if following is not None:
            self.begin(following)
            queue.served()
        elif keep:
            if self._is_retired and (slots := queue.borrower.recalled(self.target.replica)):
                self.send(Return(slots))
        elif queue.borrower.waiting:
            queue.tell_wants_soon()

    # ------------------------------------------------------------ slots

    def _grant(self, message: Grant) -> None:
        queue, replica = self._queue, self.target.replica
        for exchange in queue.borrower.granted(replica, message.slots, message.scarce):
            self.begin(exchange)
        surplus = queue.borrower.surplus(replica, message.scarce)
        if surplus is not None:
            self.send(Return(surplus))
        queue.tell_wants_soon()
        queue.served()

    def _recall(self, _message: Recall) -> None:
        self.send(Return(self._queue.borrower.recalled(self.target.replica)))

    def _welcomed(self, message: Welcome) -> None:
        if message.replica != self.target.replica:
            raise ConnectionError(f"{message.replica} answers at the address of {self.target.replica}.")
        if self._welcome is not None and not self._welcome.done():
            # Slots and grants may follow in the same packet: the borrower must know the replica before.
            self._queue.borrower.add(self.target.replica, self.is_near, message.slots)
            self._welcome.set_result(None)
            if self._is_retired:
                self._queue.borrower.retire(self.target.replica)
                self._close_if_unused()

    def _models(self, message: Models) -> None:
        self.models = frozenset(message.ids)
        self._queue.described(self)

    def _statistics(self, message: Statistics) -> None:
        self.statistics = message.values
        self._queue.described(self)
