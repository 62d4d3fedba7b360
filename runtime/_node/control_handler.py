"""What the control store says to this agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import (
    ActorStarted,
    ClusterView,
    Drain,
    JobFinished,
    LogBatch,
    Resume,
    StartActor,
    StopActor,
    StopNode,
    WorkersDead,
)
from runtime._wire.messages.groups import CommitBundle, PrepareBundle, ReserveGroups, ReturnBundles

from .actor_service import ActorService
from .bundle_service import BundleService
from .cluster import Cluster
from .jobs import JobTable
from .lease_service import LeaseService
from .output import OutputRouter
from .reporter import Reporter

Result = Awaitable[Message | None] | Message | None


class Node(Protocol):
    """What the control store may ask of the node as a whole."""

    def is_busy(self) -> bool:
        """Whether something holds the node."""

    def finish(self, reason: str) -> None:
        """Requests the end of the node."""

    def job_finished(self, job_id: bytes) -> None:
        """A job is over."""

    def processes_died(self, worker_ids: set[bytes]) -> None:
        """Processes somewhere in the cluster are gone."""


class ControlHandler:
    """The dispatch of the control store's messages."""

    def __init__(
        self,
        node: Node,
        cluster: Cluster,
        jobs: JobTable,
        leases: LeaseService,
        actors: ActorService,
        bundles: BundleService,
        reporter: Reporter,
        output: OutputRouter,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._jobs = jobs
        self._leases = leases
        self._actors = actors
        self._reporter = reporter
        self._output = output
        self._handlers: dict[type[Message], Callable[[Any], Result]] = {
            ClusterView: self._view,
            Drain: self._drain,
            Resume: self._resume,
            StopNode: lambda m: node.finish(m.reason),
            JobFinished: lambda m: node.job_finished(m.job_id),
            WorkersDead: lambda m: node.processes_died(set(m.worker_ids)),
            LogBatch: self._logs,
            StartActor: self._start_actor,
            StopActor: actors.stop,
            PrepareBundle: bundles.prepare,
            CommitBundle: bundles.commit,
            ReserveGroups: bundles.reserve,
            ReturnBundles: bundles.give_back,
        }

    async def _start_actor(self, message: StartActor) -> ActorStarted:
        started = await self._actors.start(message)
        self._reporter.repeat()
        return started

    def handle(self, channel: Channel, message: Message) -> Result:
        """A `channel.Handler`."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise CallError(ErrorKind.INVALID, f"a node agent does not take {type(message).__name__}")
        return handler(message)

    def _view(self, message: ClusterView) -> None:
        cluster = self._cluster
        cluster.update(message.nodes)
        cluster.update_loads(message.loads)
        if message.has_notes:
            cluster.notes = dict(message.notes)
        self._leases.kick()

    def _drain(self, message: Drain) -> Ok:
        if message.only_if_idle and self._node.is_busy():
            raise CallError(ErrorKind.BUSY, "something holds the node")
        self._cluster.drain()
        self._leases.recall_all()
        self._leases.kick()
        self._reporter.report_now()  # before the answer: from then on an idle draining node is taken for empty
        return Ok()

    def _resume(self, _: Resume) -> Ok:
        self._cluster.resume()
        self._leases.kick()
        return Ok()

    def _logs(self, message: LogBatch) -> None:
        job = self._jobs.get(message.job_id)
        if job is not None and job.driver is not None and job.log_to_driver:
            self._output.deliver_to_driver(job.driver, message)
