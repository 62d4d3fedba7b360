"""The node agent: wires the services of one node and hands each message to the one that answers for it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Coroutine
from typing import Any

from runtime._clients.control import ControlClient
from runtime._core.ledger import Ledger
from runtime._core.workers import Worker
from runtime._store.service import ObjectStore
from runtime._system import files
from runtime._transport.channel import CallError, Channel
from runtime._transport.tcp import TcpListener, serve_tcp
from runtime._transport.unix import UnixListener, serve_unix
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import (
    FinishJob,
    RegisterNode,
    WorkerFailed,
)
from runtime._wire.messages.node import NodeDied

from . import registry
from .actor_service import Actor, ActorService
from .bundle_service import BundleService
from .cluster import Cluster
from .config import AgentConfig, exit_grace_s, spill_settings
from .control_handler import ControlHandler
from .definitions import Definitions
from .environments import Environments
from .jobs import JobTable
from .lease_service import LeaseService, LocalLease
from .memory_monitor import NOTICE_S, RELIEF_S, MemoryMonitor
from .metrics_service import MetricsService, machine_metrics
from .object_puller import ObjectPuller
from .object_server import ObjectServer
from .object_service import ObjectService, ask_what_is_placed
from .object_sources import ObjectSources
from .output import OutputRouter
from .owning_workers import OwningWorkers
from .peer_handler import PeerHandler
from .peers import PeerTable
from .process_handler import ProcessHandler
from .processes import Process
from .reporter import Reporter
from .state_service import StateService
from .worker_pool import PoolListener, WorkerPool

log = logging.getLogger(__name__)
DRIVER_TIMEOUT_S = 30.0
"""With `exit_with_driver`, how long to wait for the first driver."""


class NodeAgent:
    """One node of the cluster. `start`, then wait for `finished`, then `stop`.

    `finished` is set, with `reason`, when the node should end: on request, cut off from the control store, its
    driver gone, or workers that cannot be started.
    """

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.finished = asyncio.Event()
        self.reason = ""
        self.cluster_id = ""
        self.started_s = time.time()
        self.sockets_dir = config.sockets_dir or os.path.join(config.session_dir, "sockets")
        self.unix_path = os.path.join(self.sockets_dir, f"agent-{config.node_id.hex()[:8]}")
        self.address = ""
        self._unix: UnixListener | None = None
        self._tcp: TcpListener | None = None
        self._record: registry.Published | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._driver_timer: asyncio.TimerHandle | None = None
        self._stopping = False

        self.ledger = Ledger(config.total)
        self.cluster = Cluster(config.node_id, self.ledger, config.labels, self._node_died)
        self.control = ControlClient(
            config.connect_control,
            self._from_control,
            self._connected,
            config.control_reconnect_s,
            self.finish,
        )
        self.jobs = JobTable(self.control)
        spilling = spill_settings(config)
        self.environments = Environments(
            os.path.join(config.session_dir, "environments"),
            self.control,
            self.jobs.config,
            (config.session_dir, self.sockets_dir, os.path.dirname(spilling.directory)),
        )
        self.store = ObjectStore(
            config.store_bytes,
            spilling,
            self._changed,
            ask_what_is_placed,
            lambda line: self.output.tell_drivers(line),
        )
        start = {
            "agent_socket": self.unix_path,
            "node_id": config.node_id.hex(),
            "session_dir": config.session_dir,
            "node_host": config.host,
        }
        if config.workers_group:
            start["control_group"] = config.workers_group
        self.peers = PeerTable(
            config.node_id,
            config.secret,
            self.cluster.address_of,
            self.cluster.is_dead,
            lambda channel, message: self._peer_handler.on_our_connection(channel, message),
            lambda node_id: self.leases.remote.node_lost(node_id, "the connection to its node's agent broke"),
        )
        self.output = OutputRouter(config, self.cluster, self.peers, self.jobs, self.control)
        listener = PoolListener(
            self._worker_ended, self.output.monitor.follow, self.finish, lambda: self.memory.wake()
        )
        self.pool = WorkerPool(
            config.session_dir,
            start,
            self.environments,
            listener,
            config.cpu_count,
            exit_grace_s(),
            self.store.arena.fd,
        )
        zero_cap = max(8, 4 * config.cpu_count)
        self.leases = LeaseService(
            self.ledger,
            self.cluster,
            self.pool,
            self.peers,
            zero_cap,
            self.output.explain_wait,
            self._changed,
        )
        self.actors = ActorService(
            self.ledger,
            self.cluster,
            self.pool,
            self.leases,
            self.jobs,
            Definitions(self.control),
            self._changed,
            lambda: self.reporter.freed(),
        )
        self.memory = MemoryMonitor(
            lambda: [*self.leases.holders(), *self.actors.holders()],
            self._end_for_memory,
            self.pool.end_unused_zygotes,
        )
        self.bundles = BundleService(
            self.ledger, self.cluster, self.leases, self.actors, self.control, self.pool
        )
        self.object_server = ObjectServer(self.store)
        self.object_sources = ObjectSources(self.peers)
        puller = ObjectPuller(config.node_id, self.store, self.object_sources)
        self._puller = puller
        self.objects = ObjectService(
            config.node_id,
            self.store,
            puller,
            self.peers,
            lambda: list(self.cluster.table.others),
            lambda worker_id: self._process_handler.channel_of(worker_id),
        )
        self.metrics = MetricsService(
            config.host,
            [("NodeAddress", config.host), ("SessionName", os.path.basename(config.session_dir))],
            self._own_metrics,
        )
        self.state = StateService(
            config.host,
            lambda: self._process_handler.processes(),
            self.peers,
            lambda: list(self.cluster.table.others),
            lambda: self.environments.rows(config.node_id.hex()),
        )
        self.owning = OwningWorkers(self.pool.table, lambda: self.reporter.changed())
        self.reporter = Reporter(
            config.node_id,
            self.control,
            self.ledger,
            self.is_busy,
            self.leases.demands,
            self.leases.held,
            self.bound_by,
            lambda: self.store.index.used_bytes,
            self._on_beat,
        )
        self._peer_handler = PeerHandler(
            self.leases, self.objects, self.object_server, self.store, self.state, self.output
        )
        self._process_handler = ProcessHandler(
            self,
            config,
            self.control,
            self.jobs,
            self.pool,
            self.environments,
            self.leases,
            self.actors,
            self.store,
            self.objects,
            self.state,
            self.metrics,
            self.output,
        )
        self._control_handler = ControlHandler(
            self,
            self.cluster,
            self.jobs,
            self.leases,
            self.actors,
            self.bundles,
            self.reporter,
            self.output,
        )

    # ---------------------------------------------------------------- life

    async def start(self) -> dict[str, Any]:
        """Comes up and joins the cluster. Returns the addresses for its starter.

        Raises:
            CallError: the control store cannot be reached, or refuses us.
            OSError: a socket or directory cannot be made.
            RuntimeError: workers cannot be started.
        """
        config = self.config
        registry.make_private_dir(config.session_dir)
        for folder in (self.sockets_dir, os.path.join(config.session_dir, "logs")):
            os.makedirs(folder, 0o700, exist_ok=True)
        await self.pool.start(config.zygote, config.zygote_delay_s)
        self._unix = await serve_unix(self.unix_path, self._process_handler.accept, "a local process")
        if config.listen_tcp:
            accept = self._peer_handler.accept
            self._tcp = await serve_tcp(config.host, 0, config.secret, accept, "another agent")
            self.address = f"{config.host}:{self._tcp.port}"
        await self.metrics.start()
        await self.control.start()
        self.reporter.start()
        await self.pool.wait_ready()
        record = registry.record_of_this_process(
            config.node_id,
            config.control_address,
            self.unix_path,
            config.session_dir,
            is_head=config.is_head,
            local=config.local,
            now=self.started_s,
        )
        self._record = registry.publish(record)
        if config.exit_with_driver:
            loop = asyncio.get_running_loop()
            self._driver_timer = loop.call_later(DRIVER_TIMEOUT_S, self.finish, "no driver came")
        log.info("node %s is up: %s", config.node_id.hex(), self.unix_path)
        return {
            "node_id": config.node_id.hex(),
            "unix_path": self.unix_path,
            "address": self.address,
            "session_dir": config.session_dir,
        }

    def finish(self, reason: str) -> None:
        """Requests the end of the node; its runner then calls `stop`."""
        if not self.finished.is_set():
            log.info("ending: %s", reason)
            self.reason = reason
            self.finished.set()

    async def stop(self) -> None:
        """Kills the workers and leaves nothing behind but the logs (not even those if so configured)."""
        self._stopping = True
        if self._record is not None:
            self._record.withdraw()
            self._record = None
            registry.records()  # removes those of agents that were killed
        self.reporter.close()
        self.memory.close()
        self.leases.close()
        self.bundles.close()
        self.owning.close()
        self.jobs.close()
        if self._driver_timer is not None:
            self._driver_timer.cancel()
        self.metrics.close()
        for listener in (self._unix, self._tcp):
            if listener is not None:
                listener.stop()
        await self.pool.stop()
        self._process_handler.close()
        self._peer_handler.close()
        self.peers.close()
        await self._puller.close()
        self.object_sources.close()
        self.object_server.close()
        self.objects.close()
        await self.output.monitor.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.environments.close()
        await self.control.close()
        self.store.close()
        await asyncio.to_thread(self._remove_files)

    def _remove_files(self) -> None:
        session = self.config.session_dir
        if self.config.remove_session_dir:
            # A worker that is just dying may still create its log file.
            for _ in range(5):
                files.remove_tree(session)
                if not os.path.exists(session):
                    break
                time.sleep(0.02)
        else:
            self.environments.remove_files()
            for path in self.pool.table:
                _unlink(path.unix_path)
            registry.remove_empty(self.sockets_dir)
            if self.config.sockets_dir:
                _remove_if_empty(self.sockets_dir)
        registry.remove_empty(os.path.dirname(session))

    # ---------------------------------------------------------------- shared by the handlers

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs a coroutine until it ends or the agent does; its failure is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def is_busy(self) -> bool:
        """Whether a lease, an actor, a bundle, a driver, a primary object copy, or what an idle worker owns holds the
        node."""
        return bool(self.leases.count or self.bound_by())

    def bound_by(self) -> str:
        """What holds the node and would be lost with it, "" when nothing is: leases end with their tasks, and tasks
        that have not begun go elsewhere; this cannot."""
        holders = (
            ("a driver", self.jobs.drivers()),
            ("actors", self.actors.count),
            ("placement groups", self.bundles.count),
            ("objects", self.store.index.primary_count),
        )
        found = [name for name, count in holders if count]
        if not (found or self.leases.count) and self.owning.any():  # they are asked only when it matters
            found.append("what idle workers own")
        return ", ".join(found)

    def driver_came(self) -> None:
        """A driver has registered."""
        if self._driver_timer is not None:
            self._driver_timer.cancel()
            self._driver_timer = None

    def driver_left(self, process: Process) -> None:
        """A driver's socket closed: its job is over."""
        job = self.jobs.get(process.job_id)
        if job is not None:
            job.driver = None
        self.objects.owners_dead({process.address.worker_id})
        reason = (
            "the driver has left" if process.leaves else "Driver unexpectedly exits: its connection closed"
        )
        for report in self.state.ended(process, reason, process.leaves):
            self.control.send(report)
        _unlink(process.address.unix_path)
        if not self._stopping:
            self.spawn(self._finish_job(process.job_id), "finish job")

    def job_finished(self, job_id: bytes) -> None:
        """The job's workers here die, but for those whose owner may outlive it, and what it left in the store goes."""
        job = self.jobs.finish(job_id)
        driver_id = job.info.driver.worker_id if job is not None else b""

        def may_outlive(worker: Worker) -> bool:
            if isinstance(worker.use, LocalLease):  # what tasks started ends with these
                return worker.use.owner_worker != driver_id
            return self.actors.may_outlive(worker, driver_id)

        if not self.pool.finish_job(job_id, may_outlive):
            self.jobs.forget(job_id)
        self.objects.job_finished(job_id, driver_id)

    def processes_died(self, worker_ids: set[bytes]) -> None:
        """Processes somewhere in the cluster are gone: what they owned here goes too."""
        self.leases.owners_dead(worker_ids)
        self.actors.owners_dead(worker_ids)
        self.objects.owners_dead(worker_ids)

    def own_info(self) -> NodeInfo:
        """This node as the control store should know it."""
        config = self.config
        return NodeInfo(
            config.node_id,
            "ALIVE" if self.cluster.table.local.schedulable else "DRAINING",
            self.address,
            self.unix_path,
            config.host,
            socket.gethostname(),
            config.is_head,
            config.session_dir,
            dict(self.ledger.total),
            dict(self.ledger.available),
            dict(config.labels),
            idle_since_s=self.reporter.idle_since_s,
            instance_id=config.instance_id,
            node_type=config.node_type,
            started_s=self.started_s,
            store_path=self.store.arena.path,
            metrics_port=self.metrics.port,
            name=config.name,
        )

    def _own_metrics(self) -> list[tuple[str, str, float, list[tuple[str, str]]]]:
        found = machine_metrics()
        for name, total in self.ledger.total.items():
            if "_group_" in name:
                continue
            free = self.ledger.available.get(name, 0)
            for state, amount in (("AVAILABLE", free), ("USED", total - free)):
                labels = [("Name", name), ("State", state)]
                found.append(("resources", "resources of the node", amount / 10_000, labels))
        used = float(self.store.index.used_bytes)
        found.append(("object_store_memory", "bytes of objects", used, [("Location", "MMAP_SHM")]))
        found.append(("actors", "actors that live here", float(self.actors.count), [("State", "ALIVE")]))
        return found

    # ---------------------------------------------------------------- events

    async def _connected(self, channel: Channel) -> None:
        registered = await channel.call(RegisterNode(self.own_info(), self.actors.alive()))
        self.cluster_id = registered.cluster_id
        self.cluster.bury(registered.dead)
        self.cluster.update(registered.nodes, whole=True)
        self.reporter.repeat()
        self.leases.kick()

    def _from_control(self, channel: Channel, message: Any) -> Any:
        return self._control_handler.handle(channel, message)

    def _changed(self) -> None:
        self.reporter.changed()

    def _on_beat(self) -> None:
        self.leases.explain_waits()
        self.bundles.check_waiting_groups()

    def _node_died(self, info: NodeInfo) -> None:
        if info.node_id == self.config.node_id:
            self.finish(f"the control store counts this node as dead: {info.death_reason}")
            return
        reason = f"its node {info.node_id.hex()[:12]} died: {info.death_reason or 'no reason is known'}"
        self.leases.remote.node_lost(info.node_id, reason)
        self._process_handler.tell_all(NodeDied(info.node_id))
        self.peers.drop(info.node_id)
        self.object_sources.drop(info.node_id)
        self.object_server.drop(info.node_id)
        self._peer_handler.drop(info.node_id)
        self.objects.node_dead(info.node_id)

    def _worker_ended(self, worker: Worker, reason: str, intended: bool) -> None:
        use = worker.use
        actor_id = b""
        crashed = use is not None and not intended
        self.output.monitor.finish(worker, self.output.crash_notice(worker, reason) if crashed else None)
        if isinstance(use, LocalLease):
            self.leases.worker_ended(use, reason)
        elif isinstance(use, Actor):
            actor_id = use.spec.actor_id if use.started is not None else b""
            self.actors.worker_ended(use, reason, intended)
        if worker.channel is not None:
            worker.channel.close()
            self.objects.owners_dead({worker.worker_id})
            self.control.send(WorkerFailed(worker.worker_id, actor_id, reason, intended))
            if isinstance(process := worker.channel.context, Process):
                for report in self.state.ended(process, reason, intended):
                    self.control.send(report)
        _unlink(worker.unix_path)

    def _end_for_memory(self, worker: Worker, reason: str, retry: bool) -> None:
        if isinstance(worker.use, LocalLease):
            self.leases.worker_ended(worker.use, reason, out_of_memory=True, retry=retry)
        self.leases.pause(RELIEF_S)
        loop = asyncio.get_running_loop()
        loop.call_later(NOTICE_S, self.pool.stop_worker, worker, reason, False)

    async def _finish_job(self, job_id: bytes) -> None:
        try:
            await self.control.call(FinishJob(job_id), timeout_s=5.0)
        except CallError as error:
            log.warning("the control store did not hear that job %s ended: %s", job_id.hex(), error)
        self.job_finished(job_id)
        if self.config.exit_with_driver and not self.jobs.drivers():
            self.finish("its driver has left")

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        log.info("%s is not empty, and stays", folder)


def _unlink(path: str) -> None:
    if path:
        files.remove(path)
