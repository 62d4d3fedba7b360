"""Leases of this node: demands in, grants out, here and on other nodes. Executes what `LeaseQueue`
decides."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from runtime._core.lease_queue import AskNode, AskOwner, GrantHere, LeaseQueue, Refuse, Waiting
from runtime._core.lease_sharing import SLICE_S, recalls
from runtime._core.ledger import Allocation, Ledger
from runtime._core.memory_policy import Holder
from runtime._core.resources import describe, why_infeasible
from runtime._core.worker_cap import SchedulingClass
from runtime._core.workers import Worker, WorkerEvent
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import Demand, ErrorKind, ResourceRequest, WorkerAddress
from runtime._wire.messages.node import (
    GiveIdleBack,
    LeaseDemand,
    LeaseFailed,
    LeaseGranted,
    LeaseLost,
    LeaseRecall,
    LeaseReturn,
    RemoteLease,
    RemoteLeaseGranted,
    RemoteLeaseLost,
    RemoteLeaseReturn,
)

from .cluster import Cluster
from .peers import PeerTable
from .processes import Peer, Process
from .remote_leases import RemoteLeases
from .worker_pool import WorkerPool

OWNER_ANSWERS_S = 1.0
"""How long a demand waits for what its owner says before it goes to a node without its arguments."""
_encode = msgspec.msgpack.Encoder().encode


class LocalLease(msgspec.Struct, eq=False):
    """A worker of this node in the hands of `owner` (a process here, or another node's agent)."""

    lease_id: bytes
    worker: Worker
    allocation: Allocation
    owner: Channel
    owner_worker: bytes
    is_zero: bool
    retriable: bool
    since_s: float
    class_key: bytes
    scheduling_class: SchedulingClass
    shape: bytes  # the request, encoded
    blocked: bool = False
    recalled_s: float | None = None

    @property
    def job_id(self) -> bytes:
        return self.worker.job_id

    @property
    def holder(self) -> tuple[Channel, bytes]:
        """See `lease_sharing.Held`."""
        return self.owner, self.class_key

    @property
    def resources(self) -> Mapping[str, int]:
        return self.allocation.resources


class LeaseService:
    """Owns every lease that this node gave or took.

    Args:
        explain: takes a line for a job's driver that says why tasks wait.
        on_change: called when resources or demands changed, to report to the control store.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        pool: WorkerPool,
        peers: PeerTable,
        zero_cap: int,
        explain: Callable[[bytes, str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._pool = pool
        self._zero_cap = zero_cap
        self._explain = explain
        self._on_change = on_change
        self._queue = LeaseQueue(ledger, cluster.table, random.Random(), zero_cap)
        self.remote = RemoteLeases(
            self._queue, cluster.table, peers, self.new_lease_id, self.kick, self._refuse
        )
        self._local: dict[bytes, LocalLease] = {}
        self._owned: dict[Channel, set[bytes]] = {}
        self._prefix = os.urandom(8)
        self._numbers = itertools.count(1)
        self._kicked = False
        self._resuming: asyncio.TimerHandle | None = None  # while nothing is handed out
        self._pacing: asyncio.TimerHandle | None = None
        self._sharing: asyncio.TimerHandle | None = None
        self._coming = 0  # granted, but the worker starts yet, or its environment is being built
        self._closed = False
        self._asking: set[asyncio.Task[None]] = set()  # owners

    @property
    def count(self) -> int:
        """Leases of workers of this node, those included whose worker is still to come."""
        return len(self._local) + self._coming

    def close(self) -> None:
        self._closed = True
        for timer in (self._pacing, self._resuming, self._sharing):
            if timer is not None:
                timer.cancel()
        for task in self._asking:
            task.cancel()
        self.remote.close()

    def new_lease_id(self) -> bytes:
        return self._prefix + next(self._numbers).to_bytes(8, "big")

    def kick(self) -> None:
        """Something changed: look at the queue once this turn of the loop is over."""
        if not self._kicked and not self._closed:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self._schedule)

    # -- from processes

    def demand(self, process: Process, message: LeaseDemand) -> None:
        """A process wants workers."""
        request = message.request
        self._queue.demand(
            process.channel,
            message.class_key,
            message.count,
            scheduling_class=SchedulingClass(*_line(process), message.class_key),
            shape=_encode(request),
            request=request.strategy.request(request.resources),
            job_id=process.job_id,
            group_id=request.placement_group_id,
            runtime_env=message.runtime_env,
            locality=message.locality,
            name=message.name,
            now=asyncio.get_running_loop().time(),
            retriable=message.retriable,
        )
        self.kick()

    def give_back(self, owner: Channel, message: LeaseReturn | RemoteLeaseReturn) -> None:
        """The owner, or the other node's agent, is done with a lease. An unknown one ended before."""
        lease = self._local.get(message.lease_id)
        if lease is not None and lease.owner is owner:
            self._end(lease)
            if message.discard:
                self._pool.stop_worker(lease.worker, "its owner discarded it", True)
            else:
                self._pool.give_back(lease.worker)
            self.kick()
        elif isinstance(message, LeaseReturn):
            self.remote.give_back(owner, message)

    def set_blocked(self, worker: Worker, blocked: bool, whole: bool = False) -> None:
        """The worker's task waits for others, or runs on. `whole`: see `Blocked`."""
        lease = worker.use
        allocation = getattr(lease, "allocation", None)
        if allocation is None:
            return
        if blocked:
            if self._ledger.lend(allocation, whole):
                self.kick()
        else:
            self._ledger.unlend(allocation)
            if self._queue.cap.holds_any:
                self.kick()
        if isinstance(lease, LocalLease) and lease.blocked != blocked:
            lease.blocked = blocked
            if lease.is_zero:
                self._queue.zero_leases += -1 if blocked else 1
        self._on_change()

    def owner_gone(self, owner: Channel) -> None:
        """The process, or the other node's agent, is no more: its demands vanish and its workers die."""
        self._queue.drop_owner(owner)
        for lease_id in list(self._owned.pop(owner, ())):
            lease = self._local.get(lease_id)
            if lease is not None:
                self._pool.stop_worker(lease.worker, "the owner of its lease died", True)
        self.remote.owner_gone(owner)
        self.kick()

    def owners_dead(self, worker_ids: set[bytes]) -> None:
        """Processes of other nodes are gone: so are their leases here."""
        for lease in list(self._local.values()):
            if lease.owner_worker in worker_ids:
                self._pool.stop_worker(lease.worker, "the owner of its lease died", True)

    # -- from workers' deaths

    def worker_ended(
        self, lease: LocalLease, reason: str, out_of_memory: bool = False, retry: bool = True
    ) -> None:
        """The worker behind a lease is dead, or about to be: the owner learns why."""
        if lease.lease_id not in self._local:
            return
        self._end(lease)
        kind = RemoteLeaseLost if isinstance(lease.owner.context, Peer) else LeaseLost
        lease.owner.send(
            kind(lease.lease_id, lease.worker.worker_id, reason, out_of_memory=out_of_memory, retry=retry)
        )
        self.kick()

    def pause(self, seconds: float) -> None:
        """Hands nothing out for a while."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._resuming = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self.kick()

    def holders(self) -> list[Holder]:
        """The workers that are leased."""
        return [
            Holder(lease.worker, lease.owner_worker, lease.retriable, lease.since_s)
            for lease in self._local.values()
        ]

    def bundle_returned(self, allocations: list[Allocation]) -> list[Worker]:
        """Their placement group is gone: the workers inside die. Returns these."""
        voided = set(map(id, allocations))
        workers = [lease.worker for lease in self._local.values() if id(lease.allocation) in voided]
        for worker in workers:
            self._pool.stop_worker(worker, "its placement group was removed", True)
        return workers

    # -- between agents

    async def remote_lease(self, channel: Channel, message: RemoteLease) -> RemoteLeaseGranted:
        """Another node's agent asks for one lease. Refuses at once when there is no room.

        Raises:
            CallError: BUSY, or the worker's environment cannot be built.
        """
        resources = message.request.resources
        is_zero = not resources
        if not self._cluster.table.local.schedulable:
            raise CallError(ErrorKind.BUSY, "the node is draining")
        now = asyncio.get_running_loop().time()
        if self._resuming is not None:
            raise CallError(ErrorKind.BUSY, "the node is low on memory")
        if is_zero and not self._queue.zero_room(now):
            raise CallError(ErrorKind.BUSY, "the node is at its limit of tasks without resources")
        which = SchedulingClass(message.origin, message.depth, message.class_key)
        allocation = self._ledger.allocate(resources)
        if allocation is None:
            self._queue.cap.pause(which, now)
            raise CallError(ErrorKind.BUSY, "the resources are taken")
        if self._queue.cap.left_s(which, resources, now) > 0:
            self._queue.cap.hold(which, now)
            self._ledger.release(allocation)
            raise CallError(ErrorKind.CAPPED, "the node is at its limit of tasks of this class")
        self._queue.cap.take(which)
        if is_zero:
            self._queue.take_zero(now)
        future: asyncio.Future[Worker | CallError] = asyncio.get_running_loop().create_future()
        key = (message.job_id, message.runtime_env)
        self._coming += 1
        self._on_change()
        try:
            self._pool.acquire(key, WorkerEvent.LEASE, future.set_result, allocation.devices)
            worker = await future
        finally:
            self._coming -= 1
        draining = (
            not self._cluster.table.local.schedulable
        )  # since it was asked: nobody would ask this lease back
        if isinstance(worker, CallError) or channel.closed or draining:
            self._undo(allocation, which, is_zero)
            if isinstance(worker, CallError):
                raise worker
            self._pool.give_back(worker)
            if draining:
                raise CallError(ErrorKind.BUSY, "the node is draining")
            raise CallError(ErrorKind.UNAVAILABLE, "the requesting agent has disconnected")
        owner = message.owner.worker_id
        lease = self._begin(
            message.lease_id,
            worker,
            allocation,
            channel,
            owner,
            is_zero,
            message.retriable,
            owner,
            which,
            _encode(message.request),
        )
        address = self._address(worker)
        return RemoteLeaseGranted(
            lease.lease_id, address, allocation.resources, allocation.gpu_ids, allocation.other_ids
        )

    # -- reports

    def demands(self) -> list[Demand]:
        """What waits here, equal requests summed; the autoscaler reads it. Groups are demands of their
        own."""
        summed: dict[tuple[bytes, bool], tuple[Waiting, int]] = {}
        for entry in self._queue.waiting():
            if not entry.group_id:
                key = (entry.shape, entry.infeasible)
                _, count = summed.get(key, (entry, 0))
                summed[key] = (entry, count + entry.wanted)
        decode = msgspec.msgpack.decode
        return [
            Demand(decode(shape, type=ResourceRequest), count, infeasible)
            for (shape, infeasible), (_, count) in summed.items()
        ]

    def held(self) -> list[Demand]:
        """The leases of workers of this node, equal requests summed; those inside groups are left out, for the group
        holds the node."""
        counts = Counter(lease.shape for lease in self._local.values())
        decode = msgspec.msgpack.decode
        requests = [(decode(shape, type=ResourceRequest), count) for shape, count in counts.items()]
        return [Demand(request, count) for request, count in requests if not request.placement_group_id]

    def recall_all(self) -> None:
        """Asks every lease back: the node drains. What runs is finished, what has not begun goes elsewhere."""
        now = asyncio.get_running_loop().time()
        for lease in self._local.values():
            lease.recalled_s = now
            lease.owner.send(LeaseRecall(lease.lease_id))

    def explain_waits(self) -> None:
        """Tells drivers why tasks of their jobs wait for long."""
        now = asyncio.get_running_loop().time()
        counts: Counter[tuple[bytes, str, str]] = Counter()
        for entry in self._queue.due_notes(now):
            counts[entry.job_id, entry.name, self._note(entry)] += entry.wanted
        for (job_id, name, note), count in counts.items():
            self._explain(job_id, f"{count} {name} task(s) wait for {note}")

    def waiting_groups(self) -> set[bytes]:
        """Placement groups whose resources are demanded and not to be found on any node."""
        return {entry.group_id for entry in self._queue.waiting() if entry.group_id and entry.infeasible}

    def group_removed(self, group_id: bytes) -> None:
        """Demands inside a group that was removed can never be met."""
        for entry in list(self._queue.waiting()):
            if entry.group_id == group_id:
                text = f"placement group {group_id.hex()} was removed"
                self._refuse(entry, ErrorKind.NOT_FOUND, text)

    # -- inside

    def _schedule(self) -> None:
        self._kicked = False
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        if self._resuming is not None:
            return
        for effect in self._queue.schedule(now):
            if isinstance(effect, GrantHere):
                self._grant(effect.waiting, effect.allocation)
            elif isinstance(effect, AskNode):
                self.remote.ask(effect.waiting, effect.node_id)
            elif isinstance(effect, AskOwner):
                task = asyncio.get_running_loop().create_task(self._ask_owner(effect.waiting, effect.node_id))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
            else:
                assert isinstance(effect, Refuse)
                self._send_failed(effect.waiting, ErrorKind.INVALID, effect.message)
        self._look_again_at(self._queue.look_again_s)
        self._share_later(SLICE_S / 2)
        self._on_change()

    async def _ask_owner(self, entry: Waiting, node_id: bytes) -> None:
        channel = entry.owner
        assert isinstance(channel, Channel)
        try:
            await channel.call(GiveIdleBack(node_id), OWNER_ANSWERS_S)
        except CallError:
            pass  # it is busy, or gone
        self._queue.owner_answered(entry)
        self.kick()

    def _look_again_at(self, when: float | None) -> None:
        if self._pacing is not None and self._pacing.when() != when:
            self._pacing.cancel()
            self._pacing = None
        if self._pacing is None and when is not None:
            self._pacing = asyncio.get_running_loop().call_at(when, self._paced)

    def _share_later(self, delay_s: float) -> None:
        """Sees to it that those who wait get their share of what others hold."""
        if self._sharing is None and self._local and any(True for _ in self._queue.waiting()):
            self._sharing = asyncio.get_running_loop().call_later(delay_s, self._share)

    def _share(self) -> None:
        self._sharing = None
        now = asyncio.get_running_loop().time()
        held = [lease for lease in self._local.values() if not (lease.blocked or lease.is_zero)]
        wants = [
            (entry.job_id, (entry.owner, entry.class_key), entry.request.resources)
            for entry in self._queue.waiting()
            if entry.request.resources and not self._queue.is_capped(entry, now)
            for _ in range(min(entry.wanted, len(held)))
        ]
        found, due_s = recalls(wants, held, self._ledger.available, now)
        for lease in found:
            lease.recalled_s = now
            lease.owner.send(LeaseRecall(lease.lease_id))
        if due_s is not None:
            self._share_later(max(due_s - now, 0.01))

    def _paced(self) -> None:
        self._pacing = None
        self.kick()

    def _grant(self, entry: Waiting, allocation: Allocation) -> None:
        is_zero = not entry.request.resources

        def take(worker: Worker | CallError) -> None:
            self._coming -= 1
            draining = (
                not self._cluster.table.local.schedulable
            )  # since it was granted: it waits for another node
            wanted = self._queue.grant_ended(entry, isinstance(worker, Worker) and not draining)
            channel = entry.owner
            assert isinstance(channel, Channel)
            if isinstance(worker, CallError):
                self._undo(allocation, entry.scheduling_class, is_zero)
                self._refuse(entry, worker.kind, worker.message)
            elif not wanted or channel.closed:
                self._undo(allocation, entry.scheduling_class, is_zero)
                self._pool.give_back(worker)
            else:
                process = channel.context
                lease = self._begin(
                    self.new_lease_id(),
                    worker,
                    allocation,
                    channel,
                    process.address.worker_id,
                    is_zero,
                    entry.retriable,
                    entry.class_key,
                    entry.scheduling_class,
                    entry.shape,
                )
                channel.send(
                    LeaseGranted(
                        entry.class_key,
                        lease.lease_id,
                        self._address(worker),
                        allocation.resources,
                        allocation.gpu_ids,
                        allocation.other_ids,
                    )
                )

        self._coming += 1
        key = (entry.job_id, entry.runtime_env)
        self._pool.acquire(key, WorkerEvent.LEASE, take, allocation.devices)

    def _begin(
        self,
        lease_id: bytes,
        worker: Worker,
        allocation: Allocation,
        owner: Channel,
        owner_worker: bytes,
        is_zero: bool,
        retriable: bool,
        class_key: bytes,
        scheduling_class: SchedulingClass,
        shape: bytes,
    ) -> LocalLease:
        lease = LocalLease(
            lease_id,
            worker,
            allocation,
            owner,
            owner_worker,
            is_zero,
            retriable,
            asyncio.get_running_loop().time(),
            class_key,
            scheduling_class,
            shape,
        )
        self._local[lease.lease_id] = lease
        self._owned.setdefault(owner, set()).add(lease.lease_id)
        worker.use = lease
        return lease

    def _end(self, lease: LocalLease) -> None:
        del self._local[lease.lease_id]
        lease.worker.use = None
        self._undo(lease.allocation, lease.scheduling_class, lease.is_zero and not lease.blocked)
        owned = self._owned.get(lease.owner)
        if owned is not None:
            owned.discard(lease.lease_id)

    def _undo(self, allocation: Allocation, which: SchedulingClass, is_zero: bool) -> None:
        self._ledger.release(allocation)
        self._queue.ended(which, is_zero)
        self.kick()

    def _refuse(self, entry: Waiting, kind: str, message: str) -> None:
        self._queue.fail(entry)
        self._send_failed(entry, kind, message)

    def _send_failed(self, entry: Waiting, kind: str, message: str) -> None:
        if isinstance(entry.owner, Channel):
            entry.owner.send(LeaseFailed(entry.class_key, kind, message))

    def _address(self, worker: Worker) -> WorkerAddress:
        process: Process = worker.channel.context
        return process.address

    def _note(self, entry: Waiting) -> str:
        wanted = describe(entry.request.resources, entry.request.labels, entry.request.fallbacks)
        why = "every node that could hold it is busy"
        if entry.capped:
            why = "as many of its kind have begun as there are CPUs, and wait; more start one by one, ever more slowly"
        if entry.infeasible:
            why = why_infeasible(entry.request.labels)
        reason = self._cluster.notes.get(wanted)
        return f"{wanted}: {why}" + (f" ({reason})" if reason else "")


def _line(process: Process) -> tuple[bytes, int]:
    """`origin` and `depth` of the tasks that a process starts, see `SchedulingClass`."""
    worker = process.worker
    if worker is None:
        return process.job_id, 1
    if isinstance(worker.use, LocalLease):
        running = worker.use.scheduling_class
        return running.origin, running.depth + 1
    return worker.actor_id or process.job_id, 1
