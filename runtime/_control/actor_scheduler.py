"""Finding nodes for actors and starting them there, many at once, again after their process ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from runtime._control.actor_queue import ActorQueue, Line
from runtime._control.actor_table import Actor, ActorTable, ShapeKey
from runtime._control.cluster import Charge, Cluster, Node
from runtime._control.context import Context, Signal
from runtime._core.actors import SHORT_LIFE_S, ActorEvent, ActorState, after_loss, restart_delay_s
from runtime._core.nodes import NodeState
from runtime._core.placement import Fit, NodeView, choose_node
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind, WorkerAddress
from runtime._wire.messages.control import ActorStarted, StartActor, StopActor

log = logging.getLogger(__name__)

BUSY_RETRY_S = 0.05
_UNWANTED = (ActorEvent.KILLED, ActorEvent.ABANDONED)
_ORDINARY_ENDS = (ActorEvent.EXITED, *_UNWANTED)


def worker_died(detail: str, intended: bool) -> str:
    """The reason of an actor's death, in the words that users look for."""
    kind = "INTENDED_USER_EXIT" if intended else "SYSTEM_ERROR"
    return f"its worker process has died. Worker exit type: {kind} Worker exit detail: {detail}"


class ActorScheduler:
    """Moves actors between waiting, starting, alive and dead. `schedule` runs whenever the view changes."""

    def __init__(
        self, context: Context, cluster: Cluster, table: ActorTable, view_changed: Signal, demand: Signal
    ) -> None:
        self.on_dead: list[Callable[[Actor], None]] = []
        """Called with each actor that is dead for good."""
        self._context = context
        self._cluster = cluster
        self._table = table
        self._view_changed = view_changed
        self._demand = demand
        self._waiting = ActorQueue()
        self._spread_after: dict[ShapeKey, bytes] = {}

    def waiting(self) -> list[Line]:
        """The actors that no node has room for."""
        return self._waiting.lines()

    def enqueue(self, actor: Actor) -> None:
        """The actor needs a node."""
        actor.node_id = b""
        self._waiting.add(actor)
        self._view_changed.set()

    def arguments_ready(self, actor: Actor) -> None:
        """Its constructor can be called: it needs a node now."""
        actor.machine.step(ActorEvent.ARGUMENTS_READY, self._context.now())
        self._table.changed(actor)
        self.enqueue(actor)

    def schedule(self) -> None:
        """Starts every waiting actor for which there is room now."""
        if self._waiting:
            views = self._cluster.views()
            for line in self._waiting.in_turn():
                self._serve(line, views)
        if self._waiting.changed:
            self._waiting.changed = False
            self._demand.set()

    def _serve(self, line: Line, views: list[NodeView]) -> None:
        """Starts the first of a line; or learns that there is no room for any of it."""
        actor = line.first
        choice = choose_node(
            actor.request,
            views,
            local=actor.spec.owner.node_id,
            rng=self._context.rng,
            spread_after=self._spread_after.get(actor.shape, b""),
        )
        if choice.fit is Fit.AVAILABLE:
            self._begin(actor, choice.node_id)
        elif choice.fit is Fit.IMPOSSIBLE:
            reason = (
                f"it must run on node {actor.request.node_id.hex()}, which is gone or too small; "
                "use soft=True to let it run elsewhere"
            )
            for _, lost in list(line.actors.values()):
                self.finish(lost, ActorEvent.UNPLACEABLE, reason)
        elif line.infeasible != (choice.fit is Fit.INFEASIBLE):
            line.infeasible = choice.fit is Fit.INFEASIBLE
            self._waiting.changed = True

    def adopt(self, actor: Actor, node: Node, address: WorkerAddress) -> None:
        """The actor's start succeeded, though its answer never arrived."""
        self._waiting.discard(actor)
        actor.node_id = node.node_id
        self._alive(actor, address, actor.pid)

    def start_again(self, actor: Actor, node: Node) -> None:
        """Repeats a start whose answer was lost, on the node that may be busy with it."""
        charge = node.charge(actor.spec.placement.resources, self._context.now())
        actor.starting += 1
        self._context.tasks.spawn(self._start(actor, node, charge), f"start of actor {actor.actor_id.hex()}")

    def lost(self, actor: Actor, reason: str, intended: bool) -> None:
        """The actor's process ended: start it again while its budget lasts."""
        now = self._context.now()
        event = after_loss(actor.restarts, actor.spec.max_restarts, intended or actor.released)
        if event is not ActorEvent.LOST:
            self.finish(actor, event, reason)
            return
        lived_long = actor.state is ActorState.ALIVE and now - actor.started_s >= SHORT_LIFE_S
        actor.short_lives = 1 if lived_long else actor.short_lives + 1
        actor.machine.step(event, now)
        actor.restarts += 1
        actor.address = None
        actor.pid = 0
        actor.node_id = b""
        actor.death_reason = reason
        self._table.changed(actor)
        for listener in self._table.on_restart:
            listener(actor)
        log.info("restarting actor %s: %s", actor.actor_id.hex(), reason)
        delay_s = restart_delay_s(actor.short_lives)
        if delay_s:
            restarts = actor.restarts
            self._context.after(delay_s, lambda: self._enqueue_if_restarting(actor, restarts))
        else:
            self.enqueue(actor)

    def finish(self, actor: Actor, event: ActorEvent, reason: str, cause: bytes = b"") -> None:
        """The actor is dead for good."""
        self._waiting.discard(actor)
        spec = actor.spec
        is_wanted = event not in _UNWANTED and not actor.released
        actor.keeps_name = bool(spec.name) and not spec.detached and is_wanted
        is_running = actor.state is ActorState.ALIVE or actor.restarts > 0
        actor.never_started = event in _UNWANTED and not is_running
        actor.machine.step(event, self._context.now())
        actor.death_reason = reason
        actor.death_cause = cause
        actor.died_s = self._context.wall_time()
        actor.unplaceable = event is ActorEvent.UNPLACEABLE
        actor.address = None
        self._table.changed(actor)
        self._demand.set()
        for listener in self.on_dead:
            listener(actor)
        level = logging.DEBUG if event in _ORDINARY_ENDS else logging.INFO
        log.log(level, "actor %s is dead: %s", actor.actor_id.hex(), reason)

    # ---------------------------------------------------------------- starting

    def _begin(self, actor: Actor, node_id: bytes) -> None:
        node = self._cluster.get(node_id)
        assert node is not None
        self._waiting.discard(actor)
        actor.node_id = node_id
        if actor.request.kind == "SPREAD":
            self._spread_after[actor.shape] = node_id
        self._table.save_intent(actor)
        self.start_again(actor, node)

    async def _start(self, actor: Actor, node: Node, charge: Charge) -> None:
        try:
            await self._start_on(actor, node, charge)
        finally:
            actor.starting -= 1

    async def _start_on(self, actor: Actor, node: Node, charge: Charge) -> None:
        channel = node.channel
        try:
            if channel is None:
                raise CallError(ErrorKind.UNAVAILABLE, "the node is not connected")
            # A constructor may take any time; the wait ends with the agent's connection.
            started = await channel.call(StartActor(actor.spec, actor.restarts), timeout_s=None)
        except CallError as error:
            is_cut = channel is None or channel.closed
            self._start_failed(actor, node, charge, error, is_cut)
            return
        node.charge_answered(charge, {} if started.error else actor.spec.held)
        self._view_changed.set()
        if actor.is_dead or actor.node_id != node.node_id:
            if channel is not None:
                channel.send(StopActor(actor.actor_id, graceful=False))
        elif actor.state is not ActorState.ALIVE:  # it is when the node came back with it in the meantime
            self._started(actor, started)

    def _started(self, actor: Actor, started: ActorStarted) -> None:
        actor.pid = started.pid
        actor.host = started.address.host
        if started.exited:
            self.finish(actor, ActorEvent.EXITED, worker_died(started.exited, True))
        elif started.error:
            self.finish(
                actor, ActorEvent.CONSTRUCTOR_RAISED, "its constructor raised an exception", started.error
            )
        else:
            self._alive(actor, started.address, started.pid)

    def _alive(self, actor: Actor, address: WorkerAddress, pid: int) -> None:
        now = self._context.now()
        actor.machine.step(ActorEvent.STARTED, now)
        actor.address = address
        actor.pid = pid
        actor.started_s = now
        actor.host = address.host
        actor.death_reason = ""
        self._table.changed(actor)

    def _start_failed(self, actor: Actor, node: Node, charge: Charge, error: CallError, is_cut: bool) -> None:
        """Waits for room, for the node's return, or for another process, as the error has it."""
        if error.kind == ErrorKind.BUSY:
            node.refuse(charge)
            self._context.after(BUSY_RETRY_S, lambda: self._forgive(node, charge))
        else:
            node.charge_answered(charge, {})
            self._view_changed.set()
        if actor.is_dead or actor.state is ActorState.ALIVE or actor.node_id != node.node_id:
            return
        if error.kind == ErrorKind.BUSY:
            self.enqueue(actor)
        elif is_cut:
            if node.is_dead:
                self.enqueue(actor)
            elif node.channel is not None and node.state is NodeState.ALIVE:
                self.start_again(actor, node)  # it is back already
            # Otherwise its return or its death decides.
        elif error.kind == ErrorKind.RUNTIME_ENV:
            actor.no_environment = True
            self.finish(actor, ActorEvent.UNSTARTABLE, error.message)
        elif error.kind in (ErrorKind.SETUP_HOOK, ErrorKind.INVALID, ErrorKind.NOT_FOUND):
            self.finish(actor, ActorEvent.UNSTARTABLE, error.message)
        else:
            self.lost(actor, error.message, False)

    def _forgive(self, node: Node, charge: Charge) -> None:
        node.forgive(charge)
        self._view_changed.set()

    def _enqueue_if_restarting(self, actor: Actor, restarts: int) -> None:
        if actor.state is ActorState.RESTARTING and actor.restarts == restarts and not actor.node_id:
            self.enqueue(actor)
