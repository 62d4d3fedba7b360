"""The demand for machines: one consistent picture for the autoscaler, and what it reports back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from runtime._control.cluster import Cluster
from runtime._control.context import Context, Handlers
from runtime._control.explicit_requests import ExplicitRequests
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

_encode = msgspec.msgpack.encode


class AutoscalingService:
    """Sums up demand. `touch` marks a change of the picture; `on_report` is called for each report."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        actor_demands: Callable[[], list[Demand]],
        pending_groups: Callable[[], list[PendingGroup]],
        is_running: Callable[[bytes], bool],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._actor_demands = actor_demands
        self._pending_groups = pending_groups
        self._is_running = is_running
        self.on_report: list[Callable[[AutoscalerReport], None]] = []
        # Above every version of an earlier life, so that those who wait for news of then hear of now.
        self._version = int(context.wall_time() * 1000)
        self._waiters = Waiters()
        self.requests = ExplicitRequests(context, self.touch)
        self._report = b""

    def load(self) -> None:
        """Takes the explicit requests of an earlier life."""
        self.requests.load()

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
            return self._answer(message)
        return self._wait(message)

    async def _wait(self, message: WatchClusterState) -> ClusterState:
        deadline = self._context.now() + message.timeout_s
        while self._version <= message.after_version:
            left = deadline - self._context.now()
            if left <= 0 or not await self._waiters.wait(left):
                break
        return self._answer(message)

    def _answer(self, message: WatchClusterState) -> ClusterState:
        if message.only_version:
            return ClusterState(self._version, self._context.wall_time(), [], [], [], [])
        return self.snapshot(with_report=message.with_report)

    async def request(self, _: Channel, message: RequestResources) -> Ok:
        if message.job_id and not self._is_running(message.job_id):
            raise CallError(ErrorKind.INVALID, f"job {message.job_id.hex()} has ended")
        self.requests.take(message)
        await self._context.journal.durable()
        return Ok()

    def job_finished(self, job_id: bytes, _driver_id: bytes) -> None:
        """What a program asked for ends with it."""
        self.requests.job_finished(job_id)

    def take_report(self, _: Channel, message: AutoscalerReport) -> Ok:
        self._report = message.report
        for listener in self.on_report:
            listener(message)
        return Ok()

    def snapshot(self, with_report: bool = True) -> ClusterState:
        """The picture of now."""
        requesters, requests = self.requests.everything()
        return ClusterState(
            version=self._version,
            now_s=self._context.wall_time(),
            nodes=[node.snapshot() for node in self._cluster.all()],
            demands=self._demands(),
            groups=self._pending_groups(),
            requested=[bundle for entry in requests for bundle in entry.bundles],
            last_report=self._report if with_report else b"",
            holdings=[
                Holding(node.node_id, node.held, node.bound_by)
                for node in self._cluster.living()
                if node.held or node.bound_by
            ],
            requested_selectors=[selector for entry in requests for selector in entry.selectors],
            requested_counts=[count for entry in requests for count in entry.counts],
            requesters=requesters,
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
