"""Reserving placement-group bundles on nodes in two phases: every node sets aside, then every node commits.

A refusal or a death between the phases gives everything back, so that no group holds what it cannot use.
Prepare requests of one group go out together, and many groups are reserved at the same time: each is
deducted from the view before the next is placed. Of groups that need one node only, that node does both phases at
once, and all that are placed there in one round go in one message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from runtime._control.cluster import Charge, Cluster, Node
from runtime._control.context import Context, Signal
from runtime._control.group_table import Group, GroupTable
from runtime._core.placement import NodeView, bundles_feasible, group_resources, place_bundles
from runtime._core.placement_groups import GroupEvent, GroupState
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.groups import (
    CommitBundle,
    PrepareBundle,
    ReserveGroups,
    ReturnBundles,
    WholeGroup,
)

log = logging.getLogger(__name__)

AGENT_TIMEOUT_S = 10.0
RETRY_S = 0.05

_Reservation = list[tuple[int, Node, Charge]]


class _Return(NamedTuple):
    """A bundle that a node shall give back, and what it offered of it, if it was committed."""

    key: tuple[bytes, int]
    bundle: dict[str, int]
    offered: dict[str, int]


class GroupScheduler:
    """Moves groups between waiting, prepared and created. `schedule` runs whenever the view changes."""

    def __init__(
        self, context: Context, cluster: Cluster, table: GroupTable, view_changed: Signal, demand: Signal
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._table = table
        self._view_changed = view_changed
        self._demand = demand
        self._waiting: dict[bytes, Group] = {}  # in the order they came
        self._whole: dict[bytes, list[tuple[Group, _Reservation]]] = {}  # placed in this round, per only node
        self._returns: dict[Node, tuple[list[_Return], asyncio.Future[None]]] = {}  # in this turn of the loop
        self._unreturned: dict[bytes, set[tuple[bytes, int]]] = {}  # per node, told when it is back

    def waiting(self) -> list[Group]:
        """The groups with bundles that no nodes have room for."""
        return list(self._waiting.values())

    def enqueue(self, group: Group) -> None:
        """The group needs nodes for bundles."""
        self._waiting[group.pg_id] = group
        self._view_changed.set()

    def forget(self, group: Group) -> None:
        """The group was removed: gives back every bundle that is committed. One on its way sees to itself."""
        self._waiting.pop(group.pg_id, None)
        self._demand.set()
        for index, node_id in enumerate(group.nodes):
            node = self._cluster.get(node_id) if node_id else None
            if node is not None and not node.is_dead:
                self.give_back(group.pg_id, index, node, group.request.bundles[index])
        group.nodes = [b""] * len(group.nodes)
        self.doubt(group)

    def lost(self, group: Group, indexes: list[int], reason: str) -> None:
        """Bundles of a created group have no node any more."""
        for index in indexes:
            group.nodes[index] = b""
        if group.machine.can(GroupEvent.NODE_LOST):
            group.machine.step(GroupEvent.NODE_LOST, self._context.now())
            group.reason = reason
            self._table.changed(group)
            self._demand.set()
            if not group.busy:
                self.enqueue(group)

    def give_back(self, pg_id: bytes, index: int, node: Node, bundle: dict[str, int]) -> None:
        """Returns one committed bundle, in the background."""
        offered = group_resources(bundle, pg_id.hex(), index)
        self._return_soon(node, _Return((pg_id, index), bundle, offered))

    def returns_of_this_turn(self) -> list[asyncio.Future[None]]:
        """Done when the nodes have answered for the bundles that go back in this turn of the loop."""
        return [returned for _, returned in self._returns.values()]

    def doubt(self, group: Group) -> None:
        """Nodes that are away may have set bundles of this group aside: they are asked when they are back."""
        for node in self._cluster.living():
            if node.channel is None:
                unknown = {(group.pg_id, i) for i, where in enumerate(group.nodes) if where != node.node_id}
                self._unreturned.setdefault(node.node_id, set()).update(unknown)

    def came_back(self, node: Node, offered: set[tuple[bytes, int]]) -> None:
        """A node is connected again: it gives back what it may still hold for groups that do not have it.

        Args:
            node: the node.
            offered: the bundles it has committed, as (group, index).
        """
        doubtful = self._unreturned.pop(node.node_id, set()) | offered
        for pg_id, index in doubtful:
            known = self._table.get(pg_id)
            group_nodes = known.nodes if known is not None and not known.is_removed else []
            if index < len(group_nodes) and group_nodes[index] == node.node_id:
                continue
            was_committed = (pg_id, index) in offered
            if was_committed:
                bundle = known.request.bundles[index] if known is not None else {}
                self.give_back(pg_id, index, node, bundle)
            else:
                self._return_soon(node, _Return((pg_id, index), {}, {}))

    def node_dead(self, node: Node) -> None:
        """Nothing is to be had back from there."""
        self._unreturned.pop(node.node_id, None)

    def schedule(self) -> None:
        """Reserves every waiting group that fits now."""
        if not self._waiting:
            return
        self._send_returns()  # first, or a node may take a bundle that it still holds for the one that is asked for
        refused: dict[str, tuple[str, bool]] = {}
        views = self._cluster.views()
        for group in list(self._waiting.values()):
            request = group.request
            # Whatever holds bundles already, or wants a certain node, is a case of its own.
            alone = any(group.nodes) or bool(request.target)
            shape = "" if alone else group.shape
            known = refused.get(shape) if shape else None
            if known is None:
                group.attempts += 1
                nodes = place_bundles(
                    request.bundles,
                    request.strategy,
                    views,
                    rng=self._context.rng,
                    placed=group.nodes,
                    selectors=request.label_selectors,
                    target=request.target,
                    domain=request.domain,
                )
                if nodes is not None:
                    self._begin(group, nodes)
                    continue
                known = self._why_not(group, views)
                if shape:
                    refused[shape] = known
            reason, infeasible = known
            if group.reason != reason:
                group.reason, group.infeasible = reason, infeasible
                self._table.changed(group)
                self._demand.set()
        whole, self._whole = self._whole, {}
        for node_id, batch in whole.items():
            self._context.tasks.spawn(self._reserve_whole(batch), f"reservations on node {node_id.hex()}")

    def _why_not(self, group: Group, views: list[NodeView]) -> tuple[str, bool]:
        """Why it waits, and whether no nodes of today could ever hold it."""
        request = group.request
        if bundles_feasible(
            request.bundles, request.strategy, views, selectors=request.label_selectors, domain=request.domain
        ):
            return "no node has room for its bundles now", False
        return "the nodes of today could never hold its bundles", True

    # ---------------------------------------------------------------- two phases

    def _begin(self, group: Group, nodes: list[bytes]) -> None:
        del self._waiting[group.pg_id]
        group.busy = True
        now = group.tried_s = self._context.now()
        reservation: _Reservation = []
        for index, node_id in enumerate(nodes):
            if group.nodes[index]:
                continue
            node = self._cluster.get(node_id)
            assert node is not None
            reservation.append((index, node, node.charge(group.request.bundles[index], now)))
        first = reservation[0][1]
        if all(node is first for _, node, _ in reservation):
            self._whole.setdefault(first.node_id, []).append((group, reservation))
            return
        self._context.tasks.spawn(
            self._reserve(group, reservation), f"reservation of placement group {group.pg_id.hex()}"
        )

    async def _reserve_whole(self, batch: list[tuple[Group, _Reservation]]) -> None:
        """Reserves groups that one node is enough for."""
        node = batch[0][1][0][1]
        request = ReserveGroups(
            [
                WholeGroup(
                    group.pg_id, [(index, group.request.bundles[index]) for index, _, _ in reservation]
                )
                for group, reservation in batch
            ]
        )
        failure: CallError | None = None
        refused: set[bytes] = set()
        try:
            if node.channel is None:
                raise CallError(ErrorKind.UNAVAILABLE, "the node is not connected")
            refused = set((await node.channel.call(request, AGENT_TIMEOUT_S)).refused)
        except CallError as error:
            failure = error
        for group, reservation in batch:
            outcome = failure
            if group.pg_id in refused:
                outcome = CallError(ErrorKind.BUSY, "no room there now")
            if outcome is None and not group.is_removed:
                group.busy = False
                if group.state is GroupState.PENDING:
                    group.machine.step(GroupEvent.PREPARED, self._context.now())
                self._complete(group, reservation)
            else:
                self._context.tasks.spawn(
                    self._not_reserved(group, reservation, outcome),
                    f"abort of the reservation of placement group {group.pg_id.hex()}",
                )

    async def _not_reserved(self, group: Group, reservation: _Reservation, outcome: CallError | None) -> None:
        try:
            await self._abort(group, reservation, [outcome] * len(reservation))
        finally:
            group.busy = False
        await self._try_again(group, reservation)

    async def _reserve(self, group: Group, reservation: _Reservation) -> None:
        try:
            is_done = await self._two_phases(group, reservation)
        finally:
            group.busy = False
        if not is_done:
            await self._try_again(group, reservation)

    async def _try_again(self, group: Group, reservation: _Reservation) -> None:
        """Lets a group that could not be reserved wait again, after a pause if a node refused it."""
        if group.is_removed:
            return
        if any(charge.refused for _, _, charge in reservation):
            await asyncio.sleep(RETRY_S)
            for _, node, charge in reservation:
                if charge.refused:
                    node.forgive(charge)
        if not group.is_removed and group.is_waiting:
            self.enqueue(group)

    async def _two_phases(self, group: Group, reservation: _Reservation) -> bool:
        prepared = await asyncio.gather(
            *(self._prepare(group, index, node) for index, node, _ in reservation)
        )
        if group.is_removed or not all(error is None for error in prepared):
            await self._abort(group, reservation, prepared)
            return False
        if group.state is GroupState.PENDING:
            group.machine.step(GroupEvent.PREPARED, self._context.now())
        committed = await asyncio.gather(
            *(self._commit(group, index, node) for index, node, _ in reservation)
        )
        if group.is_removed or not all(error is None for error in committed):
            if group.state is GroupState.PREPARED:
                group.machine.step(GroupEvent.ABORTED, self._context.now())
            await self._abort(group, reservation, committed)
            return False
        self._complete(group, reservation)
        return True

    def _complete(self, group: Group, reservation: _Reservation) -> None:
        pg_hex = group.pg_id.hex()
        for index, node, charge in reservation:
            bundle = group.request.bundles[index]
            node.charge_answered(charge, bundle)
            node.offer(group_resources(bundle, pg_hex, index))
            group.nodes[index] = node.node_id
        # A node may have died since it answered, or while others answered.
        gone = [index for index, node_id in enumerate(group.nodes) if not self._cluster.is_living(node_id)]
        for index in gone:
            group.nodes[index] = b""
        now = self._context.now()
        group.machine.step(GroupEvent.COMMITTED, now)
        if group.made_s and not group.creation_s:
            group.creation_s, group.scheduling_s = now - group.made_s, now - group.tried_s
        group.reason = ""
        self._table.changed(group)
        self._view_changed.set()
        self._demand.set()
        if gone:
            self.lost(group, gone, "a node died while its bundles were committed")

    async def _abort(self, group: Group, reservation: _Reservation, outcomes: list[CallError | None]) -> None:
        """Gives back what was set aside; a node that refused keeps its charge until it has room again."""
        returns: dict[Node, list[_Return]] = {}
        for (index, node, charge), error in zip(reservation, outcomes, strict=True):
            if error is not None and error.kind == ErrorKind.BUSY:
                node.refuse(charge)
            else:
                bundle = group.request.bundles[index]
                node.charge_answered(charge, bundle)
                returns.setdefault(node, []).append(_Return((group.pg_id, index), bundle, {}))
        await asyncio.gather(*(self._return(node, bundles) for node, bundles in returns.items()))

    async def _prepare(self, group: Group, index: int, node: Node) -> CallError | None:
        try:
            if node.channel is None:
                raise CallError(ErrorKind.UNAVAILABLE, "the node is not connected")
            request = PrepareBundle(group.pg_id, index, group.request.bundles[index])
            await node.channel.call(request, AGENT_TIMEOUT_S)
        except CallError as error:
            return error
        return None

    async def _commit(self, group: Group, index: int, node: Node) -> CallError | None:
        try:
            if node.channel is None:
                raise CallError(ErrorKind.UNAVAILABLE, "the node is not connected")
            await node.channel.call(CommitBundle(group.pg_id, index), AGENT_TIMEOUT_S)
        except CallError as error:
            return error
        return None

    def _return_soon(self, node: Node, bundle: _Return) -> None:
        """Returns a bundle together with all others of this turn of the loop."""
        loop = asyncio.get_running_loop()
        if not self._returns:
            loop.call_soon(self._send_returns)
        if node not in self._returns:
            self._returns[node] = ([], loop.create_future())
        self._returns[node][0].append(bundle)

    def _send_returns(self) -> None:
        returns, self._returns = self._returns, {}
        for node, (bundles, returned) in returns.items():
            work = self._return_together(node, bundles, returned)
            self._context.tasks.spawn(work, f"return of bundles of node {node.node_id.hex()}")

    async def _return_together(
        self, node: Node, bundles: list[_Return], returned: asyncio.Future[None]
    ) -> None:
        try:
            await self._return(node, bundles)
        finally:
            returned.set_result(None)

    async def _return(self, node: Node, bundles: Sequence[_Return]) -> None:
        """Asks a node for bundles; one that is away is asked again when it is back."""
        channel = node.channel
        keys = [bundle.key for bundle in bundles]
        try:
            if channel is None:
                raise CallError(ErrorKind.UNAVAILABLE, "the node is not connected")
            await channel.call(ReturnBundles(keys), AGENT_TIMEOUT_S)
        except CallError as error:
            if not node.is_dead:
                log.warning("node %s did not return bundles: %s", node.node_id.hex(), error)
                self._unreturned.setdefault(node.node_id, set()).update(keys)
            return
        if node.channel is channel:
            for bundle in bundles:
                node.withdraw(bundle.offered, bundle.bundle)
            self._view_changed.set()
