"""An actor as its caller knows it, the calls of it, and what is raised when it is dead."""

from __future__ import annotations

import pickle
from collections import deque
from typing import Any

import msgspec

from runtime import exceptions
from runtime._ownership.records import Entry, Submission
from runtime._system import interpreter
from runtime._transport.connection import Connection
from runtime._wire.messages.control import ActorInfo
from runtime._wire.messages.worker import Value


class Call(Submission, eq=False, gc=interpreter.TRACK_RECORDS, kw_only=True):
    """One call of an actor's method."""

    actor: Actor
    handle: Entry | None = None  # held until the call is over: an actor finishes what it was asked

    def refuses_rerun(self, asker: bytes) -> str:
        actor = self.actor
        if actor.ordered and actor.connection is not None and actor.connection.peer.worker_id == asker:
            return "the actor that made it is the one that waits for it"
        if actor.death is not None:
            return "the actor that made it is dead"
        if actor.handle is not None and not actor.handle.holds:
            return "nothing refers to the actor that made it any more"
        return ""


class Actor:
    """An actor as one of its callers knows it."""

    __slots__ = (
        "__weakref__",
        "actor_id",
        "calls",
        "connection",
        "death",
        "handle",
        "inflight",
        "ordered",
        "registered",
        "released",
        "sequence",
        "state",
        "version",
        "watching",
    )

    def __init__(self, actor_id: bytes, handle: Entry | None, ordered: bool) -> None:
        self.actor_id = actor_id
        self.handle = handle  # None: nobody counts us: a detached actor, or one that we found by its name
        self.ordered = ordered
        self.state = "UNKNOWN"
        self.version = -1
        self.connection: Connection | None = None
        self.calls: deque[Call] = deque()  # not sent yet, in the caller's order
        self.inflight: dict[bytes, Call] = {}
        self.death: exceptions.RayError | None = None
        self.watching = False
        self.registered = True
        self.released = False  # made here, and its last handle is gone
        self.sequence = 0


class UnreadDeath(exceptions.ActorDiedError):
    """What the calls of an actor raise whose constructor raised. It is told to us under the engine's lock, and to
    rebuild it runs the user's code: its readers do that.

    Args:
        error: the pickled error of the constructor.
    """

    def __init__(self, error: bytes) -> None:
        super().__init__()
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _died_of, (self._error,)


def _died_of(error: bytes) -> exceptions.RayError:
    try:
        raised = pickle.loads(error)
    except Exception as problem:
        raised = (
            f"an error of its constructor that cannot be rebuilt here: {type(problem).__name__}: {problem}"
        )
    known = isinstance(raised, exceptions.RayTaskError | exceptions.UnserializableException)
    return exceptions.ActorDiedError(raised if known else str(raised))


def death_of(info: ActorInfo) -> exceptions.RayError:
    """What the calls of a dead actor raise, by what the control store says of it."""
    if info.death_cause:
        value = msgspec.msgpack.decode(info.death_cause, type=Value)
        return UnreadDeath(value.data)
    if info.unplaceable:
        return exceptions.ActorUnschedulableError(info.death_reason)
    if info.no_environment:
        return exceptions.RuntimeEnvSetupError(
            f"Actor {info.spec.class_name} could not be created, because its runtime environment could not be: "
            f"{info.death_reason}"
        )
    spec = info.spec
    reason = info.death_reason.rstrip(".")
    because = reason if reason.startswith(("it", "all ", "an ")) else f"of this: {reason}"
    return exceptions.ActorDiedError(
        exceptions.ActorDeath(
            f"The actor is dead because {because}.",
            info.actor_id.hex(),
            spec.class_name,
            spec.name,
            spec.namespace,
            info.pid or None,
            info.host,
            never_started=info.never_started,
        )
    )
