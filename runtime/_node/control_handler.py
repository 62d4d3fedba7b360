"""What the control store says to this agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import (
    ActorStarted,
    ClusterView,
    CommitBundle,
    Drain,
    JobFinished,
    LogBatch,
    PrepareBundle,
    ReserveGroups,
    Resume,
    ReturnBundles,
    StartActor,
    StopActor,
    StopNode,
    WorkersDead,
)

if TYPE_CHECKING:
    from .agent import NodeAgent

Result = Awaitable[Message | None] | Message | None


class ControlHandler:
    """The dispatch of the control store's messages."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._handlers: dict[type[Message], Callable[[Any], Result]] = {
            ClusterView: self._view,
            Drain: self._drain,
            Resume: self._resume,
            StopNode: lambda m: agent.finish(m.reason),
            JobFinished: lambda m: agent.job_finished(m.job_id),
            WorkersDead: lambda m: agent.processes_died(set(m.worker_ids)),
            LogBatch: self._logs,
            StartActor: self._start_actor,
            StopActor: agent.actors.stop,
            PrepareBundle: agent.bundles.prepare,
            CommitBundle: agent.bundles.commit,
            ReserveGroups: agent.bundles.reserve,
            ReturnBundles: agent.bundles.give_back,
        }

    async def _start_actor(self, message: StartActor) -> ActorStarted:
        started = await self._agent.actors.start(message)
        self._agent.reporter.repeat()
        return started

    def handle(self, channel: Channel, message: Message) -> Result:
        """A `channel.Handler`."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise CallError(ErrorKind.INVALID, f"a node agent does not take {type(message).__name__}")
        return handler(message)

    def _view(self, message: ClusterView) -> None:
        agent = self._agent
        agent.cluster.update(message.nodes)
        agent.cluster.update_loads(message.loads)
        if message.has_notes:
            agent.cluster.notes = dict(message.notes)
        agent.leases.kick()

    def _drain(self, message: Drain) -> Ok:
        agent = self._agent
        if message.only_if_idle and agent.is_busy():
            raise CallError(ErrorKind.BUSY, "something holds the node")
        agent.cluster.drain()
        agent.leases.recall_all()
        agent.leases.kick()
        agent.reporter.report_now()  # before the answer: from then on an idle draining node is taken for empty
        return Ok()

    def _resume(self, _: Resume) -> Ok:
        self._agent.cluster.resume()
        self._agent.leases.kick()
        return Ok()

    def _logs(self, message: LogBatch) -> None:
        job = self._agent.jobs.get(message.job_id)
        if job is not None and job.driver is not None and job.log_to_driver:
            self._agent.output.deliver_to_driver(job.driver, message)
