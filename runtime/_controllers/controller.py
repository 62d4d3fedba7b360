"""What a controller is: the events that it gets, the effects that it wants, and what it waits for. Pure.

A controller knows results, actors and timers by keys that it chooses, and never holds a reference or a handle. A key
names one thing of its kind at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

Key = Hashable

# ---------------------------------------------------------------- events


class Begin(msgspec.Struct, frozen=True):
    """The first event."""


class Done(msgspec.Struct, frozen=True):
    """A task or call has ended, or a stream has no more items. `value`: if it was asked for (`fetch`)."""

    key: Key
    value: Any = None
    size_bytes: int = 0
    node_ids: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True):
    """A task, call or stream has ended with an error."""

    key: Key
    error: BaseException


class Item(msgspec.Struct, frozen=True):
    """A stream has given an item that was asked for (`Take`). `ResultOf((key, index))` stands for its value; `metadata`
    has come along (`runtime._extension.streams`)."""

    key: Key
    index: int
    size_bytes: int = 0
    node_ids: tuple[str, ...] = ()
    metadata: Any = None


class ActorUp(msgspec.Struct, frozen=True):
    """An actor's constructor has returned, for the first time or after a restart."""

    key: Key
    node_id: str = ""
    restarts: int = 0


class ActorLost(msgspec.Struct, frozen=True):
    """The process of an actor has ended, and the actor restarts."""

    key: Key
    reason: str = ""


class ActorDied(msgspec.Struct, frozen=True):
    """An actor is dead, killed or not. Its key is free again."""

    key: Key
    reason: str = ""


class TimerFired(msgspec.Struct, frozen=True):
    """The time of a `Sleep` is over."""

    key: Key


class Requested(msgspec.Struct, frozen=True):
    """Somebody wants something of the controller. A `Reply` with this number must follow, sooner or later."""

    number: int
    what: Any


class Overdue(msgspec.Struct, frozen=True):
    """A wait has lasted for longer than its limit. Told once."""

    wait: Wait


class Noticed(msgspec.Struct, frozen=True):
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


class ResultOf(msgspec.Struct, frozen=True):
    """Among the arguments of a task, call or actor: the result of that key, whose value travels without the loop."""

    key: Key


class Submit(msgspec.Struct, frozen=True):
    """Runs a task: `Done` or `Failed` follows, and before it `Item` for each that was taken if it is a generator.

    `function`: what `remote` has made. `options`: of `.options()`. `fetch`: `Done` has the value, which must be small.
    """

    key: Key
    function: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    fetch: bool = False


class Call(msgspec.Struct, frozen=True):
    """Calls a method of an actor: as `Submit`."""

    key: Key
    actor: Key
    method: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    fetch: bool = False


class CreateActor(msgspec.Struct, frozen=True):
    """Creates an actor: `ActorUp` follows, and `ActorDied` in the end. It lives until `Kill`, or
    as long as the loop."""

    key: Key
    cls: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)


class CreateGang(msgspec.Struct, frozen=True):
    """Creates actors together with their placement group, all or none: `ActorUp` and `ActorDied` follow for each. When
    one is dead for good, the others end and the placement group is removed (`runtime._extension.gangs`).

    `bundles`: the resources of the n-th actor's bundle. `strategy`: see `runtime.util.placement_group`. `selectors`: of
    the labels of the n-th bundle's node; none: any node.
    """

    actors: Sequence[CreateActor]
    bundles: Sequence[Mapping[str, float]]
    strategy: str = "PACK"
    selectors: Sequence[Mapping[str, str]] = ()


class Kill(msgspec.Struct, frozen=True):
    """Ends an actor. An unknown one is dead already."""

    actor: Key


class Restart(msgspec.Struct, frozen=True):
    """Ends the process of an actor, which restarts if restarts are left. An unknown one is dead already."""

    actor: Key


class Cancel(msgspec.Struct, frozen=True):
    """Cancels a task, call or stream: `Failed` follows, or what had happened before. `force`: ends the process of a
    task that does not stop by itself."""

    key: Key
    force: bool = False


class Take(msgspec.Struct, frozen=True):
    """Asks for the next items of a stream. Without it the stream's generator pauses at its limit. The end counts as an
    item: only who asks hears of it."""

    key: Key
    items: int = 1


class Perform(msgspec.Struct, frozen=True):
    """Calls a function of the controller's own process on a thread beside the loop, for work such as that with a
    storage: `Done` with what it returns, or `Failed`, follows. The end of the loop waits for those that have begun."""

    key: Key
    function: Callable[..., Any]
    args: Sequence[Any] = ()


class Store(msgspec.Struct, frozen=True):
    """Makes a value the result of a key."""

    key: Key
    value: Any


class Forget(msgspec.Struct, frozen=True):
    """The result of a key is not needed any more. Without it the loop keeps every result."""

    key: Key


class Sleep(msgspec.Struct, frozen=True):
    """`TimerFired` follows after a time. A second one with the same key replaces the first; `seconds` < 0
    removes it."""

    key: Key
    seconds: float


class Watch(msgspec.Struct, frozen=True):
    """`Noticed` tells of the nodes (`what` "nodes"), or of a key of the key-value store."""

    what: str
    key: bytes = b""
    namespace: str = ""


class Reply(msgspec.Struct, frozen=True):
    """Answers a request. A value that is `ResultOf` gives the asker a reference."""

    number: int
    value: Any = None
    error: BaseException | None = None


class Own(msgspec.Struct, frozen=True):
    """Base of effects of one library, which its own engine carries out."""


class Stop(msgspec.Struct, frozen=True):
    """Ends the loop, which returns the value or raises the error. Actors that are not detached end with it."""

    value: Any = None
    error: BaseException | None = None


Effect = (
    Submit
    | Call
    | CreateActor
    | CreateGang
    | Kill
    | Restart
    | Cancel
    | Take
    | Perform
    | Store
    | Forget
    | Sleep
    | Watch
    | Reply
    | Own
    | Stop
)

# ---------------------------------------------------------------- the controller


class Wait(msgspec.Struct, frozen=True):
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
