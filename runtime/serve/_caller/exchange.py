"""One request and its answer, as its caller sees them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeAlias

from runtime._extension.objects import value_of
from runtime.object_ref import ObjectRef
from runtime.serve._core.published import Target
from runtime.serve._wire import values
from runtime.serve._wire.messages import (
    ACKNOWLEDGE_BYTES,
    WINDOW_BYTES,
    Call,
    Cancel,
    Chunk,
    End,
    Event,
    Failure,
    Http,
    Item,
    Message,
    Result,
    Start,
    Window,
    size_of,
)
from runtime.serve.context import Deadline

Answer: TypeAlias = Result | Failure | Item | End | Start | Chunk | Event
Sink: TypeAlias = Callable[[Answer | BaseException], None]
"""Takes each message of the answer, or the error that ended the request; on the caller's loop."""

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods whose requests a gateway may repeat when a connection is lost: RFC 9110, section 9.2.2."""


class ExchangeOwner(Protocol):
    """Where requests wait, as they see it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of all that belongs to it."""

    def forget(self, exchange: Exchange) -> None:
        """A request does not wait any more."""


class Sender(Protocol):
    """The connection to the replica that a request is at."""

    @property
    def target(self) -> Target:
        """The replica."""

    def send(self, message: Message) -> None:
        """Sends a message; nothing after a loss."""


class State(Enum):
    """Where a request is."""

    WAITING = "waiting"  # in the queue
    SENT = "sent"  # at a replica
    ENDED = "ended"  # answered, failed or cancelled


class Exchange:
    """Belongs to the loop of its caller; `load` may be called from any thread.

    Args:
        sink: takes the answer; without one, `receive` gives it.
        arguments: of the call, for routers that look at them.
        allowed: the only replicas for it; None for all.
    """

    __slots__ = (
        "_accepted",
        "_arrived",
        "_chunks_sent",
        "_credit",
        "_error",
        "_has_answer",
        "_inbox",
        "_is_at_replica",
        "_on_end",
        "_room",
        "_sink",
        "_told",
        "_used",
        "_waiter",
        "allowed",
        "arguments",
        "begun",
        "deadline",
        "expiry",
        "kept",
        "link",
        "losses",
        "message",
        "number",
        "queue",
        "refusals",
        "state",
        "timer",
    )

    def __init__(
        self,
        queue: ExchangeOwner,
        message: Call | Http,
        sink: Sink | None = None,
        arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {}),
        allowed: frozenset[str] | None = None,
    ) -> None:
        self.queue = queue
        self.message = message
        self.arguments = arguments
        self.allowed = allowed
        self.state = State.WAITING
        self.link: Sender | None = None
        self.number = 0
        self.refusals = 0
        self.losses = 0
        """How many replicas died while it was there."""
        self.kept: ObjectRef | None = None
        """The object with the arguments, until the request has ended."""
        self.begun: asyncio.Future[None] | None = None
        """Is done when the request is sent."""
        self.deadline: Deadline | None = None
        """Of the request whose code makes it."""
        self.expiry: asyncio.TimerHandle | None = None
        """Gives it up then."""
        self._on_end: Callable[[], None] | None = None
        self._is_at_replica = True  # or will be, or waits
        self.timer: asyncio.TimerHandle | None = None
        """Of the next step of its routing."""
        self._sink = sink
        self._inbox: deque[Answer] = deque()
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._credit = WINDOW_BYTES
        self._room: asyncio.Future[None] | None = None
        self._chunks_sent = False
        self._has_answer = False
        # Bytes of the answer's bodies since its beginning:
        self._arrived = 0
        self._used = 0
        self._told = 0  # by `Window`
        self._accepted: dict[bytes, ObjectRef] = {}

    # ------------------------------------------------------------ for its user

    @property
    def replica(self) -> str:
        """Where it is, or "" while it waits."""
        return self.link.target.replica if self.link is not None else ""

    async def receive(self) -> Answer:
        """The next message of the answer. After the last one (`Result`, `Failure`, `End`, a `Chunk` without `more`)
        there is none.

        Raises:
            ActorDiedError: the connection to the replica is lost.
            asyncio.CancelledError: the request was cancelled, by `cancel`.
            ReplicaUnavailableError: a replica refused it after a part of its body was sent.
            RuntimeError: the last message was read already.
        """
        while not self._inbox:
            if self._error is not None:
                raise self._error
            if self.state is State.ENDED:
                raise RuntimeError(f"Request {self.message.meta.request_id} has ended: its answer was read.")
            self._waiter = self.queue.loop.create_future()
            await self._waiter
        message = self._inbox.popleft()
        if isinstance(message, Chunk | Item):
            self.used(len(message.body))
        elif isinstance(message, Event):
            self.used(size_of(message.event))
        return message

    def arrived(self, most_bytes: int) -> Chunk | None:
        """The next message, if it is here already and is a `Chunk` of at most so many bytes."""
        if not self._inbox:
            return None
        chunk = self._inbox[0]
        if not isinstance(chunk, Chunk) or len(chunk.body) > most_bytes:
            return None
        self._inbox.popleft()
        self.used(len(chunk.body))
        return chunk

    async def send(self, chunk: bytes, more: bool) -> None:
        """Sends a part of the request's body, once the replica has room for it. After the request has ended, it does
        nothing: there is an answer, or an error."""
        await self._has_room()
        if self.state is State.SENT and self.link is not None:
            self._credit -= len(chunk)
            self._chunks_sent = True
            self.link.send(Chunk(self.number, chunk, more))

    async def send_event(self, event: dict[str, Any]) -> None:
        """Sends an event of a WebSocket, likewise."""
        await self._has_room()
        if self.state is State.SENT and self.link is not None:
            self._credit -= size_of(event)
            self._chunks_sent = True
            self.link.send(Event(self.number, event))

    def cancel(self) -> None:
        """Nobody waits for the answer any more. A request that runs is cancelled; what still comes is dropped."""
        self.give_up(asyncio.CancelledError())

    def give_up(self, error: BaseException) -> None:
        """`cancel` with an error for its user."""
        if self.state is State.ENDED:
            return
        if self.state is State.WAITING:
            self.queue.forget(self)
        elif self.link is not None:
            self.link.send(Cancel(self.number))
        self.fail(error)

    def load(self, body: bytes) -> Any:
        """The value of the body of a `Result` or `Item`; may wait for the object store.

        Raises: see `values.load`.
        """
        ref = self._accepted.pop(body, None)
        return values.load(body) if ref is None else value_of(ref)

    async def load_async(self, body: bytes) -> Any:
        """The same on any event loop."""
        ref = self._accepted.pop(body, None)
        return values.load(body) if ref is None else await ref

    def used(self, size: int) -> None:
        """So many more bytes of chunks, items or events are used; the replica may send more."""
        self._used += size
        if self._used - self._told >= ACKNOWLEDGE_BYTES:
            self._tell(self._used)

    # ------------------------------------------------------------ for its link and queue

    def may_be_repeated(self) -> bool:
        """Whether another replica can get the request, if none has begun with it."""
        return self.state is State.SENT and not self._chunks_sent

    def may_follow_a_loss(self) -> bool:
        """Whether another replica can get the request after the death of the one that it was at: once, if it is
        complete and idempotent, and no part of an answer has come."""
        message = self.message
        return (
            self.state is State.SENT
            and isinstance(message, Http)
            and message.kind == "http"
            and message.method in IDEMPOTENT
            and not (message.more or self._has_answer or self.losses)
        )

    def sent(self, link: Sender, number: int) -> None:
        """It is on its way."""
        self.link, self.number = link, number
        self.state = State.SENT
        self._credit = WINDOW_BYTES
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.begun is not None and not self.begun.done():
            self.begun.set_result(None)
        self._give_room()

    def refused(self) -> None:
        """No replica has it any more: it waits again."""
        self.link = None
        self.state = State.WAITING

    def came(self, message: Answer) -> None:
        """A message of the answer that is not its last one."""
        self._has_answer = True
        if isinstance(message, Item | Chunk):
            self._arrived += len(message.body)
            if isinstance(message, Item) and values.is_address(message.body):
                self._accept(message.body)
        if self.state is State.SENT:
            self._hand_over(message)

    def finished(self, message: Answer) -> None:
        """The last message came. Its slot is free already."""
        if isinstance(message, Result | Failure) and message.body and values.is_address(message.body):
            self._arrived += len(message.body)
            self._accept(message.body)
        if self.state is State.SENT:
            self.state = State.ENDED
            self._stop_clock()
            self._hand_over(message)
        self.ended_at_replica()

    def fail(self, error: BaseException) -> None:
        """It ends without an answer."""
        if self.state is State.ENDED:
            return
        waited = self.state is State.WAITING
        self.state = State.ENDED
        self._stop_clock()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._error = error
        if self.begun is not None and not self.begun.done():
            if isinstance(error, asyncio.CancelledError):
                self.begun.cancel()
            else:
                self.begun.set_exception(error)
        elif self._sink is not None:
            self._sink(error)
        else:
            self._wake()
        self._give_room()
        if waited:
            self.ended_at_replica()

    def ended_at_replica(self) -> None:
        """It does not run any more, and will not."""
        self._give_room()
        self._is_at_replica = False
        self.kept = None
        if self._on_end is not None:
            self._on_end()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Calls back once the request does not run any more, for whatever reason. There is one callback."""
        if self._is_at_replica:
            self._on_end = callback
        else:
            callback()

    def gained(self, size: int) -> None:
        """The replica has used so many bytes of what was sent."""
        self._credit += size
        self._give_room()

    # ------------------------------------------------------------ inside

    def _stop_clock(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None

    def _accept(self, body: bytes) -> None:
        """Takes the reference over. The replica may let go of it once the object's owner knows of this process."""
        loop, position = self.queue.loop, self._arrived
        if self.state is State.SENT:

            def registered() -> None:
                loop.call_soon_threadsafe(self._tell, position)

            self._accepted[body] = values.accept(body, registered)
        else:
            self._tell(position)

    def _tell(self, position: int) -> None:
        """Tells the replica that this side has the answer's bodies up to there."""
        if self.link is not None and position > self._told:
            self.link.send(Window(self.number, position - self._told))
            self._told = position

    async def _has_room(self) -> None:
        """Waits until the request is at a replica that has room for more of it, or has ended."""
        while self.state is State.WAITING or (self._credit <= 0 and self.state is State.SENT):
            self._room = self.queue.loop.create_future()
            await self._room

    def _hand_over(self, message: Answer) -> None:
        if self._sink is not None:
            self._sink(message)
        else:
            self._inbox.append(message)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _give_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
