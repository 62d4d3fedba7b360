"""Actors as their users see them: registration, names, watching, killing; and what ends them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from runtime._control.actor_scheduler import ActorScheduler, worker_died
from runtime._control.actor_table import Actor, ActorTable
from runtime._control.cluster import Cluster, Node
from runtime._control.context import Context, Handlers
from runtime._control.telling import PacedNews
from runtime._core.actors import ActorEvent, ActorState
from runtime._core.labels import check_conditions
from runtime._core.placement import is_group_resource
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import Demand, ErrorKind, Message, Ok
from runtime._wire.messages.control import (
    ActorInfo,
    Actors,
    ActorSpec,
    GetNamedActor,
    KillActor,
    ListActors,
    RegisterActor,
    RegisterNode,
    StopActor,
    WatchActor,
    WorkerFailed,
    WorkersDead,
)

log = logging.getLogger(__name__)
REFERENCES_REMOVED = "all references to the actor were removed"
ARGUMENT_FAILED = "an argument of its constructor is an error"
RECENT_S = 60.0
"""Longer than any agent may be away."""
_GROUP_REMOVED = "its placement group was removed"
_BEFORE_ITS_START = (ActorState.DEPENDENCIES_UNREADY, ActorState.PENDING_CREATION)


class ActorService:
    """Owns the actors; `ActorScheduler` finds them nodes.

    Args:
        is_group_removed: whether a placement group, by its id, is gone.
    """

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        table: ActorTable,
        scheduler: ActorScheduler,
        is_group_removed: Callable[[bytes], bool],
    ) -> None:
        self._is_group_removed = is_group_removed
        self._context = context
        self._cluster = cluster
        self._table = table
        self._scheduler = scheduler
        self._dead_workers: list[bytes] = []
        self._deaths = PacedNews(context, cluster, self._gather_dead)

    def handlers(self) -> Handlers:
        return {
            RegisterActor: self.register,
            WatchActor: self.watch,
            GetNamedActor: self.get_named,
            ListActors: self.list_actors,
            KillActor: self.kill,
            WorkerFailed: self.worker_failed,
        }

    def load(self) -> None:
        """Takes the actors of an earlier life; their nodes have a while to come back with them."""
        for actor in self._table.load():
            if self._cluster.is_living(actor.node_id):
                continue
            if actor.state is ActorState.ALIVE:
                self._scheduler.lost(actor, f"its node has died: {actor.node_id.hex()}", False)
            elif actor.state is not ActorState.DEPENDENCIES_UNREADY:
                self._scheduler.enqueue(actor)

    # ---------------------------------------------------------------- messages

    def register(self, _: Channel, message: RegisterActor) -> Awaitable[ActorInfo]:
        """Enters the actor at once, so that whatever comes behind the request finds it."""
        spec = message.spec
        actor = self._table.get(spec.actor_id)
        if actor is None:
            holder = self._table.named(spec.namespace, spec.name) if spec.name else None
            if holder is not None and message.get_if_exists:
                actor = holder
            else:
                self.check(spec)
                actor = Actor(spec)
                self._table.add(actor)
                if self._is_group_removed(spec.placement.placement_group_id):
                    self._scheduler.finish(actor, ActorEvent.UNPLACEABLE, _GROUP_REMOVED)
                elif spec.creation:
                    self._scheduler.enqueue(actor)
        elif spec.creation and actor.state is ActorState.DEPENDENCIES_UNREADY:
            self._table.complete(actor, spec)
            self._scheduler.arguments_ready(actor)
        return self._info_when_durable(actor)

    def check(self, spec: ActorSpec) -> None:
        """Refuses a new actor whose name is taken, or that nothing can place.

        Raises:
            CallError: EXISTS or INVALID.
        """
        if spec.name and self._table.named(spec.namespace, spec.name) is not None:
            raise CallError(
                ErrorKind.EXISTS,
                f"The name {spec.name} (namespace={spec.namespace}) is already taken by another actor. "
                "Please use a different name, or take that actor with get_actor() or get_if_exists.",
            )
        try:
            strategy = spec.placement.strategy
            for selector in (strategy.labels, strategy.preferred, *strategy.fallbacks):
                check_conditions(selector)
        except ValueError as error:
            raise CallError(ErrorKind.INVALID, str(error)) from None

    async def _info_when_durable(self, actor: Actor) -> ActorInfo:
        await self._context.journal.durable()
        return actor.info()

    def watch(self, _: Channel, message: WatchActor) -> ActorInfo | Awaitable[ActorInfo]:
        actor = self._table.get(message.actor_id)
        if actor is None:
            raise CallError(ErrorKind.NOT_FOUND, f"there is no actor {message.actor_id.hex()}")
        if actor.version > message.after_version:
            return actor.info()
        return self._wait(actor, message)

    async def _wait(self, actor: Actor, message: WatchActor) -> ActorInfo:
        deadline = self._context.now() + message.timeout_s
        while actor.version <= message.after_version:
            left = deadline - self._context.now()
            if left <= 0 or not await actor.waiters.wait(left):
                break
        return actor.info()

    def get_named(self, _: Channel, message: GetNamedActor) -> ActorInfo:
        actor = self._table.named(message.namespace, message.name)
        if actor is None:
            raise CallError(
                ErrorKind.NOT_FOUND,
                f"there is no actor named {message.name!r} in namespace {message.namespace!r}; "
                "check the name and the namespace, and that the actor was not killed",
            )
        return actor.info()

    def list_actors(self, _: Channel, message: ListActors) -> Actors:
        return Actors(
            [
                actor.info()
                for actor in self._table.all()
                if (not message.namespace or actor.spec.namespace == message.namespace)
                and (not message.named_only or (actor.spec.name and not actor.is_dead))
            ]
        )

    def kill(self, _: Channel, message: KillActor) -> Ok | Awaitable[Ok]:
        """Ends the actor at once, so that whatever comes behind the request finds it dead."""
        actor = self._table.get(message.actor_id)
        if actor is None:
            return Ok()
        if actor.is_dead:
            if message.no_restart:
                self._table.release_name(actor)
            return self._ok_when_durable()
        if message.graceful and actor.state is ActorState.ALIVE:
            actor.released = True
            self._table.save_intent(actor)
            self._stop(actor, StopActor(actor.actor_id, graceful=True))
        elif message.graceful:
            self.end(actor, ActorEvent.ABANDONED, REFERENCES_REMOVED)
        elif message.cause and actor.state is ActorState.DEPENDENCIES_UNREADY:
            self._scheduler.finish(actor, ActorEvent.CONSTRUCTOR_RAISED, ARGUMENT_FAILED, message.cause)
        elif message.no_restart:
            self.end(actor, ActorEvent.KILLED, "it was killed by `ray.kill`")
        elif actor.node_id:
            self._stop(actor, StopActor(actor.actor_id, graceful=False, intended=False))
        return self._ok_when_durable()

    async def _ok_when_durable(self) -> Ok:
        await self._context.journal.durable()
        return Ok()

    def worker_failed(self, _: Channel, message: WorkerFailed) -> None:
        """A worker process ended: the actor in it, and the actors it owned."""
        self._dead_workers.append(message.worker_id)
        self._deaths.has_come()
        actor = self._table.get(message.actor_id) if message.actor_id else None
        # A start in flight is answered by its own call.
        if (
            actor is not None
            and actor.address is not None
            and actor.address.worker_id == message.worker_id
            and actor.state is ActorState.ALIVE
        ):
            reason = worker_died(message.reason, message.intended)
            self._scheduler.lost(actor, REFERENCES_REMOVED if actor.released else reason, message.intended)
        self._abandon(
            self._table.owned_by(message.worker_id),
            f"its owner has died: its process ended ({message.reason})",
        )

    # ---------------------------------------------------------------- news from elsewhere

    def node_registered(self, node: Node, message: RegisterNode) -> None:
        """Brings our records and what really runs on the node into agreement."""
        running = dict(message.actors)
        # Those that ended while the node was away may be in their constructors there.
        unwanted = set(self._table.died_on(node.node_id, self._context.wall_time() - RECENT_S))
        for actor_id, address in running.items():
            actor = self._table.get(actor_id)
            if actor is None or actor.is_dead or (actor.node_id and actor.node_id != node.node_id):
                unwanted.add(actor_id)
            elif actor.state is not ActorState.ALIVE:
                self._scheduler.adopt(actor, node, address)
            elif actor.released and node.channel is not None:  # told perhaps while it was away
                node.channel.send(StopActor(actor_id, graceful=True))
        for actor_id in unwanted:
            if node.channel is not None:
                node.channel.send(StopActor(actor_id, graceful=False))
        for actor in self._table.on_node(node.node_id):
            if actor.actor_id in running or actor.starting:
                continue
            if actor.state is ActorState.ALIVE:
                self._scheduler.lost(
                    actor, "its worker process has died while the control store was away", False
                )
            else:
                self._scheduler.start_again(actor, node)

    def node_dead(self, node: Node) -> None:
        """Everything that ran on a node or was owned from there ends."""
        self._abandon(self._table.owned_from(node.node_id), "its owner has died: its node died")
        for actor in self._table.on_node(node.node_id):
            reason = f"its node has died: {node.node_id.hex()}, {node.info.death_reason}"
            if actor.state is ActorState.ALIVE:
                self._scheduler.lost(actor, reason, False)
            elif not actor.starting:
                self._scheduler.enqueue(actor)

    def job_finished(self, _job_id: bytes, driver_id: bytes) -> None:
        """The actors that a driver owns end with its job, except detached ones, which keep what they own. Those that
        tasks and other actors own end when their owners do, as always.
        """
        self._abandon(self._table.owned_by(driver_id), "its job finished")

    def group_removed(self, pg_id: bytes, reason: str = _GROUP_REMOVED) -> None:
        """The actors of a placement group end with it."""
        for actor in self._table.in_group(pg_id):
            never_ran = not actor.node_id and actor.state in _BEFORE_ITS_START
            event = ActorEvent.UNPLACEABLE if never_ran else ActorEvent.ABANDONED
            self.end(actor, event, reason)

    def demands(self) -> list[Demand]:
        """The actors that wait for a node, equal ones summed; those in placement groups left out."""
        return [
            Demand(line.first.spec.placement, len(line), line.infeasible)
            for line in self._scheduler.waiting()
            if not any(is_group_resource(name) for name in line.first.request.resources)
        ]

    def end(self, actor: Actor, event: ActorEvent, reason: str) -> None:
        """Ends an actor for good, its process too."""
        node_id = actor.node_id
        self._scheduler.finish(actor, event, reason)
        node = self._cluster.get(node_id)
        if node is not None and node.channel is not None:
            node.channel.send(StopActor(actor.actor_id, graceful=False))

    def _abandon(self, actors: list[Actor], reason: str) -> None:
        for actor in actors:
            if actor.is_dead:
                self._table.release_name(actor)
            else:
                self.end(actor, ActorEvent.ABANDONED, reason)

    def _stop(self, actor: Actor, message: Message) -> None:
        node = self._cluster.get(actor.node_id)
        if node is not None and node.channel is not None:
            node.channel.send(message)

    def _gather_dead(self) -> tuple[WorkersDead, None]:
        worker_ids, self._dead_workers = self._dead_workers, []
        return WorkersDead(worker_ids), None
