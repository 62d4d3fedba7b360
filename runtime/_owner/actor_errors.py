"""The errors of calls whose actor is dead."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec

from runtime import exceptions
from runtime._wire.messages.control import ActorInfo
from runtime._wire.messages.worker import Value


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
