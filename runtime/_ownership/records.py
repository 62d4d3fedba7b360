"""The records of ownership: an object, the packed arguments of a call, and a submission.

There may be millions of them, and one of each is made for every call: they are structs that the garbage collector never
visits. Code that makes a cycle through one has to break it (`Entry.detach`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from runtime._core.tasks import TRANSITIONS, TaskState, step
from runtime._system import interpreter
from runtime._wire.messages.base import Message, WorkerAddress
from runtime._wire.messages.worker import Done, Push, StreamItem, Value

from .released import Released

INLINE, INLINE_ERROR, STORED, STORED_ERROR = 0, 1, 2, 3  # Value.kind


class Reference(msgspec.Struct, eq=False, gc=interpreter.TRACK_RECORDS):
    """What counts an object in this process.

    Args:
        owner: None for our own object, else the address of its owner.
        registered: the owner has confirmed that it knows of us; always true for our own.
        holds: the reasons of this process to keep the object; only `hold`, `release` and the two functions for many
            objects below change it.
    """

    object_id: bytes
    owner: WorkerAddress | None = None
    registered: bool = True
    holds: int = 0
    borrowers: set[bytes] | None = None
    nested: list[Entry] | None = None

    def hold(self) -> None:
        """One more reason to keep it."""
        self.holds += 1

    def release(self) -> bool:
        """One reason less. True: neither this process nor a borrower needs it, and the caller must end it."""
        self.holds -= 1
        return self.holds <= 0 and not self.borrowers


class Entry(Reference, eq=False, gc=interpreter.TRACK_RECORDS, kw_only=True):
    """One object as this process sees it. `value` is None until it is there; then the callbacks have run."""

    released: Released
    """Where its references go when they die."""
    value: Value | None = None
    callbacks: list[Callable[[], None]] | None = None
    task: Submission | None = None  # what made it, while it lies in a store
    dependents: int = 0  # how many tasks of the lineage have it as an argument
    fetched: bool = False  # `wait` has brought it to this node, or found that it cannot
    seen: bool = False  # an error: somebody was told
    asked: bool = False  # borrowed: the owner has been asked for the value
    on_registered: list[Callable[[], None]] | None = None
    on_free: Callable[[], None] | None = None

    def detach(self) -> None:
        """Breaks every cycle that it may be part of: nobody asks for it any more."""
        self.callbacks = self.task = self.on_registered = self.on_free = None


def hold_all(entries: Iterable[Entry]) -> None:
    """`hold` for each. A call may have ten thousand references among its arguments."""
    for entry in entries:
        entry.holds += 1


def release_all(entries: Iterable[Entry]) -> list[Entry]:
    """`release` for each. Returns those that neither this process nor a borrower needs: the caller must end them."""
    ended = []
    for entry in entries:
        entry.holds -= 1
        if entry.holds <= 0 and not entry.borrowers:
            ended.append(entry)
    return ended


class PackedArguments:
    """The arguments of a call, packed.

    Args:
        value: everything but the top-level references.
        entries: the top-level references.
        places: their positions or keywords.
        held: every object that the arguments refer to; the caller holds them until the call is over.
    """

    __slots__ = ("entries", "held", "lineage", "places", "value")

    def __init__(
        self, value: Value | None, entries: list[Entry], places: list[int | str], held: list[Entry]
    ) -> None:
        self.value = value
        self.entries = entries
        self.places = places
        self.held = held
        self.lineage: list[Entry] = []
        """Those that are not held any more but could be made again (see `lineage.py`)."""


NO_ARGUMENTS = PackedArguments(None, [], [], [])


class Link(Protocol):
    """A connection to another process: buffers what is sent. Messages arrive in order."""

    peer: Any
    """The address of the process (`WorkerAddress`)."""
    sent_functions: set[bytes]
    """The keys of the functions that were defined there."""
    closed: bool
    congested: bool
    """Much is unsent: what can wait, should."""
    on_room: Any
    """Called with the link when it is congested no more."""

    def send(self, message: Message) -> None:
        """Sends one message, unless the link is closed. Raises, and sends nothing, when it cannot be encoded."""

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        """Sends a request; `callback` gets the reply, or an `ErrorReply` when the link closes."""

    def reply(self, message: Message, correlation: int) -> None:
        """Answers a request."""

    def close(self) -> None:
        """Gives the process up. The loss of the link is reported as ever."""


class ItemStream(Protocol):
    """What the rest of the core needs of a stream: its task gives it items, ends it, and makes lost items again."""

    lost: dict[bytes, Entry]
    raised: bool
    """User code ended it with an error."""

    @property
    def ended(self) -> bool:
        """Whether its task yields nothing new any more."""

    def item(self, link: Link, message: StreamItem, task: Submission) -> None:
        """The next value came."""

    def end(self, error: Value | None) -> Value:
        """Nothing more will come. Returns the value of the object that stands for the whole."""

    def lose(self, entry: Entry) -> None:
        """An item is lost."""

    def begin_again(self) -> None:
        """The task runs once more for the lost items."""


class Submission(msgspec.Struct, eq=False, gc=interpreter.TRACK_RECORDS):
    """A task or an actor's call, until its results are there (or, for lineage, freed)."""

    packed: PackedArguments  # its arguments; they are held until it is over
    push: Push
    max_retries: int  # -1: without bound
    retries: int  # how many are left
    # Whether it runs again for errors of user code, or for which classes.
    retry_exceptions: bool | tuple[type[BaseException], ...]
    created_s: float
    parent: bytes  # the task that submitted it, or b""
    state: TaskState
    entries: tuple[Entry, ...] = ()  # its results
    stream: ItemStream | None = None
    worker: WorkerAddress | None = None  # what answered
    stored_results: int = 0  # how many of its results lie in stores and may be wanted once more
    cancelled: bool = False  # `cancel` was called, before or after its end: what is lost of it stays lost

    def stores(self, entry: Entry) -> None:
        """This result of it lies in a store."""
        if entry.task is not self:
            entry.task = self
            self.stored_results += 1

    @property
    def function_name(self) -> str:
        """What it is called, if the push has no name."""
        return self.push.method

    def move(self, target: TaskState) -> None:
        """Takes one step of `_core/tasks.py`."""
        if (self.state, target) not in TRANSITIONS:
            step(self.push.task_id, self.state, target)
        self.state = target

    @property
    def may_be_cancelled(self) -> bool:
        """Whether cancelling it means anything (any more)."""
        return self.state is not TaskState.CANCELLING and self.state is not TaskState.FINISHED

    @property
    def may_be_rebuilt(self) -> bool:
        """Whether it may run again for lost results, as long as it has retries left."""
        return self.max_retries != 0 and not self.cancelled

    def missing(self) -> list[Entry]:
        """The references among the arguments whose values are not there."""
        return [entry for entry in self.packed.entries if entry.value is None]

    def takes_retry(self, message: Done) -> bool:
        """Whether it runs again after an error of user code; that uses up one retry."""
        wanted = self.retry_exceptions
        if not wanted or not self.retries or self.state is TaskState.CANCELLING:
            return False
        if isinstance(wanted, tuple) and not message.retry:
            return False
        self.retries -= self.retries > 0
        return True

    def refuses_rerun(self, asker: bytes) -> str:
        """Why it cannot run again for a process that waits for it, if it cannot."""
        return ""


def after(count: int, callback: Callable[[], None]) -> Callable[[], None]:
    """What to call `count` times: the last time it calls `callback`."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            callback()

    return one
