"""What a controller is: the events that it gets, the effects that it wants, and what it waits for. Pure.

A controller knows results, actors and timers by keys that it chooses, and never holds a reference or a handle. A key
names one thing of its kind at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Key = Hashable

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class Done:
    """A task or call has ended, or a stream has no more items. `value`: if it was asked for (`fetch`)."""

    key: Key
    value: Any = None
    size_bytes: int = 0
    node_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A task, call or stream has ended with an error."""

    key: Key
    error: BaseException


@dataclass(frozen=True, slots=True)
class Item:
    """A stream has given an item that was asked for (`Take`). `ResultOf((key, index))` stands for its value; `metadata`
    has come along (`runtime._extension.streams`)."""

    key: Key
    index: int
    size_bytes: int = 0
    node_ids: tuple[str, ...] = ()
    metadata: Any = None


@dataclass(frozen=True, slots=True)
class ActorUp:
    """An actor's constructor has returned, for the first time or after a restart."""

    key: Key
    node_id: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ActorLost:
    """The process of an actor has ended, and the actor restarts."""

    key: Key
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ActorDied:
    """An actor is dead, killed or not. Its key is free again."""

    key: Key
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of a `Sleep` is over."""

    key: Key


@dataclass(frozen=True, slots=True)
class Requested:
    """Somebody wants something of the controller. A `Reply` with this number must follow, sooner or later."""

    number: int
    what: Any


@dataclass(frozen=True, slots=True)
class Overdue:
    """A wait has lasted for longer than its limit. Told once."""

    wait: Wait


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something that the controller watches has changed: see `runtime._extension.news`."""

    news: Any


Event = (
    Begin
    | Done
    | Failed
    | Item
    | ActorUp
    | ActorLost
    | ActorDied
    | TimerFired
    | Requested
    | Overdue
    | Noticed
)

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class ResultOf:
    """Among the arguments of a task, call or actor: the result of that key, whose value travels without the loop."""

    key: Key


@dataclass(frozen=True, slots=True)
class Submit:
    """Runs a task: `Done` or `Failed` follows, and before it `Item` for each that was taken if it is a generator.

    `function`: what `remote` has made. `options`: of `.options()`. `fetch`: `Done` has the value, which must be small.
    """

    key: Key
    function: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Calls a method of an actor: as `Submit`."""

    key: Key
    actor: Key
    method: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class CreateActor:
    """Creates an actor: `ActorUp` follows, and `ActorDied` in the end. It lives until `Kill`, or
    as long as the loop."""

    key: Key
    cls: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateGang:
    """Creates actors together with their placement group, all or none: `ActorUp` and `ActorDied` follow for each. When
    one is dead for good, the others end and the placement group is removed (`runtime._extension.gangs`).

    `bundles`: the resources of the n-th actor's bundle. `strategy`: see `runtime.util.placement_group`.
    """

    actors: Sequence[CreateActor]
    bundles: Sequence[Mapping[str, float]]
    strategy: str = "PACK"


@dataclass(frozen=True, slots=True)
class Kill:
    """Ends an actor. An unknown one is dead already."""

    actor: Key


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels a task, call or stream: `Failed` follows, or what had happened before."""

    key: Key


@dataclass(frozen=True, slots=True)
class Take:
    """Asks for the next items of a stream. Without it the stream's generator pauses at its limit. The end counts as an
    item: only who asks hears of it."""

    key: Key
    items: int = 1


@dataclass(frozen=True, slots=True)
class Store:
    """Makes a value the result of a key."""

    key: Key
    value: Any


@dataclass(frozen=True, slots=True)
class Forget:
    """The result of a key is not needed any more. Without it the loop keeps every result."""

    key: Key


@dataclass(frozen=True, slots=True)
class Sleep:
    """`TimerFired` follows after a time. A second one with the same key replaces the first; `seconds` < 0
    removes it."""

    key: Key
    seconds: float


@dataclass(frozen=True, slots=True)
class Watch:
    """`Noticed` tells of the nodes (`what` "nodes"), or of a key of the key-value store."""

    what: str
    key: bytes = b""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answers a request. A value that is `ResultOf` gives the asker a reference."""

    number: int
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the loop, which returns the value or raises the error. Actors that are not detached end with it."""

    value: Any = None
    error: BaseException | None = None


Effect = (
    Submit
    | Call
    | CreateActor
    | CreateGang
    | Kill
    | Cancel
    | Take
    | Store
    | Forget
    | Sleep
    | Watch
    | Reply
    | Stop
)

# ---------------------------------------------------------------- the controller


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a controller waits for.

    `what`: in words, for reports. `since_s`: the time of the event that began it. `limit_s`: after so long the
    controller gets `Overdue`; None: never.
    """

    key: Key
    what: str
    since_s: float
    limit_s: float | None = None


class Controller(Protocol):
    """A state machine of a library: an Enum of states and a table of transitions (`runtime._core.fsm`), and no I/O."""

    def step(self, event: Event, now: float) -> Sequence[Effect]:
        """What follows from an event. Events of one key come in order."""

    def waiting_for(self) -> Sequence[Wait]:
        """What it waits for, from its state alone. Nothing: it waits for requests only, and that is no stall."""
