"""The control store as a whole: wires the services and hands each message to the one that answers for it."""

from __future__ import annotations

import logging
import os
import platform
import random
import time
from collections.abc import Awaitable, Callable

from runtime._control.actor_scheduler import ActorScheduler
from runtime._control.actor_table import ActorTable
from runtime._control.actors import ActorService
from runtime._control.autoscaling import AutoscalingService
from runtime._control.cluster import Cluster
from runtime._control.context import Context, Handlers, Signal
from runtime._control.definitions import DefinitionSweeper
from runtime._control.demand_notes import DemandNotes
from runtime._control.ended import EndedService
from runtime._control.events import ClusterEvents
from runtime._control.gangs import GangService
from runtime._control.group_scheduler import GroupScheduler
from runtime._control.group_table import GroupTable
from runtime._control.jobs import JobService
from runtime._control.journal import Journal
from runtime._control.kv import KvService
from runtime._control.nodes import NodeService
from runtime._control.packages import PackageSweeper
from runtime._control.placement_groups import GroupService
from runtime._control.storage import Storage, StorageError
from runtime._control.waiting_notes import WaitingNotes
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message
from runtime._wire.messages.control import ClusterInfo, GetClusterInfo

log = logging.getLogger(__name__)

META = "meta"


class ControlStore:
    """Holds the cluster's state. Attach a channel per peer."""

    def __init__(
        self,
        storage: Storage,
        session_dir: str,
        *,
        cluster_id: str = "",
        wall_time: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        refuses: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepares; `start` reads the state of an earlier life, if `storage` has one.

        Args:
            storage: closed by `stop`.
            session_dir: the head's session directory, for `GetClusterInfo`.
            cluster_id: for a new cluster; "" makes one up. A storage that has one keeps it.
            wall_time: unix time, as users see it.
            rng: breaks ties of placement.
            refuses: whether the machine at "host:port" answers that nothing listens there; None: agents have no port.
        """
        self._storage = storage
        self._session_dir = session_dir
        self._context = Context(Journal(storage), wall_time=wall_time, rng=rng or random.Random())
        self.cluster_id, self.started_s = self._identity(cluster_id)
        self._channels: set[Channel] = set()
        self._view_changed = Signal()
        demand = Signal()
        context, cluster = self._context, Cluster()

        self.nodes = NodeService(context, cluster, self.cluster_id, self._view_changed, refuses)
        self.jobs = JobService(context, cluster, self.nodes.send_all)
        actor_table, group_table = ActorTable(context.journal), GroupTable(context.journal, wall_time)
        groups = GroupScheduler(context, cluster, group_table, self._view_changed, demand)
        actors = ActorScheduler(context, cluster, actor_table, self._view_changed, demand)
        self.groups = GroupService(context, cluster, group_table, groups, actor_table, self.jobs.is_running)
        self.actors = ActorService(context, cluster, actor_table, actors, self.groups.is_removed)
        self.gangs = GangService(context, self.groups, group_table, self.actors, actor_table, actors)
        self.kv = KvService(context)
        self.autoscaling = AutoscalingService(
            context, cluster, self.actors.demands, self.groups.pending, self.jobs.is_running
        )
        self.packages = PackageSweeper(context, self.kv, self.jobs, actor_table)
        self.definitions = DefinitionSweeper(self.kv, self.jobs, actor_table)
        notes = WaitingNotes(
            context,
            actors.waiting,
            groups.waiting,
            self.autoscaling.requests.of_programs,
            self.jobs.tell_driver,
        )
        demand_notes = DemandNotes(cluster)
        self.nodes.on_demands_of.append(demand_notes.tell)
        events = ClusterEvents(wall_time)
        self.autoscaling.on_report += [demand_notes.learn, notes.learn, events.learn]

        # Groups first: actors may live in them.
        self._view_changed.connect(groups.schedule)
        self._view_changed.connect(actors.schedule)
        demand.connect(self.autoscaling.touch)
        demand.connect(notes.wake)
        self.nodes.on_demand.append(demand.set)
        self.nodes.on_registered += [
            self.jobs.node_registered,
            self.groups.node_registered,
            self.actors.node_registered,
            events.node_registered,
        ]
        self.nodes.on_dead += [
            self.jobs.node_dead,
            self.groups.node_dead,
            self.actors.node_dead,
            events.node_dead,
        ]
        self.jobs.on_finished += [
            self.actors.job_finished,
            self.groups.job_finished,
            self.autoscaling.job_finished,
        ]
        self.groups.on_removed.append(self.actors.group_removed)
        self._handlers: Handlers = {
            GetClusterInfo: self._cluster_info,
            **self.nodes.handlers(),
            **self.jobs.handlers(),
            **self.actors.handlers(),
            **self.groups.handlers(),
            **self.gangs.handlers(),
            **self.kv.handlers(),
            **self.autoscaling.handlers(),
            **EndedService(events).handlers(),
        }

    async def start(self) -> None:
        """Reads the state and begins to watch the nodes."""
        self.nodes.load()
        self.groups.load()
        self.actors.load()
        self.gangs.load()
        self.autoscaling.load()
        self.jobs.load()  # last: those whose driver's node died end now, with their actors, groups and requests
        self.packages.look()
        self.definitions.look()
        self._context.tasks.spawn(self.nodes.watch(), "node liveness")
        await self._context.journal.durable()

    async def stop(self) -> None:
        """Ends at once, without notifying nodes: a successor may take over."""
        for channel in list(self._channels):
            channel.on_close = None
            channel.close()
        self._channels.clear()
        await self._context.tasks.close()
        self._context.journal.close()

    def attach(self, channel: Channel) -> None:
        """Serves a peer until its channel closes."""
        self._channels.add(channel)
        channel.handler = self.handle
        channel.on_close = self._closed

    def handle(self, channel: Channel, message: Message) -> Awaitable[Message | None] | Message | None:
        """A `channel.Handler` over the dispatch table."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise CallError(ErrorKind.INVALID, f"the control store does not answer {type(message).__name__}")
        result: Awaitable[Message | None] | Message | None = handler(channel, message)
        return result

    def _closed(self, channel: Channel) -> None:
        self._channels.discard(channel)
        self.nodes.closed(channel)

    def _cluster_info(self, _: Channel, __: GetClusterInfo) -> ClusterInfo:
        return ClusterInfo(
            cluster_id=self.cluster_id,
            session_dir=self._session_dir,
            started_s=self.started_s,
            python_version=platform.python_version(),
        )

    def _identity(self, wanted: str) -> tuple[str, float]:
        """The id and birth of the cluster: those of the storage, or new ones."""
        known = self._storage.get(META, b"cluster_id")
        if known is None:
            cluster_id = wanted or os.urandom(14).hex()
            started_s = self._context.wall_time()
            self._storage.put(META, b"cluster_id", cluster_id.encode())
            self._storage.put(META, b"started_s", repr(started_s).encode())
            self._storage.commit()
            return cluster_id, started_s
        if wanted and wanted != known.decode():
            raise StorageError(
                f"the state is that of cluster {known.decode()}, not of {wanted}; use another state file"
            )
        return known.decode(), float(self._storage.get(META, b"started_s") or b"0")
