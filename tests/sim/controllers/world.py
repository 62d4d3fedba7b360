"""A cluster of chance under the real loop of a controller: calls take a while and fail, actors die, time is virtual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime._controllers.controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Call,
    Cancel,
    CreateActor,
    CreateGang,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Item,
    Key,
    Kill,
    Perform,
    Restart,
    ResultOf,
    Store,
    Submit,
    Take,
    Watch,
)
from runtime.exceptions import ActorDiedError
from tests.sim.events import Events


@dataclass
class Chances:
    """How likely things go wrong. `immortal_after_s`: from then on nothing does, so that every run can end."""

    call_fails: float = 0.0
    actor_dies: float = 0.0
    actor_restarts: float = 0.0
    immortal_after_s: float = 60.0


@dataclass
class SimActor:
    """One actor. `life`: grows when its process ends, so that what was begun before is known to be gone."""

    key: Key
    is_up: bool = False
    life: int = 0
    restarts: int = 0
    calls: dict[Key, Call] = field(default_factory=dict)
    queued: list[Call] = field(default_factory=list)
    gang: list[SimActor] = field(default_factory=list)
    node: str = "node"


@dataclass
class SimStream:
    """A function whose call yields so many items."""

    items: int


@dataclass
class _Running:
    left: int
    given: int = 0
    wanted: int = 0
    is_yielding: bool = False


class SimEngine:
    """See `runtime._controllers.loop.Engine`."""

    def __init__(self, world: Events, chances: Chances) -> None:
        self.world = world
        self.chances = chances
        self.actors: dict[Key, SimActor] = {}
        self.results: dict[Key, Any] = {}
        self.closed = False
        self.peak = 0
        self.effects = 0
        self._tasks: set[Key] = set()
        self._streams: dict[Key, _Running] = {}
        self._due: list[Event] = []
        self._begun_s = world.now
        self._interrupted = False

    # ------------------------------------------------------------ the engine

    def now(self) -> float:
        return self.world.now

    def take(self, timeout_s: float | None) -> Sequence[Event]:
        until = float("inf") if timeout_s is None else self.world.now + timeout_s
        while not self._due and not self._interrupted:
            if not self.world.advance(until):
                break
        self._interrupted = False
        due, self._due = self._due, []
        for event in due:
            self.world.note("event", event)
        return due

    def resolve(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(self.resolve(each) for each in value)
        return self.results[value.key] if isinstance(value, ResultOf) else value

    def interrupt(self) -> None:
        self._interrupted = True

    def close(self) -> None:
        self.closed = True

    def carry_out(self, effect: Effect) -> None:
        self.effects += 1
        self.world.note("effect", effect)
        match effect:
            case CreateActor(key):
                self._create(key)
            case CreateGang(actors):
                for created in actors:
                    self._create(created.key)
                for created in actors:
                    self.actors[created.key].gang = [self.actors[other.key] for other in actors]
            case Kill(key):
                actor = self.actors.get(key)
                if actor is not None:
                    self._after(lambda: self._die(actor, "it was killed"))
            case Restart(key):
                actor = self.actors.get(key)
                if actor is not None:
                    self._after(lambda: self._restart(actor))
            case Call():
                self._call(effect)
            case Watch():
                pass  # a simulation tells what it likes
            case Submit():
                self._submit(effect)
            case Take(key, items):
                self._take(key, items)
            case Cancel(key):
                if key in self._tasks:
                    self._after(lambda: self._finish(key, Failed(key, RuntimeError("cancelled"))))
            case Perform(key, function, args):
                self._begin(key)
                resolved = self.resolve(tuple(args))
                self._after(lambda: self._finish(key, _performed(key, function, resolved)))
            case Store(key, value):
                self.results[key] = value
            case Forget(key):
                self.results.pop(key, None)
            case _:
                self.world.fail(f"unknown effect {effect!r}")

    # ------------------------------------------------------------ actors

    def _create(self, key: Key) -> None:
        if key in self.actors:
            self.world.fail(f"actor {key!r} exists")
        actor = self.actors[key] = SimActor(key)
        self.peak = max(self.peak, len(self.actors))
        self._after(lambda: self._up(actor))
        self._doom(actor)

    def _up(self, actor: SimActor) -> None:
        if self.actors.get(actor.key) is not actor or actor.is_up:
            return
        actor.is_up = True
        self._due.append(ActorUp(actor.key, actor.node, actor.restarts))
        queued, actor.queued = actor.queued, []
        for call in queued:
            self._run(actor, call)

    def _doom(self, actor: SimActor) -> None:
        """Perhaps its process ends some time."""
        life = actor.life
        if self._happens(self.chances.actor_dies):
            delay_s = self.world.rng.random() * 5

            def die() -> None:
                if actor.life == life:
                    self._die(actor, "its process ended")

            self.world.at(delay_s, die)
        elif self._happens(self.chances.actor_restarts):

            def restart() -> None:
                if actor.life == life:
                    self._restart(actor)

            self.world.at(self.world.rng.random() * 5, restart)

    def _restart(self, actor: SimActor) -> None:
        """Its process ends, and another begins."""
        if self.actors.get(actor.key) is not actor:
            return
        self._lose(actor)
        actor.restarts += 1
        self._due.append(ActorLost(actor.key, "its process ended"))
        self._after(lambda: self._up(actor))
        self._doom(actor)

    def _lose(self, actor: SimActor) -> None:
        actor.life += 1
        actor.is_up = False
        calls, actor.calls = actor.calls, {}
        for key in calls:
            self._finish(key, Failed(key, ActorDiedError("its process is gone")))

    def _die(self, actor: SimActor, reason: str) -> None:
        if self.actors.get(actor.key) is not actor:
            return
        actor.queued.clear()
        if self.world.rng.random() < 0.5:  # both orders happen
            self._lose(actor)
            self._due.append(ActorDied(actor.key, reason))
        else:
            self._due.append(ActorDied(actor.key, reason))
            self._lose(actor)
        del self.actors[actor.key]
        for other in actor.gang:
            self._after(lambda other=other: self._die(other, f"{actor.key!r} of its gang has died"))

    def _call(self, call: Call) -> None:
        self._begin(call.key)
        actor = self.actors.get(call.actor)
        if actor is None:
            self._after(lambda: self._finish(call.key, Failed(call.key, ActorDiedError("it is dead"))))
            return
        actor.calls[call.key] = call
        if actor.is_up:
            self._run(actor, call)
        else:
            actor.queued.append(call)

    def _run(self, actor: SimActor, call: Call) -> None:
        life = actor.life

        def done() -> None:
            if actor.life != life or call.key not in actor.calls:
                return
            del actor.calls[call.key]
            self._finish(call.key, self._outcome(call.key, call.args, call.fetch))

        self._after(done)

    # ------------------------------------------------------------ tasks and streams

    def _submit(self, effect: Submit) -> None:
        self._begin(effect.key)
        if isinstance(effect.function, SimStream):
            self._streams[effect.key] = _Running(effect.function.items)
            return
        key = effect.key
        self._after(lambda: self._finish(key, self._outcome(key, effect.args, effect.fetch)))

    def _take(self, key: Key, items: int) -> None:
        stream = self._streams.get(key)
        if stream is not None:
            stream.wanted += items
            self._yield(key, stream)

    def _yield(self, key: Key, stream: _Running) -> None:
        if stream.is_yielding or not stream.wanted:
            return
        stream.is_yielding = True

        def give() -> None:
            stream.is_yielding = False
            if not stream.left:
                del self._streams[key]
                self._finish(key, Done(key))
                return
            stream.left -= 1
            stream.wanted -= 1
            self.results[key, stream.given] = stream.given
            self._due.append(Item(key, stream.given, 100))
            stream.given += 1
            self._yield(key, stream)

        self._after(give)

    def _begin(self, key: Key) -> None:
        if key in self._tasks:
            self.world.fail(f"key {key!r} is in use")
        self._tasks.add(key)

    def _outcome(self, key: Key, args: Sequence[Any], fetch: bool) -> Event:
        if self._happens(self.chances.call_fails):
            return Failed(key, ValueError("chance"))
        self.results[key] = args[0] if args else None
        return Done(key, self.results[key] if fetch else None, 10)

    def _finish(self, key: Key, event: Event) -> None:
        if key in self._tasks:
            self._tasks.remove(key)
            self._due.append(event)

    # ------------------------------------------------------------ chance

    def _after(self, action: Any) -> None:
        self.world.at(self.world.delay_s(0.5), action)

    def _happens(self, chance: float) -> bool:
        young = self.world.now - self._begun_s < self.chances.immortal_after_s
        return young and self.world.rng.random() < chance


def _performed(key: Key, function: Callable[..., Any], args: Sequence[Any]) -> Event:
    try:
        return Done(key, function(*args))
    except Exception as error:
        return Failed(key, error)
