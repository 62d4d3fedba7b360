"""The way of workers' output to the driver of their job: on this node directly, else through the control store."""

from __future__ import annotations

import asyncio
import logging

from runtime._clients.control import ControlClient
from runtime._core.workers import Worker
from runtime._transport.channel import CallError
from runtime._wire.messages.control import AUTOSCALER, LogBatch
from runtime._wire.messages.node import DriverLogs, Output, TakeOutput

from .cluster import Cluster
from .config import AgentConfig
from .jobs import JobTable
from .log_monitor import LogMonitor
from .peers import PeerTable
from .processes import Process

log = logging.getLogger(__name__)
TAKE_TIMEOUT_S = 5.0
SOURCE = "cluster"
"""The name in front of lines that no worker wrote."""


class OutputRouter:
    """What this node's workers print, on its way."""

    def __init__(
        self, config: AgentConfig, cluster: Cluster, peers: PeerTable, jobs: JobTable, control: ControlClient
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._peers = peers
        self._jobs = jobs
        self._control = control
        self.monitor = LogMonitor(config.node_id, config.host, self._deliver)

    def deliver_to_driver(self, driver: Process, batch: LogBatch) -> None:
        """Lines of a worker, to a driver of this node."""
        driver.channel.send(_for_driver(batch))

    async def take(self, message: TakeOutput) -> Output:
        """What this node's workers of a job have written lately."""
        return Output([_for_driver(batch) for batch in await self.monitor.take(message.job_id)])

    async def take_everywhere(self, message: TakeOutput) -> Output:
        """What the workers of a job have written lately, on all nodes."""
        elsewhere = await asyncio.gather(*(self._ask(node, message) for node in self._cluster.others()))
        here = await self.take(message)
        return Output([*here.batches, *(batch for batches in elsewhere for batch in batches)])

    def crash_notice(self, worker: Worker, reason: str) -> LogBatch:
        """What the driver of a worker reads that died in the middle of its work."""
        line = (
            "A worker died or was killed while executing a task by an unexpected system error: "
            f"process {worker.pid} of node {self._config.host}: {reason}"
        )
        config = self._config
        return LogBatch(worker.job_id, config.node_id, config.host, 0, SOURCE, True, [line])

    def tell_drivers(self, line: str) -> None:
        """A line of this node itself, for the driver of every job that has something here."""
        config = self._config
        for job_id in self._jobs.running():
            self._deliver(LogBatch(job_id, config.node_id, config.host, 0, SOURCE, True, [line]))

    def explain_wait(self, job_id: bytes, line: str) -> None:
        """Why work of a job waits, for its driver."""
        self._deliver(LogBatch(job_id, b"", "", 0, AUTOSCALER, True, [line]))

    async def _ask(self, node_id: bytes, message: TakeOutput) -> list[DriverLogs]:
        try:
            async with asyncio.timeout(TAKE_TIMEOUT_S):
                channel = await self._peers.channel(node_id)
                return (await channel.call(message)).batches
        except (CallError, TimeoutError) as error:
            log.info("no last output from node %s: %s", node_id.hex()[:12], error)
            return []

    def _deliver(self, batch: LogBatch) -> None:
        job = self._jobs.get(batch.job_id)
        if job is None or job.finished or not job.log_to_driver:
            return
        if job.driver is not None:
            self.deliver_to_driver(job.driver, batch)
        else:
            self._control.send(batch, keep=False)


def _for_driver(batch: LogBatch) -> DriverLogs:
    return DriverLogs(batch.host, batch.pid, batch.name, batch.is_error_stream, batch.lines, batch.node_id)
