"""Gangs: actors and their placement group that are entered together, and end together if the group says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from runtime._control.actor_scheduler import ActorScheduler
from runtime._control.actor_table import Actor, ActorTable
from runtime._control.actors import ActorService
from runtime._control.context import Context, Handlers
from runtime._control.group_table import GroupTable
from runtime._control.placement_groups import GroupService
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import ActorInfo, RegisterActor
from runtime._wire.messages.groups import PlacementGroupInfo
from runtime._wire.messages.libraries import CreateGang, Gang


class GangService:
    """Enters gangs through the services of groups and actors, and spreads the death of one member."""

    def __init__(
        self,
        context: Context,
        groups: GroupService,
        group_table: GroupTable,
        actors: ActorService,
        actor_table: ActorTable,
        scheduler: ActorScheduler,
    ) -> None:
        self._context = context
        self._groups = groups
        self._group_table = group_table
        self._actors = actors
        self._actor_table = actor_table
        scheduler.on_dead.append(self._actor_dead)

    def handlers(self) -> Handlers:
        return {CreateGang: self.create}

    def load(self) -> None:
        """Ends the gangs of an earlier life that were about to end."""
        for actor in list(self._actor_table.all()):
            if actor.is_dead:
                self._actor_dead(actor)

    def create(self, channel: Channel, message: CreateGang) -> Awaitable[Gang]:
        """Checks everything, then enters everything at once, so that whatever comes behind the request finds it.
        Answers when it is on disk."""
        group_id = message.group.pg_id
        if self._group_table.get(group_id) is None:
            self._groups.check(message.group)
        for spec in message.actors:
            if spec.placement.placement_group_id != group_id:
                text = f"actor {spec.actor_id.hex()} is not in the placement group of its gang"
                raise CallError(ErrorKind.INVALID, text)
            if self._actor_table.get(spec.actor_id) is None:
                self._actors.check(spec)
        group = self._groups.create(channel, message.group)
        actors = [self._actors.register(channel, RegisterActor(spec)) for spec in message.actors]
        return _whole(group, actors)

    def _actor_dead(self, actor: Actor) -> None:
        group = self._group_table.get(actor.spec.placement.placement_group_id)
        if group is not None and group.request.shares_fate and not group.is_removed:
            # Not at once: whoever ends this actor may be about to look at the others.
            asyncio.get_running_loop().call_soon(self._end, actor, group.pg_id)

    def _end(self, first: Actor, group_id: bytes) -> None:
        group = self._group_table.get(group_id)
        if self._context.tasks.closed or group is None or group.is_removed:
            return
        reason = (
            f"its gang has ended: actor {first.actor_id.hex()} ({first.spec.class_name}) is dead, as "
            f"{first.death_reason}"
        )
        self._actors.group_removed(group_id, reason)
        self._groups.end(group, reason)


async def _whole(group: Awaitable[PlacementGroupInfo], actors: Sequence[Awaitable[ActorInfo]]) -> Gang:
    return Gang(await group, [await actor for actor in actors])
