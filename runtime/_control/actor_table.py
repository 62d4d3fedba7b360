"""The actors as records: their states, names, owners, and what of them is kept on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from runtime._control.journal import Journal
from runtime._control.waiters import Waiters
from runtime._core.actors import TRANSITIONS, ActorEvent, ActorState
from runtime._core.fsm import Machine
from runtime._wire.messages.base import ResourceRequest, WorkerAddress
from runtime._wire.messages.control import ActorInfo, ActorSpec

SPECS = "actor_specs"
STATES = "actor_states"
MAX_DEAD = 10_000

_encode = msgspec.msgpack.encode


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    """What changes during an actor's life; its spec is written once, apart."""

    state: str
    version: int
    restarts: int
    address: WorkerAddress | None
    pid: int
    node_id: bytes
    death_reason: str
    death_cause: bytes
    died_s: float = 0.0
    unplaceable: bool = False
    released: bool = False
    host: str = ""
    never_started: bool = False
    no_environment: bool = False
    keeps_name: bool = False


ShapeKey = tuple[Any, ...]
"""Equal for requests that placement treats alike."""


def shape_key(request: ResourceRequest) -> ShapeKey:
    """A hashable stand-in for a request."""
    strategy = request.strategy
    return (
        tuple(sorted(request.resources.items())),
        strategy.kind,
        strategy.node_id,
        strategy.soft,
        strategy.busy,
        *(
            tuple(sorted(selector.items()))
            for selector in (strategy.labels, strategy.preferred, *strategy.fallbacks)
        ),
    )


class Actor:
    """One actor. `node_id` is where it runs or is being started; empty while it waits for a node."""

    __slots__ = (
        "address",
        "death_cause",
        "death_reason",
        "died_s",
        "host",
        "keeps_name",
        "machine",
        "never_started",
        "no_environment",
        "node_id",
        "pid",
        "released",
        "request",
        "restarts",
        "shape",
        "short_lives",
        "spec",
        "started_s",
        "starting",
        "unplaceable",
        "version",
        "waiters",
    )

    def __init__(self, spec: ActorSpec) -> None:
        self.spec = spec
        state = ActorState.PENDING_CREATION if spec.creation else ActorState.DEPENDENCIES_UNREADY
        self.machine: Machine[ActorState, ActorEvent] = Machine(
            f"actor {spec.actor_id.hex()}", state, TRANSITIONS
        )
        self.request = spec.placement.strategy.request(spec.placement.resources)
        self.shape = shape_key(spec.placement)
        self.version = 0
        self.restarts = 0
        self.address: WorkerAddress | None = None
        self.pid = 0
        self.node_id = b""
        self.host = ""
        self.never_started = False
        self.death_reason = ""
        self.death_cause = b""
        self.unplaceable = False
        self.no_environment = False
        self.released = False  # its last handle is gone: once its process has ended, it is not made again
        self.keeps_name = (
            False  # dead, but its owner has handles, and has not killed it: nobody else gets its name
        )
        self.died_s = 0.0  # unix time
        self.starting = 0  # tasks that are busy with its start
        self.short_lives = 0
        self.started_s = 0.0
        self.waiters = Waiters()

    @property
    def actor_id(self) -> bytes:
        return self.spec.actor_id

    @property
    def state(self) -> ActorState:
        return self.machine.state

    @property
    def is_dead(self) -> bool:
        return self.machine.state is ActorState.DEAD

    def info(self) -> ActorInfo:
        """The actor as messages describe it."""
        return ActorInfo(
            actor_id=self.spec.actor_id,
            state=self.machine.state.value,
            version=self.version,
            address=self.address,
            restarts=self.restarts,
            spec=self.spec,
            death_reason=self.death_reason,
            death_cause=self.death_cause,
            pid=self.pid,
            node_id=self.node_id,
            unplaceable=self.unplaceable,
            host=self.host,
            never_started=self.never_started,
            no_environment=self.no_environment,
        )


class ActorTable:
    """All actors, dead ones up to a bound, with the ways to find them. `on_dead` is called for each that died,
    `on_restart` for each whose process ended and that will be restarted."""

    def __init__(self, journal: Journal) -> None:
        self.on_dead: list[Callable[[Actor], None]] = []
        self.on_restart: list[Callable[[Actor], None]] = []
        self._journal = journal
        self._actors: dict[bytes, Actor] = {}
        self._names: dict[tuple[str, str], bytes] = {}
        self._of_owner: dict[bytes, set[bytes]] = {}
        self._in_group: dict[bytes, set[bytes]] = {}
        self._dead: deque[bytes] = deque()

    def load(self) -> list[Actor]:
        """Takes the actors of an earlier life of this control store and returns the living."""
        storage = self._journal.storage
        states = dict(storage.scan(STATES))
        for actor_id, row in storage.scan(SPECS):
            spec = msgspec.msgpack.decode(row, type=ActorSpec)
            actor = Actor(spec)
            if (saved_row := states.get(actor_id)) is not None:
                saved = msgspec.msgpack.decode(saved_row, type=_Saved)
                actor.machine.state = ActorState(saved.state)
                actor.version, actor.restarts = saved.version, saved.restarts
                actor.address, actor.pid, actor.node_id = saved.address, saved.pid, saved.node_id
                actor.death_reason, actor.death_cause = saved.death_reason, saved.death_cause
                actor.died_s, actor.unplaceable = saved.died_s, saved.unplaceable
                actor.released, actor.no_environment = saved.released, saved.no_environment
                actor.host, actor.never_started = saved.host, saved.never_started
                actor.keeps_name = saved.keeps_name
            self._actors[actor_id] = actor
            if actor.is_dead:
                self._dead.append(actor_id)
            if not actor.is_dead or actor.keeps_name:
                self._index(actor)
        return self.living()

    def add(self, actor: Actor) -> None:
        """Adds a new actor and writes it down."""
        self._actors[actor.actor_id] = actor
        self._index(actor)
        self._journal.put(SPECS, actor.actor_id, _encode(actor.spec))
        self._save(actor)

    def complete(self, actor: Actor, spec: ActorSpec) -> None:
        """The rest of its spec has come; the caller saves its new state."""
        actor.spec = spec
        self._journal.put(SPECS, actor.actor_id, _encode(spec))

    def get(self, actor_id: bytes) -> Actor | None:
        return self._actors.get(actor_id)

    def named(self, namespace: str, name: str) -> Actor | None:
        """The actor of that name, which may be dead (see `Actor.keeps_name`)."""
        actor_id = self._names.get((namespace, name))
        return None if actor_id is None else self._actors[actor_id]

    def all(self) -> Iterable[Actor]:
        return self._actors.values()

    def living(self) -> list[Actor]:
        return [actor for actor in self._actors.values() if not actor.is_dead]

    def on_node(self, node_id: bytes) -> list[Actor]:
        """The living actors that run on the node or are being started there."""
        return [actor for actor in self.living() if actor.node_id == node_id]

    def died_on(self, node_id: bytes, since_s: float) -> list[bytes]:
        """The actors that ended on the node since the unix time `since_s`, as ids."""
        dead = (self._actors[actor_id] for actor_id in self._dead)
        return [actor.actor_id for actor in dead if actor.node_id == node_id and actor.died_s >= since_s]

    def owned_by(self, worker_id: bytes) -> list[Actor]:
        """The living actors that end with this owner, and dead ones that keep their names until then."""
        return [self._actors[actor_id] for actor_id in self._of_owner.get(worker_id, ())]

    def in_group(self, pg_id: bytes) -> list[Actor]:
        """The living actors that end with this placement group."""
        actors = (self._actors[actor_id] for actor_id in self._in_group.get(pg_id, ()))
        return [actor for actor in actors if not actor.is_dead]

    def owned_from(self, node_id: bytes) -> list[Actor]:
        """Like `owned_by`, of all owners on this node."""
        return [
            actor
            for actor in self._actors.values()
            if not actor.spec.detached
            and actor.spec.owner.node_id == node_id
            and (not actor.is_dead or actor.keeps_name)
        ]

    def changed(self, actor: Actor) -> None:
        """Writes an actor's new state down and wakes those who watch it."""
        actor.version += 1
        if actor.is_dead:
            if not actor.keeps_name:
                self._unindex(actor)
            self._dead.append(actor.actor_id)
            for listener in self.on_dead:
                listener(actor)
        self._save(actor)
        actor.waiters.wake()
        while len(self._dead) > MAX_DEAD:
            oldest = self._dead.popleft()
            self._unindex(self._actors.pop(oldest))
            self._journal.delete(SPECS, oldest)
            self._journal.delete(STATES, oldest)

    def release_name(self, actor: Actor) -> None:
        """A dead actor does not keep its name any more."""
        if actor.keeps_name:
            actor.keeps_name = False
            self._unindex(actor)
            self._save(actor)

    def save_intent(self, actor: Actor) -> None:
        """Writes down what is to become of an actor (where it is about to be started, that it is released), so
        that a restarted control store goes on from there.
        """
        self._save(actor)

    def _index(self, actor: Actor) -> None:
        spec = actor.spec
        if spec.name:
            self._names[spec.namespace, spec.name] = spec.actor_id
        if not spec.detached:
            self._of_owner.setdefault(spec.owner.worker_id, set()).add(spec.actor_id)
        if spec.placement.placement_group_id:
            self._in_group.setdefault(spec.placement.placement_group_id, set()).add(spec.actor_id)

    def _unindex(self, actor: Actor) -> None:
        spec = actor.spec
        if self._names.get((spec.namespace, spec.name)) == spec.actor_id:
            del self._names[spec.namespace, spec.name]
        _discard(self._of_owner, spec.owner.worker_id, spec.actor_id)
        _discard(self._in_group, spec.placement.placement_group_id, spec.actor_id)

    def _save(self, actor: Actor) -> None:
        saved = _Saved(
            actor.state.value,
            actor.version,
            actor.restarts,
            actor.address,
            actor.pid,
            actor.node_id,
            actor.death_reason,
            actor.death_cause,
            actor.died_s,
            actor.unplaceable,
            actor.released,
            actor.host,
            actor.never_started,
            actor.no_environment,
            actor.keeps_name,
        )
        self._journal.put(STATES, actor.actor_id, _encode(saved))


def _discard(index: dict[bytes, set[bytes]], key: bytes, actor_id: bytes) -> None:
    """Takes an actor out of an index, and the key with its last one."""
    found = index.get(key)
    if found is not None:
        found.discard(actor_id)
        if not found:
            del index[key]
