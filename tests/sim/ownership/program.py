"""Random programs: what drivers, tasks and actors do with references. The same code runs in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import msgspec

from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._ownership.calls import Actor, Call
from runtime._ownership.records import INLINE, Entry, PackedArguments, Submission
from runtime._ownership.tasks import Task, TaskOptions
from runtime._wire.messages.base import ResourceRequest
from runtime._wire.messages.control import ActorSpec, KillActor, RegisterActor
from runtime._wire.messages.worker import Push, Value
from tests.sim.ownership.links import UNSENDABLE
from tests.sim.ownership.process import TASK, Process, Waits

MAX_DEPTH = 3
NEVER = 1 << 62
REQUEST = ResourceRequest({"CPU": 10_000})
PLAIN, LAST = b"f" * 16, b"m" * 16
"""The keys of two functions; a worker retires after the second."""


def function(key: bytes) -> Any:
    return SimpleNamespace(key=key, pickled=b"", name="f", full_name="module.f", max_calls=0)


ORDERED, CONCURRENT = b"\xf1" * 8, b"\xf0" * 8
"""How the ids of actors begin."""
FUNCTIONS = [function(PLAIN), function(PLAIN), function(PLAIN), function(LAST)]


class Program:
    """One run of user code in one process.

    Args:
        order: it may wait for objects made before it.
        parent: the task that it is, or b"".
        block: tells the worker that it waits, and that it goes on.
    """

    def __init__(
        self,
        process: Process,
        order: int,
        may_wait: bool = True,
        parent: bytes = b"",
        block: Callable[[bool], None] | None = None,
    ) -> None:
        self.process = process
        self.book = process.cluster.book
        self.rng = process.rng
        self.order = order
        self.depth = process.cluster.depths.get(parent, -1) + 1
        self.refs: list[Entry] = []
        self.actors: dict[bytes, Actor] = {}
        self._may_wait = may_wait
        self._parent = parent
        self._block = block

    def run(self, steps: int) -> Waits:
        """Takes random steps."""
        choices: list[Callable[[], Any]] = [self.put, self.drop, self.drop, self.drop, self.keep, self.unkeep]
        choices += [
            self.submit,
            self.submit_some,
            self.call,
            self.call,
            self.call_some,
            self.make_actor,
            self.cancel,
            self.kill_actor,
        ]
        choices += [self.announce, self.pause]
        if self._may_wait:
            choices += [self.get] * 3 + [self.put_for]
        for _ in range(steps):
            step = self.rng.choice(choices)()
            if step is not None:
                yield from step

    # ------------------------------------------------------------ references

    def some(self, most: int = 3) -> list[Entry]:
        return self.rng.sample(self.refs, min(len(self.refs), self.rng.randrange(most + 1)))

    def nest(self, order: int, most: int = 3) -> list[Entry]:
        """References to pass on; often those of third parties, which hear of the receiver on another link."""
        borrowed = [entry for entry in self.refs if entry.owner is not None]
        chosen = self.some(most)
        if borrowed and self.rng.random() < 0.5:
            chosen.append(self.rng.choice(borrowed))
        return self.book.nest(order, chosen)

    def accept(self, entries: Iterable[Entry]) -> None:
        """References that are ours now, with a hold of each."""
        for entry in entries:
            self.refs.append(entry)
            self._know(entry)

    def _know(self, entry: Entry) -> None:
        if entry.object_id.startswith(ids.CREATION_PREFIX):
            actor_id = entry.object_id[8:24]
            self.actors[actor_id] = self.process.calls.actor(actor_id, entry, _is_ordered(actor_id))

    def _forget(self, entry: Entry) -> None:
        """One reference less."""
        self.refs.remove(entry)
        if entry.object_id.startswith(ids.CREATION_PREFIX) and entry not in self.refs:
            self.actors.pop(entry.object_id[8:24], None)

    def drop_all(self) -> list[Entry]:
        """The end: returns the references, whose holds the caller takes away."""
        refs, self.refs = self.refs, []
        self.actors.clear()
        return refs

    def drop(self) -> None:
        if self.refs:
            entry = self.rng.choice(self.refs)
            self._forget(entry)
            self.process.released.add(entry)

    def keep(self) -> None:
        """In the process, beyond the end of the task."""
        for entry in self.some(2):
            self._forget(entry)
            self.process.state.append(entry)

    def unkeep(self) -> None:
        state = self.process.state
        for _ in range(min(len(state), 2)):
            self.accept([state.pop(self.rng.randrange(len(state)))])

    def pause(self) -> Waits:
        yield self.process.world.delay_s(0.02)

    # ------------------------------------------------------------ objects

    def put(self) -> Waits:
        nested = self.some()
        for entry in nested:
            entry.hold()
        yield self.process.pause_s()
        order = self.book.enter(b"")
        entry = self.process.put(self.book.nest(order, nested))
        self.book.orders[ids.task_id_of(entry.object_id)] = order
        self.process.objects.release_all(nested)
        self.refs.append(entry)

    def get(self) -> Waits:
        waitable = [entry for entry in self.refs if self.book.order(entry) < self.order]
        waitable = [entry for entry in waitable if not entry.object_id.startswith(ids.CREATION_PREFIX)]
        if not waitable:
            return
        entry = self.rng.choice(waitable)
        entry.hold()  # as a frame of user code does
        value, made = yield from self.process.read(entry, self._block)
        self.check(entry, value)
        self.accept(made)
        self.process.released.add(entry)

    def announce(self) -> None:
        """Wants to hear of a value, without waiting."""
        if self.refs:
            entry, book = self.rng.choice(self.refs), self.book
            if entry.object_id.startswith(ids.CREATION_PREFIX):
                return
            entry.hold()
            number = book.expect(self.process)

            def ready() -> None:
                book.heard(number)
                self.process.released.add(entry)

            self.process.objects.call_when_ready(entry, ready)

    def check(self, entry: Entry, value: Value) -> None:
        """The value is the one of this object; without deaths only what fails on purpose may fail."""
        cluster, name = self.process.cluster, value.data.decode("latin1")
        if value.kind == INLINE:
            if value.data != entry.object_id:
                self.process.world.fail(f"{entry.object_id.hex()} holds the value of {value.data.hex()}")
            return
        planned = ("planned", "Cancelled", "ArgumentFailed", "CannotSend", "ActorDied", "ActorUnavailable")
        fine = name in planned or (name == "OwnerDied" and cluster.ended)
        if not fine and not cluster.lossy:
            self.process.world.fail(f"{self.process.name} got {name} for {entry.object_id.hex()}")

    def put_for(self) -> Waits:
        """A value that an actor will own."""
        owners = [a for a in self.actors.values() if a.link is not None]
        if not owners:
            return
        link = self.rng.choice(owners).link
        assert link is not None
        nested = self.some()
        for entry in nested:
            entry.hold()
        order = self.book.enter(b"")
        inside = self.book.nest(order, nested)
        adopted = yield from self.process.put_for(inside, link.peer, order)
        if adopted is not None:
            self.refs.append(adopted)
        self.process.objects.release_all(nested)

    # ------------------------------------------------------------ tasks and calls

    def _pack(self, order: int) -> PackedArguments:
        """Nested references, and some at top level: the call waits for those."""
        nested, top = self.nest(order), self.nest(order, 2)
        top = [entry for entry in top if not entry.object_id.startswith(ids.CREATION_PREFIX)]
        held = [*top, *nested]
        for entry in held:
            entry.hold()
        value = Value(INLINE, b"", (), self.process.objects.nested_of(nested))
        if self.rng.random() < 0.5:  # nothing else may hold them on the way
            for entry in dict.fromkeys(held):
                if entry in self.refs:
                    self._forget(entry)
                    self.process.released.add(entry)
        return PackedArguments(value, top, list(range(len(top))), held)

    def _promise(self, task: Submission) -> None:
        objects, task_id, book = self.process.objects, task.push.task_id, self.book
        made = []
        for index in range(task.push.num_returns):
            entry = objects.own(ids.object_id(task_id, index + 1), 2)
            made.append(entry)
            number = book.expect(self.process)
            objects.call_when_ready(entry, lambda number=number: book.heard(number))
        task.entries = tuple(made)
        self.refs += made

    def submit_some(self) -> Waits:
        """Tasks of one class."""
        kind = self._kind()
        for _ in range(self.rng.randrange(10)):
            yield from self.submit(kind)

    def _kind(self) -> tuple[int, Any]:
        """How often a task may run again, and its function."""
        return self.rng.choice((0, 0, 1, 3, -1)), self.rng.choice(FUNCTIONS)

    def call_some(self) -> Waits:
        for _ in range(self.rng.randrange(6)):
            yield from self.call()

    def submit(self, kind: tuple[int, Any] | None = None) -> Waits:
        if self.depth >= MAX_DEPTH:
            return
        process, rng = self.process, self.rng
        task_id = process.new_number() + TASK
        order = self.book.enter(task_id)
        process.cluster.depths[task_id] = self.depth
        packed = self._pack(order)
        yield process.pause_s()
        retries, what = kind or self._kind()
        wants = retries >= 0 and rng.random() < 0.5  # an argument that is lost would be an error for ever
        options = TaskOptions(REQUEST, "", rng.choice((1, 1, 2)), retries, wants)
        if not retries:
            self.book.once.add(task_id)
        name = UNSENDABLE if rng.random() < 0.02 else ""
        push = Push(task_id, what.key, "", packed.value, [], options.num_returns, name=name)
        state = TaskState.WAITING_FOR_ARGUMENTS if packed.entries else TaskState.QUEUED
        pool = process.tasks.pool(what, options)
        task = Task(
            packed,
            push,
            retries,
            retries,
            wants,
            0.0,
            self._parent,
            state,
            pool=pool,
            function=what,
            options=options,
        )
        self._promise(task)
        process.tasks.submit(task)

    def make_actor(self) -> Waits:
        if len(self.actors) >= 2 or self.depth >= MAX_DEPTH:
            return
        process, rng = self.process, self.rng
        ordered = rng.random() < 0.7
        actor_id = (ORDERED if ordered else CONCURRENT) + process.new_number()
        order = self.book.enter(ids.CREATION_PREFIX + actor_id)
        kept = self.nest(order)
        for entry in kept:
            entry.hold()
        yield process.pause_s()
        handle = process.objects.own(ids.object_id(ids.CREATION_PREFIX + actor_id, 1), 1)
        actor = self.actors[actor_id] = process.calls.create(actor_id, ordered, handle, kept)
        self.refs.append(handle)
        args = Value(INLINE, b"", (), process.objects.nested_of(kept))
        name = "" if ordered else "concurrent"
        push = Push(
            ids.CREATION_PREFIX + actor_id, PLAIN, "__init__", args, [], 0, process.address, name=name
        )
        restarts = rng.choice((0, 0, 1, -1))
        spec = ActorSpec(
            actor_id,
            b"job1",
            "A",
            "",
            "",
            process.address,
            False,
            restarts,
            0,
            1,
            REQUEST,
            {},
            "",
            PLAIN,
            msgspec.msgpack.encode(push),
        )
        process.agent.call(RegisterActor(spec), lambda reply: process.calls.registered(actor, reply))

    def call(self) -> Waits:
        if not self.actors or self.depth >= MAX_DEPTH:
            return
        process, rng = self.process, self.rng
        actor = rng.choice(list(self.actors.values()))
        actor.sequence += 1
        task_id = process.new_number() + actor.actor_id
        order = self.book.enter(task_id)
        process.cluster.depths[task_id] = self.depth
        packed = self._pack(order)
        yield process.pause_s()
        retries = rng.choice((0, 0, 1, -1))
        if not retries:
            self.book.once.add(task_id)
        wants = retries >= 0 and rng.random() < 0.5  # an argument that is lost would be an error for ever
        name = UNSENDABLE if rng.random() < 0.02 else ""
        push = Push(
            task_id, b"", "m", packed.value, [], rng.choice((1, 1, 2)), name=name, sequence=actor.sequence
        )
        state = TaskState.WAITING_FOR_ARGUMENTS
        call = Call(
            packed, push, retries, retries, wants, 0.0, self._parent, state, actor=actor, handle=actor.handle
        )
        self._promise(call)
        process.calls.submit(call)

    def cancel(self) -> None:
        if self.refs and self.rng.random() < 0.3:
            entry = self.rng.choice(self.refs)
            if not entry.object_id.startswith(ids.CREATION_PREFIX):
                self.process.cancel(entry, self.rng.random() < 0.5)

    def kill_actor(self) -> None:
        if self.actors and self.process.cluster.lossy and self.rng.random() < 0.3:
            actor = self.rng.choice(list(self.actors.values()))
            no_restart = self.rng.random() < 0.5
            self.process.agent.call(KillActor(actor.actor_id, no_restart), lambda _: None)
            if not no_restart:
                self.process.calls.interrupt(actor)


def _is_ordered(actor_id: bytes) -> bool:
    return actor_id.startswith(ORDERED)
