"""Jobs: drivers that come and go, and the way of their workers' output back to them."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from runtime._control.cluster import Cluster, Node
from runtime._control.context import Context, Handlers
from runtime._core.fsm import Machine
from runtime._core.ids import JobID
from runtime._core.jobs import TRANSITIONS, JobEvent, JobState
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Ok
from runtime._wire.messages.control import (
    AddJob,
    FinishJob,
    GetJob,
    JobFinished,
    JobInfo,
    Jobs,
    ListJobs,
    LogBatch,
    RegisterNode,
)

log = logging.getLogger(__name__)

TABLE = "jobs"
MAX_FINISHED = 10_000
RECENT_S = 60.0
"""Longer than any agent may be away."""
_COUNTER = b"next_job"


class JobService:
    """Owns the jobs. `on_finished` is called for each that ends, with its id and the worker id of its driver."""

    def __init__(self, context: Context, cluster: Cluster, tell_all: Callable[[JobFinished], None]) -> None:
        self.on_finished: list[Callable[[bytes, bytes], None]] = []
        self._context = context
        self._cluster = cluster
        self._tell_all = tell_all
        self._jobs: dict[bytes, JobInfo] = {}
        self._machines: dict[bytes, Machine[JobState, JobEvent]] = {}
        self._by_driver: dict[bytes, bytes] = {}

    def load(self) -> None:
        """Takes the jobs of an earlier life of this control store."""
        for job_id, row in self._context.journal.storage.scan(TABLE):
            self._remember(msgspec.msgpack.decode(row, type=JobInfo))
            log.debug("remembering job %s", job_id.hex())
        for info in list(self._jobs.values()):
            if not self._cluster.is_living(info.driver.node_id):
                self._end(info.job_id, JobEvent.NODE_LOST)

    def handlers(self) -> Handlers:
        return {
            AddJob: self.add,
            GetJob: self.get,
            ListJobs: self.list_jobs,
            FinishJob: self.finish,
            LogBatch: self.route_logs,
        }

    async def add(self, _: Channel, message: AddJob) -> JobInfo:
        """Admits a driver; the same driver asking again gets the same job."""
        known = self._by_driver.get(message.driver.worker_id)
        if known is None:
            node = self._cluster.get(message.node_id)
            info = JobInfo(
                job_id=self._next_id(),
                state=JobState.RUNNING.value,
                driver=msgspec.structs.replace(message.driver, node_id=message.node_id),
                pid=message.pid,
                host=node.info.host if node is not None else "",
                namespace=message.namespace,
                entrypoint=message.entrypoint,
                config=message.config,
                started_s=self._context.wall_time(),
                submission_id=message.submission_id,
            )
            self._remember(info)
            self._save(info)
            known = info.job_id
            log.info("job %s started by pid %d of %s", known.hex(), info.pid, info.host)
        await self._context.journal.durable()
        return self._jobs[known]

    def get(self, _: Channel, message: GetJob) -> JobInfo:
        info = self._jobs.get(message.job_id)
        if info is None:
            raise CallError(ErrorKind.NOT_FOUND, f"there is no job {message.job_id.hex()}")
        return info

    def list_jobs(self, _: Channel, __: ListJobs) -> Jobs:
        return Jobs(list(self._jobs.values()))

    async def finish(self, _: Channel, message: FinishJob) -> Ok:
        self._end(message.job_id, JobEvent.DRIVER_LEFT)
        await self._context.journal.durable()
        return Ok()

    def route_logs(self, _: Channel, message: LogBatch) -> None:
        """Passes output on to the job's driver."""
        self.tell_driver(message)

    def tell_driver(self, message: LogBatch) -> None:
        """Sends lines to the agent of the job's driver, as long as there is one."""
        info = self._jobs.get(message.job_id)
        node = self._cluster.get(info.driver.node_id) if info is not None else None
        if node is not None and node.channel is not None:
            node.channel.send(message)

    def node_registered(self, node: Node, _: RegisterNode) -> None:
        """Sends an agent that was disconnected the jobs that ended lately."""
        since_s = self._context.wall_time() - RECENT_S
        for info in self._jobs.values():
            if info.ended_s >= since_s and info.state == JobState.FINISHED.value and node.channel is not None:
                node.channel.send(JobFinished(info.job_id))

    def node_dead(self, node: Node) -> None:
        """The drivers of a dead node are gone, and so are their jobs."""
        for info in list(self._jobs.values()):
            if info.driver.node_id == node.node_id:
                self._end(info.job_id, JobEvent.NODE_LOST)

    def running(self) -> list[JobInfo]:
        """The jobs whose drivers are there."""
        return [self._jobs[job_id] for job_id in self._by_driver.values()]

    def find(self, job_id: bytes) -> JobInfo | None:
        """A job, ended or not."""
        return self._jobs.get(job_id)

    def is_running(self, job_id: bytes) -> bool:
        info = self._jobs.get(job_id)
        return info is not None and info.state == JobState.RUNNING.value

    def _end(self, job_id: bytes, event: JobEvent) -> None:
        machine = self._machines.get(job_id)
        if machine is None or not machine.can(event):
            return
        state = machine.step(event, self._context.now())
        info = self._jobs[job_id]
        info = msgspec.structs.replace(info, state=state.value, ended_s=self._context.wall_time())
        self._jobs[job_id] = info
        self._by_driver.pop(info.driver.worker_id, None)
        self._save(info)
        log.info("job %s finished: %s", job_id.hex(), event.value)
        for listener in self.on_finished:
            listener(job_id, info.driver.worker_id)
        self._tell_all(JobFinished(job_id))
        self._forget_old()

    def _forget_old(self) -> None:
        while len(self._jobs) > MAX_FINISHED:
            oldest = next((i.job_id for i in self._jobs.values() if i.state == JobState.FINISHED.value), None)
            if oldest is None:
                return
            del self._jobs[oldest], self._machines[oldest]
            self._context.journal.delete(TABLE, oldest)

    def _next_id(self) -> bytes:
        row = self._context.journal.storage.get("meta", _COUNTER)
        number = int.from_bytes(row, "big") if row else 1
        self._context.journal.put("meta", _COUNTER, (number + 1).to_bytes(8, "big"))
        return JobID.from_int(number).binary()

    def _remember(self, info: JobInfo) -> None:
        self._jobs[info.job_id] = info
        self._machines[info.job_id] = Machine(f"job {info.job_id.hex()}", JobState(info.state), TRANSITIONS)
        if info.state == JobState.RUNNING.value:
            self._by_driver[info.driver.worker_id] = info.job_id

    def _save(self, info: JobInfo) -> None:
        self._context.journal.put(TABLE, info.job_id, msgspec.msgpack.encode(info))
