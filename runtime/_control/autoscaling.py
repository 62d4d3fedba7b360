"""The demand for machines: one consistent picture for the autoscaler, and what it reports back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from runtime._control.cluster import Cluster
from runtime._control.context import Context, Handlers
from runtime._control.waiters import Waiters
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import Demand, ErrorKind, Ok
from runtime._wire.messages.control import (
    AutoscalerReport,
    ClusterState,
    Holding,
    PendingGroup,
    RequestResources,
    WatchClusterState,
)

TABLE = "requested"
_encode = msgspec.msgpack.encode


class _Requested(msgspec.Struct, frozen=True, array_like=True):
    bundles: list[dict[str, int]]
    expires_s: float  # unix time; 0: never
    selectors: list[dict[str, str]] = []  # one for each bundle


def _selectors(entry: _Requested) -> list[dict[str, str]]:
    """One for each bundle; an entry of an earlier version has none."""
    return entry.selectors or [{} for _ in entry.bundles]


class AutoscalingService:
    """Sums up what waits. `touch` says that something in the picture changed; `on_report` hears of each report."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        actor_demands: Callable[[], list[Demand]],
        pending_groups: Callable[[], list[PendingGroup]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._actor_demands = actor_demands
        self._pending_groups = pending_groups
        self.on_report: list[Callable[[AutoscalerReport], None]] = []
        # Above every version of an earlier life, so that those who wait for news of then hear of now.
        self._version = int(context.wall_time() * 1000)
        self._waiters = Waiters()
        self._requested: dict[str, _Requested] = {}
        self._report = b""

    def load(self) -> None:
        """Takes the explicit requests of an earlier life."""
        for owner, row in self._context.journal.storage.scan(TABLE):
            self._requested[owner.decode()] = msgspec.msgpack.decode(row, type=_Requested)

    def handlers(self) -> Handlers:
        return {
            WatchClusterState: self.watch,
            RequestResources: self.request,
            AutoscalerReport: self.take_report,
        }

    def touch(self) -> None:
        """Something that matters to the autoscaler changed."""
        self._version += 1
        self._waiters.wake()

    def watch(self, _: Channel, message: WatchClusterState) -> ClusterState | Awaitable[ClusterState]:
        if self._version > message.after_version:
            return self.snapshot()
        return self._wait(message)

    async def _wait(self, message: WatchClusterState) -> ClusterState:
        deadline = self._context.now() + message.timeout_s
        while self._version <= message.after_version:
            left = deadline - self._context.now()
            if left <= 0 or not await self._waiters.wait(left):
                break
        return self.snapshot()

    async def request(self, _: Channel, message: RequestResources) -> Ok:
        if any(amount < 0 for bundle in message.bundles for amount in bundle.values()):
            raise CallError(ErrorKind.INVALID, "requested resources must not be negative")
        selectors = message.selectors or [{} for _ in message.bundles]
        if len(selectors) != len(message.bundles):
            raise CallError(ErrorKind.INVALID, "one selector is needed for each requested bundle")
        key = message.owner.encode()
        if message.bundles:
            expires_s = self._context.wall_time() + message.ttl_s if message.ttl_s else 0.0
            requested = _Requested(message.bundles, expires_s, selectors)
            self._requested[message.owner] = requested
            self._context.journal.put(TABLE, key, _encode(requested))
            if message.ttl_s:
                self._context.after(message.ttl_s + 0.01, self.touch)
        elif self._requested.pop(message.owner, None) is not None:
            self._context.journal.delete(TABLE, key)
        self.touch()
        await self._context.journal.durable()
        return Ok()

    def job_finished(self, job_id: bytes, _driver_id: bytes) -> None:
        """What a program asked for ends with it."""
        owner = job_id.hex()
        if self._requested.pop(owner, None) is not None:
            self._context.journal.delete(TABLE, owner.encode())
            self.touch()

    def take_report(self, _: Channel, message: AutoscalerReport) -> Ok:
        self._report = message.report
        for listener in self.on_report:
            listener(message)
        return Ok()

    def snapshot(self) -> ClusterState:
        """The picture of now."""
        now_s = self._context.wall_time()
        self._forget_expired(now_s)
        return ClusterState(
            version=self._version,
            now_s=now_s,
            nodes=[node.snapshot() for node in self._cluster.all()],
            demands=self._demands(),
            groups=self._pending_groups(),
            requested=[bundle for entry in self._requested.values() for bundle in entry.bundles],
            last_report=self._report,
            requested_selectors=[
                selector for entry in self._requested.values() for selector in _selectors(entry)
            ],
            holdings=[
                Holding(node.node_id, node.held, node.bound_by)
                for node in self._cluster.living()
                if node.held or node.bound_by
            ],
        )

    def _demands(self) -> list[Demand]:
        sums: dict[bytes, Demand] = {}
        waiting = [demand for node in self._cluster.living() for demand in node.demands]
        for demand in [*waiting, *self._actor_demands()]:
            if demand.count <= 0:
                continue
            key = _encode(demand.request, order="deterministic")
            known = sums.get(key)
            if known is not None:
                demand = Demand(
                    demand.request, known.count + demand.count, known.infeasible or demand.infeasible
                )
            sums[key] = demand
        return list(sums.values())

    def _forget_expired(self, now_s: float) -> None:
        for owner, entry in list(self._requested.items()):
            if entry.expires_s and entry.expires_s <= now_s:
                del self._requested[owner]
                self._context.journal.delete(TABLE, owner.encode())
