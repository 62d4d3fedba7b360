"""Gangs: actors that are created together with their placement group, and end together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from runtime import exceptions
from runtime._core.actors import ActorState
from runtime._owner import gathering
from runtime._wire.messages.base import ErrorKind, ErrorReply
from runtime._wire.messages.control import RegisterActor
from runtime._wire.messages.groups import CreatePlacementGroup
from runtime._wire.messages.libraries import CreateGang

from .events import Subscription
from .news import ActorChanged
from .process import connected


class GangFailed(exceptions.RayError):
    """A gang was not created, or one of its actors is dead, and so are the others. The message has the reason."""


class Gang:
    """The actors that were created together."""

    def __init__(self) -> None:
        self.actor_ids: tuple[bytes, ...] = ()
        self.failure = ""
        """Why it was not created, once the control store has said so."""

    def watch(self, subscription: Subscription) -> None:
        """Tells `ActorChanged` of all actors. The death of one is told of all, at once."""
        for actor_id in self.actor_ids:
            subscription.watch_actor(actor_id)

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all constructors have returned.

        Raises:
            GangFailed: one actor is dead, or the gang was refused.
            GetTimeoutError: not all are there in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        missing = {actor_id.hex() for actor_id in self.actor_ids}
        with Subscription() as subscription:
            self.watch(subscription)
            while missing:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                news = subscription.take(left)
                if not news:
                    raise exceptions.GetTimeoutError(
                        f"{len(missing)} of {len(self.actor_ids)} actors of a gang are not up in time: it waits for "
                        "the resources of its placement group, or for constructors."
                    )
                for one in news:
                    assert isinstance(one, ActorChanged)
                    if one.state is ActorState.DEAD:
                        raise GangFailed(self.failure or one.reason)
                    if one.state is ActorState.ALIVE:
                        missing.discard(one.actor_id)


@contextmanager
def together(shares_fate: bool = True) -> Iterator[Gang]:
    """The placement group and the actors that this thread creates in the block are created by one message at its end,
    all or none. Exactly one placement group, without a name, and all actors in it, without names. Nothing must be
    awaited inside: what other coroutines create meanwhile would be gathered too.

    Args:
        shares_fate: when one actor is dead for good (it has ended in any way, and has no restarts left), the placement
            group is removed and the others end. Their reason names the first.

    Raises:
        ValueError: the block created something else. Then, and when the block raises, nothing is created, and its
            actors are dead.
    """
    core = connected()
    gang = Gang()
    gathered = gathering.begin()
    try:
        yield gang
        request = _request(gathered, shares_fate)
    except BaseException as error:
        _refuse(core.lock, gathered, ErrorReply(ErrorKind.INVALID, f"its gang was not created: {error!r}"))
        raise
    finally:
        gathering.end()
    gang.actor_ids = tuple(spec.actor_id for spec in request.actors)

    def answered(reply: Any) -> None:
        if isinstance(reply, ErrorReply):
            gang.failure = reply.message
            _refuse(core.lock, gathered, reply)
            return
        actors = iter(reply.actors)
        for one, callback in gathered.requests:
            callback(next(actors) if isinstance(one, RegisterActor) else reply.group)

    with core.lock:
        core.agent.call(request, answered)
        for action in gathered.afterwards:
            action()
    core.pump.kick()


def _request(gathered: gathering.Gathered, shares_fate: bool) -> CreateGang:
    groups = [request for request, _ in gathered.requests if isinstance(request, CreatePlacementGroup)]
    actors = [request for request, _ in gathered.requests if isinstance(request, RegisterActor)]
    if len(groups) != 1 or not actors or any(actor.get_if_exists for actor in actors):
        raise ValueError(
            f"A gang is one placement group without a name and new actors in it, not {len(groups)} groups and "
            f"{len(actors)} actors."
        )
    (group,) = groups
    specs = [actor.spec for actor in actors]
    outside = [spec.class_name for spec in specs if spec.placement.placement_group_id != group.pg_id]
    if outside:
        raise ValueError(f"These actors are not in the placement group of their gang: {', '.join(outside)}.")
    return CreateGang(msgspec.structs.replace(group, shares_fate=shares_fate), specs)


def _refuse(lock: Any, gathered: gathering.Gathered, reply: ErrorReply) -> None:
    with lock:
        for _, callback in gathered.requests:
            callback(reply)
