"""Actors of this node: takes the resources, a worker of its own, runs the constructor, and ends it when
told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from runtime._core.ledger import Allocation, Ledger
from runtime._core.memory_policy import Holder
from runtime._core.workers import Worker, WorkerEvent
from runtime._transport.channel import CallError
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, WorkerAddress
from runtime._wire.messages.control import ActorSpec, ActorStarted, StartActor, StopActor
from runtime._wire.messages.worker import BindLease, DefineFunction, Done, ExitActor, Push

from .cluster import Cluster
from .definitions import Definitions
from .jobs import JobTable
from .lease_service import LeaseService
from .processes import Process
from .worker_pool import WorkerPool

log = logging.getLogger(__name__)


class _Exited(Exception):
    """The constructor ended its process on purpose."""


class Actor(msgspec.Struct, eq=False):
    """One actor that this node holds, from the moment its resources are taken."""

    spec: ActorSpec
    restarts: int
    allocation: Allocation
    since_s: float
    worker: Worker | None = None
    constructed: asyncio.Future[Done] | None = None
    task_id: bytes = b""
    started: ActorStarted | None = None
    stopping: bool = False
    placed_again: bool = False  # when its worker ends: the constructor could not begin


class ActorService:
    """Owns the actors of this node.

    Args:
        on_change: called when resources were taken, to report to the control store.
        on_free: called when they are free again.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        pool: WorkerPool,
        leases: LeaseService,
        jobs: JobTable,
        definitions: Definitions,
        on_change: Callable[[], None],
        on_free: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._pool = pool
        self._leases = leases
        self._jobs = jobs
        self._definitions = definitions
        self._on_change = on_change
        self._on_free = on_free
        self._actors: dict[bytes, Actor] = {}
        self._starting: dict[bytes, asyncio.Future[ActorStarted]] = {}

    @property
    def count(self) -> int:
        """Actors that hold anything here."""
        return len(self._actors)

    def holders(self) -> list[Holder]:
        """The workers that actors live in."""
        return [
            Holder(actor.worker, actor.spec.owner.worker_id, actor.spec.max_restarts != 0, actor.since_s)
            for actor in self._actors.values()
            if actor.worker is not None
        ]

    def alive(self) -> list[tuple[bytes, WorkerAddress]]:
        """The constructed actors, for a control store that starts anew."""
        return [(a.spec.actor_id, a.started.address) for a in self._actors.values() if a.started is not None]

    def may_outlive(self, worker: Worker, driver_id: bytes) -> bool:
        """Whether the worker runs an actor that does not end with the job of this driver: a detached one, or one that
        some other process owns, which ends with that one.
        """
        actor = worker.use
        return isinstance(actor, Actor) and (actor.spec.detached or actor.spec.owner.worker_id != driver_id)

    async def start(self, message: StartActor) -> ActorStarted:
        """Brings the actor up and returns when its constructor is done. Repeating the request is safe.

        Raises:
            CallError: BUSY when the resources are not there; RUNTIME_ENV; UNAVAILABLE when the worker died.
        """
        actor_id = message.spec.actor_id
        actor = self._actors.get(actor_id)
        if actor is not None and actor.restarts == message.restarts and not actor.stopping:
            if actor.started is not None:
                return actor.started
            return await asyncio.shield(self._starting[actor_id])
        if actor is not None:
            raise CallError(ErrorKind.BUSY, "the actor's previous process has not ended yet")
        if not self._cluster.table.local.schedulable:
            raise CallError(ErrorKind.BUSY, "the node is draining")
        allocation = self._ledger.allocate(message.spec.placement.resources)
        if allocation is None:
            raise CallError(ErrorKind.BUSY, "the resources are taken")
        allocation.kept = message.spec.held
        actor = self._actors[actor_id] = Actor(
            message.spec, message.restarts, allocation, asyncio.get_running_loop().time()
        )
        self._on_change()
        result: asyncio.Future[ActorStarted] = asyncio.get_running_loop().create_future()
        self._starting[actor_id] = result
        try:
            started = await self._construct(actor)
            result.set_result(started)
        except BaseException as error:
            self._forget(actor)
            if actor.worker is not None:
                self._pool.stop_worker(actor.worker, str(error), True)
            if isinstance(error, CallError):
                result.set_exception(error)
                result.exception()  # marks it as seen: perhaps nobody repeated the request
            raise
        finally:
            self._starting.pop(actor_id, None)
            if not result.done():
                result.cancel()
        return started

    def done(self, worker: Worker, message: Done) -> None:
        """A worker answers the constructor call."""
        actor = worker.use
        if not isinstance(actor, Actor) or actor.task_id != message.task_id:
            return
        if actor.constructed is not None and not actor.constructed.done():
            if message.failed:  # it ends by itself now, perhaps before we come to stop it
                worker.stop_intended, worker.stop_reason = True, "the actor's constructor failed"
            actor.constructed.set_result(message)

    def arguments_lost(self, worker: Worker) -> None:
        """The constructor waits for arguments that are made again, perhaps with what the actor holds: all of it is
        free from now on."""
        actor = worker.use
        if isinstance(actor, Actor) and actor.constructed is not None and not actor.constructed.done():
            actor.placed_again = True
            self._ledger.release(actor.allocation)
            self._leases.kick()
            self._on_free()

    def stop(self, message: StopActor) -> None:
        """Ends an actor: at once, or when the calls it has are done (and `WorkerPool.grace_s` at most)."""
        actor = self._actors.get(message.actor_id)
        if actor is None:
            return
        actor.stopping = True
        worker = actor.worker
        if worker is None:
            return
        reason = (
            "it was killed by `ray.kill`" if not message.graceful else "nobody refers to the actor any more"
        )
        if not message.graceful or actor.started is None:
            self._pool.stop_worker(worker, reason, message.intended)
            return
        worker.channel.send(ExitActor())
        worker.stop_intended, worker.stop_reason = True, reason
        asyncio.get_running_loop().call_later(
            self._pool.grace_s, self._pool.stop_worker, worker, reason, message.intended
        )

    def worker_ended(self, actor: Actor, reason: str, intended: bool) -> None:
        """Its process is gone."""
        if actor.constructed is not None and not actor.constructed.done():
            if actor.placed_again:
                actor.constructed.set_exception(CallError(ErrorKind.BUSY, "arguments had to be made again"))
                return
            if intended and not actor.stopping:
                actor.constructed.set_exception(_Exited(reason))
                return
            actor.constructed.set_exception(
                CallError(ErrorKind.UNAVAILABLE, f"its worker process has died in its constructor. {reason}")
            )
        else:
            self._forget(actor)

    def owners_dead(self, worker_ids: set[bytes]) -> None:
        """The control store ends actors of dead owners itself; those still being made stop here at once."""
        for actor in list(self._actors.values()):
            dead = actor.spec.owner.worker_id in worker_ids and not actor.spec.detached
            if dead and actor.started is None and actor.worker is not None:
                self._pool.stop_worker(actor.worker, "the owner of the actor died", True)

    def bundle_returned(self, allocations: list[Allocation]) -> list[Worker]:
        """Their placement group is gone: the actors inside die, for good. Returns their workers."""
        voided = set(map(id, allocations))
        workers = [
            actor.worker
            for actor in self._actors.values()
            if id(actor.allocation) in voided and actor.worker is not None
        ]
        for worker in workers:
            self._pool.stop_worker(worker, "its placement group was removed", True)
        return workers

    async def _construct(self, actor: Actor) -> ActorStarted:
        spec = actor.spec
        creation = _creation(spec)
        await self._jobs.load(spec.job_id)
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[Worker | CallError] = loop.create_future()
        key = (spec.job_id, spec.runtime_env)
        self._pool.acquire(key, WorkerEvent.BECOME_ACTOR, taken.set_result)
        definition = await self._definitions.get(creation.key)
        worker = await taken
        if isinstance(worker, CallError):
            raise worker
        actor.worker = worker
        worker.use = actor
        worker.actor_id = spec.actor_id
        if actor.stopping:
            raise CallError(ErrorKind.UNAVAILABLE, "the actor was killed before it started")
        push = msgspec.structs.replace(creation, caller=spec.owner)
        assert push.actor is not None
        lease = BindLease(
            self._leases.new_lease_id(),
            {name: spec.held[name] for name in actor.allocation.resources if name in spec.held},
            actor.allocation.gpu_ids,
            spec.placement.placement_group_id,
            other_ids=actor.allocation.other_ids,
        )
        setup = msgspec.structs.replace(push.actor, lease=lease, restarts=actor.restarts)
        actor.task_id = push.task_id
        actor.constructed = loop.create_future()
        if definition is not None:
            worker.channel.send(DefineFunction(push.key, definition, ""))
        worker.channel.send(msgspec.structs.replace(push, actor=setup))
        process: Process = worker.channel.context
        try:
            done = await actor.constructed  # no deadline: a constructor may take as long as it likes
        except _Exited as exited:
            self._forget(actor)
            return ActorStarted(process.address, worker.pid, exited=str(exited))
        if done.failed:
            error = msgspec.msgpack.encode(done.values[0]) if done.values else b""
            self._forget(actor)
            self._pool.stop_worker(worker, worker.stop_reason, True)
            return ActorStarted(process.address, worker.pid, error)
        self._ledger.shrink(actor.allocation, spec.held)
        actor.started = ActorStarted(process.address, worker.pid)
        self._leases.kick()
        return actor.started

    def _forget(self, actor: Actor) -> None:
        if self._actors.get(actor.spec.actor_id) is actor:
            del self._actors[actor.spec.actor_id]
        self._ledger.release(actor.allocation)
        if actor.worker is not None and actor.worker.use is actor:
            actor.worker.use = None
        self._leases.kick()
        self._on_free()


def _creation(spec: ActorSpec) -> Push:
    try:
        push = codec.decode(spec.creation)
    except msgspec.MsgspecError as error:
        raise CallError(
            ErrorKind.INVALID, f"the creation message of the actor cannot be decoded: {error}"
        ) from error
    if not isinstance(push, Push) or push.actor is None:
        raise CallError(ErrorKind.INVALID, "the creation message of the actor is not a constructor call")
    return push
