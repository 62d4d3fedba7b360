"""Bundles of placement groups on this node: set aside, offered, given back; and groups that were removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from runtime._clients.control import ControlClient
from runtime._core.ledger import Ledger
from runtime._core.resources import describe
from runtime._core.workers import Worker
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind, Ok
from runtime._wire.messages.groups import (
    CommitBundle,
    GroupsReserved,
    PrepareBundle,
    ReserveGroups,
    ReturnBundles,
    WatchPlacementGroup,
)

from .actor_service import ActorService
from .cluster import Cluster
from .lease_service import LeaseService
from .worker_pool import WorkerPool

END_S = 2.0
"""How long the reply to a return waits for killed workers to end."""


class BundleService:
    """The node's part of the two-phase reservation."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        leases: LeaseService,
        actors: ActorService,
        control: ControlClient,
        pool: WorkerPool,
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._leases = leases
        self._actors = actors
        self._control = control
        self._pool = pool
        self._checks: dict[bytes, asyncio.Task[None]] = {}

    @property
    def count(self) -> int:
        """Bundles that are set aside here."""
        return len(self._ledger.bundles())

    def prepare(self, message: PrepareBundle) -> Ok:
        """Phase 1.

        Raises:
            CallError: BUSY.
        """
        if not self._cluster.table.local.schedulable:
            raise CallError(ErrorKind.BUSY, "the node is draining")
        if not self._ledger.prepare_bundle(message.pg_id, message.index, message.resources):
            raise CallError(ErrorKind.BUSY, f"{describe(message.resources)} is not available")
        self._leases.kick()
        return Ok()

    def commit(self, message: CommitBundle) -> Ok:
        """Phase 2.

        Raises:
            CallError: NOT_FOUND when it was never prepared.
        """
        if not self._ledger.commit_bundle(message.pg_id, message.index):
            raise CallError(ErrorKind.NOT_FOUND, "the bundle was not prepared on this node")
        self._leases.kick()
        return Ok()

    def reserve(self, message: ReserveGroups) -> GroupsReserved:
        """Both phases at once: no other node has a say in these groups."""
        can_take = self._cluster.table.local.schedulable
        refused = [
            group.pg_id
            for group in message.groups
            if not (can_take and self._ledger.reserve_bundles(group.pg_id, group.bundles))
        ]
        self._leases.kick()
        return GroupsReserved(refused)

    def give_back(self, message: ReturnBundles) -> Ok | Awaitable[Ok]:
        """Abort or removal: what runs inside is killed, and has ended when this is answered, unless that takes long."""
        killed: list[Worker] = []
        for pg_id, index in message.bundles:
            inside = self._ledger.return_bundle(pg_id, index)
            if inside:
                killed += self._leases.bundle_returned(inside)
                killed += self._actors.bundle_returned(inside)
        self._leases.kick()
        return self._when_ended(killed) if killed else Ok()

    async def _when_ended(self, workers: list[Worker]) -> Ok:
        await asyncio.wait([self._pool.ending(worker) for worker in workers], timeout=END_S)
        return Ok()

    def check_waiting_groups(self) -> None:
        """Asks about groups whose resources are nowhere: they are pending, or were removed."""
        for group_id in self._leases.waiting_groups():
            if group_id not in self._checks:
                task = asyncio.get_running_loop().create_task(self._check(group_id))
                self._checks[group_id] = task
                task.add_done_callback(lambda _, group_id=group_id: self._checks.pop(group_id, None))  # type: ignore[misc]

    def close(self) -> None:
        """Ends what is being asked."""
        for task in self._checks.values():
            task.cancel()

    async def _check(self, group_id: bytes) -> None:
        try:
            group = await self._control.call(WatchPlacementGroup(group_id, timeout_s=0.0), timeout_s=10.0)
        except CallError as error:
            if error.kind == ErrorKind.NOT_FOUND:
                self._leases.group_removed(group_id)
            return
        if group.state == "REMOVED":
            self._leases.group_removed(group_id)
