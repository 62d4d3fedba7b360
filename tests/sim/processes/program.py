"""Random programs: what drivers, tasks and actors do with references. The same code runs in all of them.

A value is a dict with a `token` that says which object it must be, references inside, and padding that sends some
values to the object store. Everything that blocks waits only for what was made earlier, so no program deadlocks itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeVar

from runtime import exceptions
from runtime._process import core_worker
from runtime.actor import ActorClass, ActorHandle
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator
from runtime.remote_function import RemoteFunction
from tests.sim.processes.process import INLINE_BYTES, Process

T = TypeVar("T", ObjectRef, ActorHandle)
MAX_DEPTH = 3
NEVER = 1 << 62


class Planned(Exception):
    """A task that fails on purpose."""


class Book:
    """What every object must hold, and which was made first. Outside of the simulated world.

    Everything has an order: each `put`, the results of each call, each actor. `inside` is what keeps what by design, so
    that programs make no cycles: no reference count can free those.
    """

    def __init__(self) -> None:
        self.tokens: dict[bytes, str] = {}
        self._orders: dict[bytes, int] = {}
        self._inside: dict[int, set[int]] = {}
        self._count = 0

    def next(self) -> int:
        self._count += 1
        return self._count

    def enter(self, key: bytes, order: int, token: str = "") -> None:
        """An object or actor id, and what its value will say."""
        self._orders[key] = order
        if token:
            self.tokens[key] = token

    def order(self, item: ObjectRef | ActorHandle) -> int:
        return self._orders[item.binary() if isinstance(item, ObjectRef) else item._actor_id.binary()]

    def nest(self, order: int, items: Iterable[T]) -> list[T]:
        """Notes that `order` will keep these, and returns those that would not make a cycle."""
        fine = [item for item in items if not self._reaches(self.order(item), order)]
        self._inside.setdefault(order, set()).update(self.order(item) for item in fine)
        return fine

    def _reaches(self, start: int, goal: int) -> bool:
        seen, queue = {start}, [start]
        while queue:
            new = self._inside.get(queue.pop(), set()) - seen
            seen |= new
            queue += new
        return goal in seen


class Program:
    """One run of user code in one process. `order`: it may wait for objects made before it."""

    def __init__(self, rng: random.Random, depth: int, order: int, may_wait: bool = True) -> None:
        self.process = here()
        self.rng = rng
        self.depth = depth
        self.order = order
        self.may_wait = may_wait
        self.refs: list[ObjectRef] = []
        self.handles: list[ActorHandle] = []
        self.streams: list[tuple[int, ObjectRefGenerator]] = []

    # ------------------------------------------------------------ steps

    def run(self, steps: int) -> None:
        """Takes random steps."""
        choices = [
            self.put,
            self.call,
            self.drop,
            self.drop,
            self.keep,
            self.unkeep,
            self.pause,
            self.make_actor,
            self.cancel,
        ]
        choices += [self.call, self.call_actor, self.call_actor, self.stream]
        if self.may_wait:
            choices += [self.get, self.get, self.wait, self.take_items, self.put_for, self.locate]
        for _ in range(steps):
            self.rng.choice(choices)()

    def some(self, most: int = 3) -> list[ObjectRef]:
        return self.rng.sample(self.refs, min(len(self.refs), self.rng.randrange(most + 1)))

    def give(self, most: int = 3) -> list[ObjectRef]:
        """References to pass on; half the time without keeping them: then nothing else may hold them on the way."""
        chosen = self.some(most)
        if self.rng.random() < 0.5:
            self.refs = [ref for ref in self.refs if ref not in chosen]
        return chosen

    def value(self, order: int, token: str) -> dict[str, Any]:
        pad = INLINE_BYTES * 2 if self.rng.random() < 0.3 else 0
        handles = self.handles[:1] if self.rng.random() < 0.2 else []
        return {
            "token": token,
            "refs": book().nest(order, self.give()),
            "handles": book().nest(order, handles),
            "pad": b"." * pad,
        }

    def put(self) -> None:
        order = book().next()
        ref = core_worker.current().objects.put(self.value(order, f"put {order}"))
        book().enter(ref.binary(), order, f"put {order}")
        self.refs.append(ref)

    def arguments(self) -> tuple[list[Any], int]:
        """Nested references, references at top level (the call waits for those), a handle, and the call's order."""
        order = book().next()
        handles = self.handles[:1] if self.rng.random() < 0.3 else []
        nested = [*book().nest(order, self.give()), *book().nest(order, handles)]
        pad = b"." * (2 * INLINE_BYTES) if self.rng.random() < 0.1 else b""
        top = book().nest(order, self.give(2))
        return [self.rng.random(), self.depth + 1, order, [*nested, pad], *top], order

    def call(self) -> None:
        if self.depth >= MAX_DEPTH:
            return
        arguments, order = self.arguments()
        count = self.rng.choice((1, 1, 2))
        result = (self.rng.choice(WORKS) if count == 1 else WORK_TWICE).remote(*arguments, count)
        for index, ref in enumerate([result] if count == 1 else result):
            book().enter(ref.binary(), order, f"task {order}.{index}")
            self.refs.append(ref)

    def stream(self) -> None:
        if self.depth < MAX_DEPTH and self.rng.random() < 0.5:
            arguments, order = self.arguments()
            self.streams.append((order, ITEMS.remote(*arguments)))

    def take_items(self) -> None:
        if self.streams:
            order, stream = taken = self.rng.choice(self.streams)
            if order >= self.order:
                return
            try:
                for ref in stream:
                    book().enter(ref.binary(), order)
                    self.refs.append(ref)
                    if self.rng.random() < 0.3:
                        return
            except exceptions.RayError as error:
                self.check_error(error)
            self.streams.remove(taken)

    def cancel(self) -> None:
        """Somebody's task, if it is ours and not over: wherever it is."""
        core = core_worker.current()
        if self.refs and self.rng.random() < 0.3:
            object_id = self.rng.choice(self.refs).binary()
            with core.lock:
                core.outcomes.cancel(object_id, False, self.rng.random() < 0.5)

    def make_actor(self) -> None:
        if len(self.handles) < 2 and self.depth < MAX_DEPTH:
            order = book().next()
            handle = KEEPER.remote(book().nest(order, self.give()))
            book().enter(handle._actor_id.binary(), order)
            self.handles.append(handle)

    def call_actor(self) -> None:
        if self.handles and self.depth < MAX_DEPTH:
            arguments, order = self.arguments()
            ref = self.rng.choice(self.handles).act.remote(*arguments)
            book().enter(ref.binary(), order, f"task {order}.0")
            self.refs.append(ref)

    def drop(self) -> None:
        if self.handles and self.rng.random() < 0.1:
            self.handles.pop(self.rng.randrange(len(self.handles)))
        elif self.streams and self.rng.random() < 0.2:
            self.streams.pop()
        elif self.refs:
            self.refs.pop(self.rng.randrange(len(self.refs)))

    def keep(self) -> None:
        """In the process, beyond the end of the task."""
        self.process.state += self.give(2)
        if self.handles and self.rng.random() < 0.2:
            self.process.state.append(self.handles[0])

    def unkeep(self) -> None:
        state = self.process.state
        for _ in range(min(len(state), 2)):
            found = state.pop(self.rng.randrange(len(state)))
            (self.refs if isinstance(found, ObjectRef) else self.handles).append(found)

    def pause(self) -> None:
        fiber = self.process.world.fiber
        assert fiber is not None
        fiber.pause(self.process.world.delay_s(0.02))

    def get(self) -> None:
        waitable = [ref for ref in self.refs if book().order(ref) < self.order]
        if waitable:
            ref = self.rng.choice(waitable)
            try:
                value = core_worker.current().reader.get([ref], None)[0]
            except exceptions.RayError as error:
                self.check_error(error)
            else:
                self.check(ref, value)

    def wait(self) -> None:
        refs = list(dict.fromkeys(self.some()))
        if refs:
            timeout_s = self.rng.choice((0, 0.001, 0.1))
            fetch = self.rng.random() < 0.5
            most = self.rng.randint(1, len(refs))
            found = core_worker.current().waiter.wait(refs, most, timeout_s, fetch)
            assert len(found) <= most
            assert found == sorted(set(found))

    def put_for(self) -> None:
        """A value that an actor will own."""
        owners = [handle for handle in self.handles if book().order(handle) < self.order]
        if owners:
            core = core_worker.current()
            order = book().next()
            try:
                address = core.actors.address(self.rng.choice(owners)._ray_actor)
                ref = core.object_admin.put_for(self.value(order, f"put {order}"), address)
            except exceptions.RayError as error:
                self.check_error(error)
            else:
                book().enter(ref.binary(), order, f"put {order}")
                self.refs.append(ref)

    def locate(self) -> None:
        """Asks the owners of some objects where they are."""
        refs = self.some()
        found = core_worker.current().object_admin.locations(refs, None)
        assert set(found) <= set(refs)

    # ------------------------------------------------------------ checks

    def check(self, ref: ObjectRef, value: Any) -> None:
        """The value is the one of this object; what is inside becomes ours too."""
        expected = book().tokens.get(ref.binary(), value["token"])
        if value["token"] != expected:
            self.process.world.fail(f"{ref} holds {value['token']!r}, not {expected!r}")
        self.adopt(value)

    def adopt(self, value: Any) -> None:
        """Takes some of the references inside a value."""
        self.refs += [ref for ref in value["refs"] if self.rng.random() < 0.5]
        self.handles += [handle for handle in value["handles"] if self.rng.random() < 0.5]

    def check_error(self, error: exceptions.RayError) -> None:
        """Without deaths only what fails on purpose may fail, or what an actor owned that ended."""
        cluster = self.process.cluster
        fine = isinstance(error, Planned | exceptions.RayActorError | exceptions.TaskCancelledError)
        fine = fine or (isinstance(error, exceptions.OwnerDiedError) and cluster.ended)
        if not fine and not cluster.lossy:
            self.process.world.fail(f"{self.process.name} got {error!r}")

    def accept(self, arguments: list[Any], values: tuple[Any, ...]) -> None:
        """The arguments of a call: nested references, then the values of those at top level."""
        for item in arguments:
            if isinstance(item, ObjectRef):
                self.refs.append(item)
            elif isinstance(item, ActorHandle):
                self.handles.append(item)
        for value in values:
            self.adopt(value)


def here() -> Process:
    """The simulated process that runs this."""
    process: Process = core_worker.current().pump.process  # type: ignore[attr-defined]
    return process


def book() -> Book:
    found: Book = here().cluster.book
    return found


def work(seed: float, depth: int, order: int, arguments: list[Any], *values: Any) -> Any:
    """A task: takes its arguments, does something, returns values with references inside."""
    *values_in, count = values
    program = Program(random.Random(seed), depth, order)
    program.accept(arguments, tuple(values_in))
    del arguments, values, values_in
    program.run(program.rng.randrange(6))
    if program.rng.random() < 0.1:
        raise Planned(order)
    results = [program.value(order, f"task {order}.{index}") for index in range(count)]
    return results[0] if count == 1 else results


def items(seed: float, depth: int, order: int, arguments: list[Any], *values: Any) -> Any:
    """A task that returns its values one after the other."""
    program = Program(random.Random(seed), depth, order)
    program.accept(arguments, values)
    del arguments, values
    for index in range(program.rng.randrange(4)):
        program.run(program.rng.randrange(3))
        yield program.value(order, f"item {order}.{index}")
    if program.rng.random() < 0.2:
        raise Planned(order)


class Keeper:
    """An actor that keeps references. It never waits: its calls could wait for each other."""

    def __init__(self, refs: list[ObjectRef]) -> None:
        here().state.extend(refs)

    def act(self, seed: float, depth: int, order: int, arguments: list[Any], *values: Any) -> Any:
        program = Program(random.Random(seed), depth, order, may_wait=False)
        program.accept(arguments, values)
        del arguments, values
        program.run(program.rng.randrange(6))
        if program.rng.random() < 0.1:
            raise Planned(order)
        return program.value(order, f"task {order}.0")


WORKS = [
    RemoteFunction(work, {}),
    RemoteFunction(work, {"max_retries": 0}),
    RemoteFunction(work, {"max_retries": 2, "retry_exceptions": True}),
]
WORK_TWICE = RemoteFunction(work, {"num_returns": 2})
ITEMS = RemoteFunction(items, {})
KEEPER = ActorClass(Keeper, {})
