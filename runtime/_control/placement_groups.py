"""Placement groups as their users see them, and what becomes of them when nodes and jobs end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from runtime._control.actor_table import Actor, ActorTable
from runtime._control.cluster import Cluster, Node
from runtime._control.context import Context, Handlers
from runtime._control.group_scheduler import GroupScheduler
from runtime._control.group_table import Group, GroupTable
from runtime._core.bundles import STRATEGIES
from runtime._core.labels import check_conditions
from runtime._core.placement_groups import GroupEvent
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Ok
from runtime._wire.messages.control import PendingGroup, RegisterNode
from runtime._wire.messages.groups import (
    CreatePlacementGroup,
    ListPlacementGroups,
    PlacementGroupInfo,
    PlacementGroups,
    RemovePlacementGroup,
    WatchPlacementGroup,
)

_BUNDLE = re.compile(r"bundle_group_(\d+)_([0-9a-f]{36})\Z")
RETURN_S = 2.0
"""How long the reply to a removal waits for the nodes."""
RECENT_S = 60.0
"""Longer than any agent may be away."""


class GroupService:
    """Owns the groups; `GroupScheduler` reserves their bundles. `on_removed` is called for each that is removed."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        table: GroupTable,
        scheduler: GroupScheduler,
        actors: ActorTable,
        is_running_job: Callable[[bytes], bool],
    ) -> None:
        self.on_removed: list[Callable[[bytes], None]] = []
        self._context = context
        self._cluster = cluster
        self._table = table
        self._scheduler = scheduler
        self._actors = actors
        self._is_running_job = is_running_job
        actors.on_dead.append(self.actor_dead)
        actors.on_restart.append(self.actor_restarts)

    def handlers(self) -> Handlers:
        return {
            CreatePlacementGroup: self.create,
            WatchPlacementGroup: self.watch,
            RemovePlacementGroup: self.remove,
            ListPlacementGroups: self.list_groups,
        }

    def load(self) -> None:
        """Takes the groups of an earlier life."""
        self._table.load()
        for group in self._table.all():
            gone = [
                index
                for index, node_id in enumerate(group.nodes)
                if node_id and not self._cluster.is_living(node_id)
            ]
            if group.is_waiting or group.changed_s > self._context.wall_time() - RECENT_S:
                self._scheduler.doubt(group)
            if gone:
                self._scheduler.lost(group, gone, "a node with its bundles died")
            elif group.is_waiting:
                self._scheduler.enqueue(group)

    def create(self, _: Channel, message: CreatePlacementGroup) -> Awaitable[PlacementGroupInfo]:
        """Enters the group at once, so that a watch right behind the request finds it; answers when it is on disk."""
        group = self._table.get(message.pg_id)
        if group is None:
            self.check(message)
            group = Group(message)
            group.made_s = self._context.now()
            self._table.add(group)
            self._scheduler.enqueue(group)
        return self._durable(group)

    async def _durable(self, group: Group) -> PlacementGroupInfo:
        await self._context.journal.durable()
        return group.info()

    def watch(
        self, _: Channel, message: WatchPlacementGroup
    ) -> PlacementGroupInfo | Awaitable[PlacementGroupInfo]:
        group = self._table.get(message.pg_id)
        if group is None:
            raise CallError(ErrorKind.NOT_FOUND, f"there is no placement group {message.pg_id.hex()}")
        if group.version > message.after_version:
            return group.info()
        return self._wait(group, message)

    async def _wait(self, group: Group, message: WatchPlacementGroup) -> PlacementGroupInfo:
        deadline = self._context.now() + message.timeout_s
        while group.version <= message.after_version:
            left = deadline - self._context.now()
            if left <= 0 or not await group.waiters.wait(left):
                break
        return group.info()

    def remove(self, _: Channel, message: RemovePlacementGroup) -> Ok | Awaitable[Ok]:
        """Removes the group at once, so that whatever comes behind the request finds it removed."""
        group = self._table.get(message.pg_id)
        if group is None or group.is_removed:
            return Ok()
        self._remove(group, "it was removed")
        return self._removed(self._scheduler.returns_of_this_turn() if message.until_returned else [])

    async def _removed(self, returns: list[asyncio.Future[None]]) -> Ok:
        await self._context.journal.durable()
        if returns:
            await asyncio.wait(returns, timeout=RETURN_S)
        return Ok()

    def list_groups(self, _: Channel, message: ListPlacementGroups) -> PlacementGroups:
        if message.name:
            named = self._table.named(message.namespace, message.name)
            return PlacementGroups([] if named is None else [named.info()])
        return PlacementGroups(
            [
                group.info()
                for group in self._table.all()
                if not message.namespace or group.request.namespace == message.namespace
            ]
        )

    # ---------------------------------------------------------------- news from elsewhere

    def node_registered(self, node: Node, message: RegisterNode) -> None:
        """Brings our records and the bundles that the node really offers into agreement."""
        offered = {
            (bytes.fromhex(found[2]), int(found[1]))
            for name in message.info.total
            if (found := _BUNDLE.match(name)) is not None
        }
        self._scheduler.came_back(node, offered)
        for group in list(self._table.all()):
            missing = [
                index
                for index, node_id in enumerate(group.nodes)
                if node_id == node.node_id and (group.pg_id, index) not in offered
            ]
            if missing and not group.is_removed:
                self._scheduler.lost(
                    group, missing, f"node {node.node_id.hex()} came back without its bundle"
                )

    def node_dead(self, node: Node) -> None:
        """Bundles of a dead node need another."""
        self._scheduler.node_dead(node)
        for group in list(self._table.all()):
            missing = [index for index, node_id in enumerate(group.nodes) if node_id == node.node_id]
            if missing and not group.is_removed:
                self._scheduler.lost(group, missing, f"node {node.node_id.hex()} died")

    def job_finished(self, job_id: bytes, _driver_id: bytes) -> None:
        """A job's groups end with it, except detached ones, and those that an actor made that lives on."""
        for group in list(self._table.all()):
            request = group.request
            if request.job_id != job_id or request.detached or group.is_removed:
                continue
            if not self._is_living_actor(request.creator_actor):
                self._remove(group, "its job finished")

    def actor_dead(self, actor: Actor) -> None:
        """The groups that it made end with it if it was detached, else with its job, if that has not ended before."""
        for group in self._made_by(actor):
            if actor.spec.detached:
                self._remove(group, "the detached actor that made it has died")
            elif not self._is_running_job(group.request.job_id):
                self._remove(group, "the actor that made it has died, and its job had finished")

    def actor_restarts(self, actor: Actor) -> None:
        """The groups of a detached actor end with its process: its constructor makes others, and nobody knows these."""
        if actor.spec.detached:
            for group in self._made_by(actor):
                self._remove(group, "the detached actor that made it is restarting")

    def _made_by(self, actor: Actor) -> list[Group]:
        """The groups that end with what made them, if that is this actor."""
        return [
            group
            for group in self._table.all()
            if group.request.creator_actor == actor.actor_id
            and not group.request.detached
            and not group.is_removed
        ]

    def _is_living_actor(self, actor_id: bytes) -> bool:
        actor = self._actors.get(actor_id)
        return actor is not None and not actor.is_dead

    def is_removed(self, pg_id: bytes) -> bool:
        """Whether there was such a group, and is no more."""
        group = self._table.get(pg_id)
        return group is not None and group.is_removed

    def pending(self) -> list[PendingGroup]:
        """The groups that wait for nodes."""
        return [
            PendingGroup(
                group.pg_id,
                group.request.strategy,
                group.request.bundles,
                list(group.nodes),
                group.request.label_selectors,
                group.request.domain,
            )
            for group in self._table.all()
            if group.is_waiting and not group.busy
        ]

    def _remove(self, group: Group, reason: str) -> None:
        group.machine.step(GroupEvent.REMOVED, self._context.now())
        group.reason = reason
        self._scheduler.forget(group)
        self._table.changed(group)
        for listener in self.on_removed:
            listener(group.pg_id)

    def end(self, group: Group, reason: str) -> None:
        """Removes a group for a reason of the control store's own."""
        if not group.is_removed:
            self._remove(group, reason)

    def check(self, message: CreatePlacementGroup) -> None:
        """Refuses what could never work.

        Raises:
            CallError: EXISTS or INVALID.
        """
        if message.name and self._table.named(message.namespace, message.name) is not None:
            raise CallError(
                ErrorKind.EXISTS,
                f"Failed to create placement group {message.pg_id.hex()} because name '{message.name}' already exists "
                f"in namespace '{message.namespace}'; choose another name, or remove that group first",
            )
        if message.strategy not in STRATEGIES:
            raise CallError(
                ErrorKind.INVALID,
                f"unknown placement strategy {message.strategy!r}; use one of {', '.join(STRATEGIES)}",
            )
        if not message.bundles or not all(
            bundle and all(amount > 0 for amount in bundle.values()) for bundle in message.bundles
        ):
            raise CallError(
                ErrorKind.INVALID, "a placement group needs bundles, each with some resource above zero"
            )
        if message.label_selectors and len(message.label_selectors) != len(message.bundles):
            raise CallError(ErrorKind.INVALID, "give one label selector per bundle, or none at all")
        try:
            for selector in message.label_selectors:
                check_conditions(selector)
        except ValueError as error:
            raise CallError(ErrorKind.INVALID, str(error)) from None
