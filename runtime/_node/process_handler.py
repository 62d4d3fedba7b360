"""What drivers and workers of this node say to its agent, over its Unix socket."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from runtime._clients.control import ControlClient
from runtime._store.service import ObjectStore
from runtime._system.settings import system_config
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message, Ok, Request
from runtime._wire.messages.control import FROM_WORKERS, AddJob, JobInfo, ReportEnded
from runtime._wire.messages.libraries import FROM_LIBRARIES
from runtime._wire.messages.node import (
    ArgumentsLost,
    Blocked,
    LeaseDemand,
    LeaseReturn,
    ListState,
    MetricsReport,
    PrestartWorkers,
    Register,
    Registered,
    SetUp,
    StoreAbort,
    StoreAdd,
    StoreAllot,
    StoreCreate,
    StoreFree,
    StorePin,
    StoreReturn,
    StoreSeal,
    StoreStatus,
    StoreUnpin,
    TakeOutput,
    TasksTold,
    Unblocked,
    WorkerExiting,
)
from runtime._wire.messages.worker import Done

from .actor_service import ActorService
from .config import AgentConfig
from .environments import Environments
from .environments.place import STORE_IN_CONTAINER
from .jobs import Job, JobTable
from .lease_service import LeaseService
from .metrics_service import MetricsService
from .object_service import ObjectService
from .output import OutputRouter
from .processes import Process
from .state_service import StateService
from .worker_pool import WorkerPool

FORWARD_TIMEOUT_S = 30.0
MAX_PRESTART = 4
Result = Awaitable[Message | None] | Message | None


class Node(Protocol):
    """The node as a whole, as its processes change it."""

    @property
    def cluster_id(self) -> str:
        """Of the cluster that the node has joined."""

    def driver_came(self) -> None:
        """A driver has registered."""

    def driver_left(self, process: Process) -> None:
        """A driver's socket closed."""


class ProcessHandler:
    """The registered processes and the dispatch of their messages."""

    def __init__(
        self,
        node: Node,
        config: AgentConfig,
        control: ControlClient,
        jobs: JobTable,
        pool: WorkerPool,
        environments: Environments,
        leases: LeaseService,
        actors: ActorService,
        store: ObjectStore,
        objects: ObjectService,
        state: StateService,
        metrics: MetricsService,
        output: OutputRouter,
    ) -> None:
        self._node = node
        self._config = config
        self._control = control
        self._jobs = jobs
        self._pool = pool
        self._environments = environments
        self._leases = leases
        self._actors = actors
        self._store = store
        self._metrics = metrics
        self._state = state
        self._channels: set[Channel] = set()
        self._settings = system_config()
        self._by_worker: dict[bytes, Channel] = {}
        self._handlers: dict[type[Message], Callable[[Process, Any], Result]] = {
            LeaseDemand: leases.demand,
            PrestartWorkers: lambda p, _: self._prestart(p),
            SetUp: self._set_up,
            LeaseReturn: lambda p, m: leases.give_back(p.channel, m),
            Blocked: lambda p, m: self._set_blocked(p, True, m.whole),
            Unblocked: lambda p, _: self._set_blocked(p, False),
            ArgumentsLost: lambda p, _: self._arguments_lost(p),
            WorkerExiting: self._exiting,
            StoreCreate: lambda p, m: objects.create(p.channel, m),
            StoreSeal: lambda p, m: store.seal(m.object_id, p.channel),
            StoreAbort: lambda p, m: store.abort(m.object_id, p.channel),
            StorePin: lambda p, m: objects.pin(p.channel, m),
            StoreUnpin: lambda p, m: objects.unpin(p.channel, m),
            StoreFree: lambda p, m: objects.free(p.channel, m),
            StoreAllot: lambda p, m: objects.allot(p.channel, m),
            StoreAdd: lambda p, m: objects.add(p.channel, m),
            StoreReturn: lambda p, m: store.give_back(p.channel, m.ranges),
            StoreStatus: lambda _, m: objects.status(m),
            ListState: lambda _, m: state.collect(m),
            MetricsReport: lambda p, m: metrics.report(p, m),
            TakeOutput: lambda _, m: output.take_everywhere(m),
            Done: self._done,
            TasksTold: state.tasks_told,
            **dict.fromkeys((*FROM_WORKERS, *FROM_LIBRARIES), self._forward),
            ReportEnded: self._report_ended,
        }

    def accept(self, channel: Channel) -> None:
        """A local process has connected; its first message must be `Register`."""
        self._channels.add(channel)
        channel.handler = self._handle
        channel.on_close = self._closed

    def processes(self) -> list[Process]:
        """The drivers and workers of this node."""
        return [channel.context for channel in self._channels if isinstance(channel.context, Process)]

    def channel_of(self, worker_id: bytes) -> Channel | None:
        """The connection of a registered process, while it is there."""
        return self._by_worker.get(worker_id)

    def tell_all(self, message: Message) -> None:
        """Sends a one-way message to every registered process."""
        for channel in self._channels:
            if isinstance(channel.context, Process):
                channel.send(message)

    def close(self) -> None:
        """Cuts every process off."""
        for channel in list(self._channels):
            channel.close()

    def _handle(self, channel: Channel, message: Message) -> Result:
        process = channel.context
        if process is None:
            if not isinstance(message, Register):
                raise CallError(ErrorKind.INVALID, "register first")
            return (
                self._register_driver(channel, message)
                if message.is_driver
                else self._register_worker(channel, message)
            )
        handler = self._handlers.get(type(message))
        if handler is None:
            raise CallError(ErrorKind.INVALID, f"a node agent does not take {type(message).__name__}")
        return handler(process, message)

    async def _register_driver(self, channel: Channel, message: Register) -> Registered:
        address = msgspec.structs.replace(message.address, node_id=self._config.node_id)
        info: JobInfo = await self._control.call(
            AddJob(
                self._config.node_id,
                address,
                message.pid,
                message.namespace,
                message.entrypoint,
                message.job_config,
                message.submission_id,
            )
        )
        process = Process(channel, address, info.job_id, message.pid)
        self._enter(process)
        job = self._jobs.add(info, process)
        if channel.closed:
            self._node.driver_left(process)
            raise CallError(ErrorKind.UNAVAILABLE, "the driver is gone")
        self._node.driver_came()
        if not job.config.get("runtime_env"):
            self._prestart(process)
        return self._registered(job, "", self._store.arena.path)

    def _register_worker(self, channel: Channel, message: Register) -> Registered:
        worker = self._pool.register(message.startup_token, message.pid, channel)
        worker.unix_path = message.address.unix_path
        address = msgspec.structs.replace(
            message.address, node_id=self._config.node_id, worker_id=worker.worker_id
        )
        self._enter(Process(channel, address, worker.job_id, message.pid, worker))
        job = self._jobs.get(worker.job_id)
        assert job is not None  # its place was prepared before the fork
        in_container = worker.host.interpreter.container is not None
        reply = self._registered(
            job, worker.key[1], STORE_IN_CONTAINER if in_container else self._store.arena.path
        )
        # After the reply is sent: the taker of the worker may write to it at once.
        place = self._environments.ready(worker.key)
        if place is None or not place.has_set_up:  # else `SetUp` follows
            asyncio.get_running_loop().call_soon(self._pool.ready, worker)
        return reply

    def _enter(self, process: Process) -> None:
        process.channel.context = process
        if not process.channel.closed:
            self._by_worker[process.address.worker_id] = process.channel

    def _registered(self, job: Job, runtime_env: str, store_path: str) -> Registered:
        config, store = self._config, self._store
        return Registered(
            config.node_id,
            config.host,
            job.info.job_id,
            job.info.namespace,
            job.info.config,
            config.session_dir,
            self._node.cluster_id,
            config.control_address,
            config.secret,
            store_path,
            store.arena.capacity_bytes,
            config.labels,
            runtime_env,
            config.is_head,
            self._settings,
            self._metrics.port,
            "{}.{}".format(*sys.version_info),
        )

    def _closed(self, channel: Channel) -> None:
        self._channels.discard(channel)
        process = channel.context
        if not isinstance(process, Process):
            return
        self._by_worker.pop(process.address.worker_id, None)
        self._leases.owner_gone(channel)
        self._store.drop_holder(channel)
        self._metrics.process_ended(process.address.worker_id)
        if process.worker is not None:
            self._pool.disconnected(process.worker)
        else:
            self._node.driver_left(process)

    def _set_blocked(self, process: Process, blocked: bool, whole: bool = False) -> None:
        if process.worker is not None:
            self._leases.set_blocked(process.worker, blocked, whole)

    def _arguments_lost(self, process: Process) -> None:
        if process.worker is not None:
            self._actors.arguments_lost(process.worker)

    def _prestart(self, process: Process) -> None:
        count = min(max(1, self._config.cpu_count), MAX_PRESTART)
        self._pool.prestart((process.job_id, ""), count)

    def _set_up(self, process: Process, message: SetUp) -> None:
        if process.worker is not None:
            self._pool.set_up(process.worker, message.error)

    def _done(self, process: Process, message: Done) -> None:
        if process.worker is not None:
            self._actors.done(process.worker, message)

    def _exiting(self, process: Process, message: WorkerExiting) -> Ok:
        if process.worker is not None:
            self._pool.exiting(process.worker, message.reason, message.intended)
        else:
            process.leaves = True
        return Ok()

    async def _report_ended(self, process: Process, message: ReportEnded) -> Message:
        reply = await self._forward(process, message)
        self._state.tasks_reported(process)
        return reply

    async def _forward(self, process: Process, message: Request[Message]) -> Message:
        timeout_s = FORWARD_TIMEOUT_S + float(getattr(message, "timeout_s", 0.0))
        return await self._control.call(message, timeout_s=timeout_s)
