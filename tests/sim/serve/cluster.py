"""A cluster of chance under the controller of serving: replicas fail to start, die and fail their checks; nodes drain;
the controller's process ends between any two effects, and its next life knows what the control store has."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from runtime._controllers.controller import ActorDied, Call, Done, Effect, Event, Failed, Key
from runtime.serve._core.effects import Adopt, CreateDetached, Put, RemoveGroup
from runtime.serve._core.published import Targets, load_targets
from runtime.serve._core.specs import ReplicaReady
from tests.sim.controllers.world import Chances, SimActor, SimEngine
from tests.sim.events import Events

NODES = ("head", "n1", "n2")


class Crashed(Exception):
    """The controller's process has ended."""


@dataclass
class ServeChances(Chances):
    """`start_fails`, `update_fails`, `check_fails`: of one call. `crashes`: of the controller, at one effect."""

    start_fails: float = 0.0
    update_fails: float = 0.0
    check_fails: float = 0.0
    crashes: float = 0.0


class ServeSim(SimEngine):
    """Actors are detached: they outlive the controller. `store` is the control store."""

    def __init__(self, world: Events, chances: ServeChances) -> None:
        super().__init__(world, chances)
        self.odds = chances
        self.store: dict[bytes, bytes] = {}
        self.targets: dict[bytes, Targets] = {}
        self.broken: set[str] = set()  # replicas that may be taken out though nobody replaces them yet
        self.groups: set[str] = set()
        self.crashes = 0
        self.deaths: Counter[str] = Counter()
        self.failed_checks: Counter[str] = Counter()
        self.check_removal: Any = None
        self._names: dict[str, SimActor] = {}
        self._nodes: dict[Key, str] = {}

    def carry_out(self, effect: Effect) -> None:
        if self._happens(self.odds.crashes):
            self.crashes += 1
            raise Crashed
        match effect:
            case Put(key, value):
                self._put(key, value)
            case Adopt(key, name):
                actor = self._names.get(name)
                if actor is None or self.actors.get(key) is not actor:
                    self._due.append(ActorDied(key, "there is none"))
                elif actor.is_up:
                    self._after(lambda: self._again(actor))
            case CreateDetached(key, name, node=node):
                if name in self._names and self.actors.get(key) is self._names[name]:
                    self._due.append(ActorDied(key, "the name is taken"))
                    return
                self._nodes[key] = node or self.world.rng.choice(NODES)
                self._create(key)
                self.actors[key].node = self._nodes[key]
                self._names[name] = self.actors[key]
                if effect.bundles:
                    self.groups.add(name)
            case RemoveGroup(name):
                self.groups.discard(name)
            case Call(_, actor, "drain"):
                self._check_drained(actor)
                super().carry_out(effect)
            case _:
                super().carry_out(effect)

    def close(self) -> None:
        """The process of the controller is gone; what it has begun goes on without it."""
        self._tasks.clear()
        self._due.clear()
        self._interrupted = False
        for actor in self.actors.values():
            actor.calls.clear()
            actor.queued.clear()

    def kill(self, rng: random.Random) -> None:
        """A process ends, whoever's it is."""
        if self.actors:
            actor = self.actors[rng.choice(sorted(self.actors, key=str))]
            self._die(actor, "somebody killed it")

    def _again(self, actor: SimActor) -> None:
        if self.actors.get(actor.key) is actor:
            from runtime._controllers.controller import ActorUp

            self._due.append(ActorUp(actor.key, actor.node, actor.restarts))

    def _die(self, actor: SimActor, reason: str) -> None:
        if self.actors.get(actor.key) is actor:
            self._names = {name: each for name, each in self._names.items() if each is not actor}
        super()._die(actor, reason)

    def _put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.store.pop(key, None)
            self.targets.pop(key, None)
            return
        self.store[key] = value
        if key.startswith(b"targets\0"):
            before, now = self.targets.get(key), load_targets(value)
            if before is not None and now.epoch <= before.epoch:
                self.world.fail(f"{key!r}: version {now.epoch} follows {before.epoch}")
            self.targets[key] = now
            if before is not None and self.check_removal is not None:
                self.check_removal(key, before, now)

    def _check_drained(self, actor: Key) -> None:
        replica = str(actor[1])  # type: ignore[index]
        for targets in self.targets.values():
            if any(target.replica == replica for target in targets.replicas):
                self.world.fail(f"{replica} is drained while callers are told of it")

    def _outcome(self, key: Key, args: Any, fetch: bool) -> Event:
        kind, name, *_ = key  # type: ignore[misc]
        odds = {
            "start": self.odds.start_fails,
            "update": self.odds.update_fails,
            "check": self.odds.check_fails,
        }
        if self._happens(odds.get(kind, 0.0)):
            if kind == "check":
                self.failed_checks[name] += 1
            if kind == "update" and self.world.rng.random() < 0.5:
                return Done(key, "chance: the options before go on")
            if kind == "update" or self.failed_checks[name] >= 3:
                self.broken.add(name)
            return Failed(key, ValueError("chance"))
        if kind == "check":
            self.failed_checks[name] = 0
        if kind == "start":
            node = self._nodes["replica", name]
            return Done(key, ReplicaReady(node, "", "host", 1, 1, "host", "w", "log"))
        return Done(key, {} if kind == "ingress" else "" if kind == "update" else None)
