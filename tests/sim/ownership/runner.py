"""Runs the calls of a simulated worker, and keeps its side of the protocol: it answers once its borrows are known, and
holds the references in its results until the caller has taken them.
"""

from __future__ import annotations

from collections import deque

from runtime._core import ids
from runtime._ownership.records import INLINE_ERROR, STORED, Entry
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.node import Blocked, Unblocked
from runtime._wire.messages.worker import (
    BindLease,
    Cancel,
    DefineFunction,
    Done,
    ExitActor,
    ObjectLost,
    Push,
    ReleaseHold,
    Retiring,
    Returned,
    TakeBack,
    Value,
)
from tests.sim.ownership.links import SimLink
from tests.sim.ownership.process import Process, Waits
from tests.sim.ownership.program import Program

PLANNED = Value(INLINE_ERROR, b"planned")
CANCELLED = Value(INLINE_ERROR, b"Cancelled")
FAILURES = 0.15
MAX_CALLS = b"m" * 16
"""The key of the function after which a worker retires."""


class Running:
    """A call that has begun."""

    def __init__(self) -> None:
        self.cancelled = False


class Runner:
    """Everything of one worker that its callers see."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.waiting: deque[tuple[SimLink, Push]] = deque()
        self.begun: dict[tuple[SimLink, bytes], Running] = {}
        self.holds: dict[tuple[SimLink, bytes], dict[int, list[Entry]]] = {}
        self._accepts = True
        self._sends_back = False
        self._is_actor = False
        self._concurrent = False
        self._finishing = False
        self._retired = False
        process.serve(
            {
                Push: self._on_push,
                BindLease: lambda *_: None,
                DefineFunction: lambda *_: None,
                TakeBack: self._on_take_back,
                Cancel: self._on_cancel,
                ReleaseHold: lambda link, message, _: self._release(link, message.task_id, message.attempt),
                ExitActor: lambda *_: self._finish(),
            }
        )

    # ------------------------------------------------------------ messages

    def _on_push(self, link: SimLink, push: Push, _correlation: int) -> None:
        if not self._accepts:
            return
        if self._concurrent:
            self.process.run(self._run(link, push))
        elif self._sends_back:
            link.send(Returned([push.task_id], blocked=True))
        else:
            self.waiting.append((link, push))

    def _on_take_back(self, link: SimLink, message: TakeBack, _correlation: int) -> None:
        back: list[bytes] = []
        while len(back) < message.count and self.waiting and self.waiting[-1][0] is link:
            back.append(self.waiting.pop()[1].task_id)
        link.send(Returned(back[::-1]))

    def _on_cancel(self, link: SimLink, message: Cancel, _correlation: int) -> None:
        for item in self.waiting:
            if item[0] is link and item[1].task_id == message.task_id:
                self.waiting.remove(item)
                link.send(Done(message.task_id, [CANCELLED], failed=True))
                return
        if message.recursive:
            self.process.outcomes.cancel_children(message.task_id, message.force)
        running = self.begun.get((link, message.task_id))
        if running is not None and self.process.rng.random() < 0.5:  # else it comes too late
            running.cancelled = True

    def _finish(self) -> None:
        self._finishing = True

    def caller_lost(self, link: SimLink) -> None:
        """A caller died: nobody wants what it queued, nor what was held for it."""
        self.waiting = deque(item for item in self.waiting if item[0] is not link)
        for held, task_id in [held for held in self.holds if held[0] is link]:
            self._release(held, task_id, -1)

    def _release(self, link: SimLink, task_id: bytes, attempt: int) -> None:
        attempts = self.holds.get((link, task_id), {})
        for number in [attempt] if attempt >= 0 else list(attempts):
            self.process.objects.release_all(attempts.pop(number, ()))
        if not attempts:
            self.holds.pop((link, task_id), None)

    # ------------------------------------------------------------ running

    def main(self) -> Waits:
        """The main thread: until the process has a reason to end."""
        while True:
            yield lambda: self.waiting or self._may_exit()
            if not self.waiting:
                self.process.kill(clean=True)
                return
            link, push = self.waiting.popleft()
            yield from self._run(link, push)

    def _may_exit(self) -> bool:
        if self._retired:
            process = self.process
            needed = self.holds or process.outcomes.pending or process.objects.has_borrowers()
            return not needed
        return self._finishing and not self.begun

    def _run(self, link: SimLink, push: Push) -> Waits:
        process, book = self.process, self.process.cluster.book
        running = self.begun[link, push.task_id] = Running()
        yield process.pause_s()
        if push.method == "__init__":
            self._construct(link, push)
            return
        may_wait = not self._is_actor
        order = book.orders[push.task_id]
        program = Program(process, order, may_wait, push.task_id, self._block if may_wait else None)
        made: list[Entry] = []
        lost, failed = yield from self._unpack(push, program, made)
        if lost:
            process.objects.release_all(program.drop_all())
            del self.begun[link, push.task_id]
            link.send(Returned([push.task_id], lost=lost))
            return
        if failed is None:
            book.begin(push.task_id)
            yield from program.run(process.rng.randrange(6))
        retires = push.key == MAX_CALLS and not self._is_actor
        if retires:  # before the answer, after which the worker could be leased to somebody
            process.cluster.retires(process)
        done = self._pack(link, push, program, failed, running)
        for entry in program.drop_all():
            process.released.add(entry)
        del program
        yield process.pause_s()
        self._answer(link, push, done, made)
        if retires:
            self._accepts = False
            self.waiting.clear()
            process.borrowing.when_registered(list(process.entries.values()), lambda: self._retire(link))

    def _retire(self, link: SimLink) -> None:
        """It ends when nobody needs it any more."""
        link.send(Retiring())
        self._retired = True

    def _unpack(self, push: Push, program: Program, made: list[Entry]) -> Waits:
        """The arguments. Returns those that are lost, and the error of one of them."""
        process = self.process
        assert push.args is not None
        made += process.take(push.args.nested)
        program.accept(made)
        lost: list[ObjectLost] = []
        for argument in push.refs:
            value = argument.value
            entry = process.borrowing.borrowed_entry(argument.object_id, argument.owner)
            entry.hold()
            made.append(entry)
            program.refs.append(entry)
            known = entry.value
            newer = known is not None and known.kind >= STORED and entry.owner is not None
            if value is not None and (known is None or (newer and not self._is_actor)):
                entry.value = value
            if not self._is_actor and entry.value is not None and entry.value.kind >= STORED:
                yield process.pause_s()
                current = entry.value
                if current is not None and not process.has_copy(entry, current):
                    lost.append(ObjectLost(entry.object_id, list(current.locations)))
                    continue
            if lost:
                continue
            value, inside = yield from process.read(entry, None if self._is_actor else self._block)
            made += inside
            program.accept(inside)
            if value.kind & 1:
                return lost, value
        return lost, None

    def _pack(
        self, link: SimLink, push: Push, program: Program, failed: Value | None, running: Running
    ) -> Done:
        """The answer, with what it nests held for the caller."""
        rng, task_id = self.process.rng, push.task_id
        if failed is None and running.cancelled:
            failed = CANCELLED
        if failed is None and rng.random() < FAILURES:
            failed = PLANNED
        count = push.num_returns
        if failed is not None:
            count = rng.randrange(count) if failed is PLANNED and push.num_returns > 1 else 0
        values: list[Value] = []
        held: list[Entry] = []
        for index in range(count):
            nested = program.nest(program.order)
            values.append(
                self.process.pack(ids.object_id(task_id, index + 1), nested, self._caller(link, push))
            )
            held += nested
        if held and not link.closed:
            for entry in held:
                entry.hold()
            self.holds.setdefault((link, task_id), {}).setdefault(push.attempt, []).extend(held)
        if failed is None:
            return Done(task_id, values, 0.001)
        missing = push.num_returns - len(values) if values else 1
        return Done(task_id, [*values, *[failed] * missing], 0.001, True, True)

    def _caller(self, link: SimLink, push: Push) -> WorkerAddress:
        caller: WorkerAddress = push.caller or link.peer
        return caller

    def _answer(self, link: SimLink, push: Push, done: Done, made: list[Entry]) -> None:
        process = self.process
        del self.begun[link, push.task_id]
        process.drain()
        kept = [e for e in made if not e.registered and process.entries.get(e.object_id) is e]
        process.borrowing.when_registered(kept, lambda: link.send(done))

    def _block(self, blocked: bool) -> None:
        """The task that runs waits, or goes on: what waits behind it goes back to its callers."""
        self._sends_back = blocked
        self.process.agent.send(Blocked() if blocked else Unblocked())
        back: dict[SimLink, list[bytes]] = {}
        while blocked and self.waiting:
            link, push = self.waiting.popleft()
            back.setdefault(link, []).append(push.task_id)
        for link, task_ids in back.items():
            link.send(Returned(task_ids, blocked=True))

    # ------------------------------------------------------------ actors

    def _construct(self, link: SimLink, push: Push) -> None:
        assert push.args is not None
        made = self.process.take(push.args.nested)
        self.process.state += made
        self._is_actor = True
        self._concurrent = push.name == "concurrent"
        del self.begun[link, push.task_id]
        unknown = [entry for entry in made if not entry.registered]
        self.process.borrowing.when_registered(unknown, lambda: link.send(Done(push.task_id, [])))
