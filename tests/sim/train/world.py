"""Workers of chance for the controller of a training: they report at random speeds, fail, and leave late."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from runtime._controllers.controller import ActorLost, Call, Done, Event, Failed, Forget, Item, Key, Noticed
from runtime._core.nodes import NodeState
from runtime._extension.news import NodeChanged
from runtime.exceptions import ActorDiedError
from runtime.train._core.plan import Kept, Opened
from runtime.train._core.ranks import Place
from runtime.train._core.records import (
    Answered,
    Asked,
    Committed,
    Copied,
    Joined,
    Preempted,
    Record,
    Reported,
    Returned,
    Uploaded,
    Wanted,
    decoded,
    encode,
)
from runtime.train._core.reports import Complete
from runtime.train._core.validations import Outcome, Pending
from runtime.train._core.validations import ReportedCheckpointStatus as Status
from tests.sim.controllers.world import Chances, SimActor, SimEngine
from tests.sim.events import Events

LONGEST_S = 100_000.0
"""A run that has not ended after so long hangs."""


@dataclass
class Program:
    """A training function. What its steps do apart from reporting is the same on all ranks."""

    steps: int = 12
    checkpoints: float = 0.3
    barriers: float = 0.1
    lists: float = 0.05
    seed: int = 0
    fails: float = 0.0
    dies: float = 0.0
    returns_early: bool = False
    hangs: bool = False
    leaves_late: float = 0.05
    restarts_late_s: float = 20.0
    large: float = 0.2
    copies: float = 0.7
    once: bool = False
    validations: float = 0.0
    validation_timeout_s: float | None = None

    def does(self, what: str, step: int, chance: float) -> bool:
        return random.Random(f"{self.seed} {what} {step}").random() < chance


def metrics(attempt: int, rank: int, step: int) -> bytes:
    return f"{attempt} {rank} {step}".encode()


class MemoryKeeper:
    """See `plan.Keeper`. Checks that reports come once, whole, and in order."""

    def __init__(self, world: Events, fails: float = 0.0) -> None:
        self.world = world
        self.fails = fails
        self.latest = -1  # step of the latest checkpoint
        self.failures = 0
        self.kept: list[tuple[int, int]] = []  # attempt and step
        self.committed: list[int] = []  # steps with checkpoints
        self.first_attempt = 0  # attempts of earlier controllers
        self.is_closed = False
        self.pending: dict[str, Pending] = {}
        self.outcomes: list[Outcome] = []
        self.leftovers: list[int] = []  # not tidied
        self.validation_timeout_s: float | None = None

    def open(self) -> Opened:
        self.leftovers.clear()
        return Opened(self._packed(), self.failures, [*self.pending.values()])

    def keep(self, reports: Sequence[Complete]) -> Kept:
        self._perhaps_fail()
        before = {*self.pending}
        for report in reports:
            told = [tuple(map(int, one.decode().split())) for one in report.metrics]
            attempt, _, step = told[0]
            if [(attempt, rank, step) for rank in range(len(told))] != told:
                self.world.fail(f"put together: {told}")
            attempt += self.first_attempt
            last = self.kept[-1] if self.kept else (-1, -1)
            expected = last[1] + 1 if last[0] == attempt else self.latest + 1
            if step != expected or attempt < last[0]:
                self.world.fail(f"attempt {attempt} reports step {step} and not {expected} after {last}")
            if report.checkpoint:
                if len(report.parts) != len(told) or step <= self.latest:
                    self.world.fail(f"checkpoint {step} after {self.latest} with {len(report.parts)} parts")
                self.latest = step
                self.committed.append(step)
                self.leftovers.append(step)
                if report.validation:
                    name = report.checkpoint
                    self.pending[name] = Pending(name, (name,), self.validation_timeout_s)
            elif report.validation:
                self.world.fail(f"step {step} is to be validated without a checkpoint")
            self.kept.append((attempt, step))
        pending = [one for name, one in self.pending.items() if name not in before]
        return Kept(self._packed(), pending, [*self.leftovers] or None)

    def tidy(self, leftovers: Sequence[list[int]]) -> None:
        self._perhaps_fail()
        done = {step for each in leftovers for step in each}
        self.leftovers = [step for step in self.leftovers if step not in done]

    def validated(self, outcome: Outcome) -> Kept:
        self._perhaps_fail()
        if outcome.name not in self.pending:
            self.world.fail(f"{outcome} comes twice, or its checkpoint is not committed")
        if outcome.status is Status.VALIDATED and outcome.metrics != outcome.name:
            self.world.fail(f"{outcome} has the metrics of another checkpoint")
        del self.pending[outcome.name]
        self.outcomes.append(outcome)
        return Kept(self._packed())

    def failed(self, failures: int, errors: Mapping[int, BaseException]) -> None:
        self._perhaps_fail()
        if failures < self.failures or not errors:
            self.world.fail(f"{failures} failures after {self.failures}, errors: {errors}")
        self.failures = failures

    def fetch(self, batch: Any) -> bytes:
        if batch is None:
            raise RuntimeError("the batch is lost")
        assert isinstance(batch, bytes)
        return batch

    def checkpoints(self) -> bytes:
        return str(len(self.pending)).encode()

    def close(self, error: BaseException | None, value: bytes) -> Any:
        self._perhaps_fail()
        self.is_closed = True
        if self.leftovers and not isinstance(error, OSError):
            self.world.fail(f"{self.leftovers} are not tidied")
        return error, value

    def _packed(self) -> bytes:
        return str(self.latest).encode() if self.latest >= 0 else b""

    def _perhaps_fail(self) -> None:
        if self.world.rng.random() < self.fails:
            raise OSError("the storage is full")


@dataclass(eq=False)
class Training:
    """One call of `run` on one rank, as a stream of batches."""

    key: Key
    actor: SimActor
    attempt: int
    place: Place
    step: int
    number: int = 0  # of the next report
    questions: int = 0
    wanted: int = 0
    given: int = 0
    outbox: deque[tuple[list[Record], bool]] = field(default_factory=deque)
    end: Event | None = None
    has_ended: bool = False  # the function
    is_leaving: bool = False
    waits_for: tuple[str, int] | None = None
    wants_validated: bool = False
    told: set[tuple[str, int]] = field(default_factory=set)
    reported: int = 0
    preempted: dict[str, list[int]] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)  # by report


class TrainEngine(SimEngine):
    """A cluster whose actors are workers of a training."""

    def __init__(self, world: Events, chances: Chances, program: Program, nodes: int = 2) -> None:
        super().__init__(world, chances)
        self.program = program
        self.nodes = [f"node-{number}" for number in range(nodes)]
        self.trainings: dict[Key, Training] = {}
        self.all: list[Training] = []
        self._used: set[tuple[Key, int]] = set()  # processes that have run the function

    def take(self, timeout_s: float | None) -> Sequence[Event]:
        if self.world.now > LONGEST_S:
            self.world.fail("it does not end")
        return super().take(timeout_s)

    # ------------------------------------------------------------ actors

    def _create(self, key: Key) -> None:
        super()._create(key)
        self.actors[key].node = self.world.rng.choice(self.nodes)

    def _lose(self, actor: SimActor) -> None:
        for key in [key for key, call in actor.calls.items() if call.method == "run"]:
            del actor.calls[key]
            training = self.trainings.get(key)
            if training is not None:
                training.has_ended = True
                training.end = Failed(key, ActorDiedError("its process is gone"))
                self._after(lambda training=training: self._give(training))
        super()._lose(actor)

    def _run(self, actor: SimActor, call: Call) -> None:
        life, args = actor.life, call.args

        def answered(value: Any = None) -> None:
            if actor.life == life and call.key in actor.calls:
                del actor.calls[call.key]
                self.results[call.key] = value
                self._finish(call.key, Done(call.key, value))

        def begun() -> None:
            if actor.life != life or call.key not in actor.calls:
                return
            match call.method:
                case "run":
                    self._train(actor, call)
                case "leave":
                    self._leave(actor, args[0], answered)
                case "tell":
                    self._tell(actor, *args)
                    answered()
                case "rendezvous" if self._happens(self.chances.call_fails):
                    del actor.calls[call.key]
                    self._finish(call.key, Failed(call.key, ValueError("no port is free")))
                case method:
                    answered(f"{method} of {actor.key}")

        self._after(begun)

    def drain(self, node: str) -> None:
        """The node goes: told first, and some time later its workers are moved."""
        self._due.append(Noticed(NodeChanged(node, NodeState.DRAINING, "", node, {}, {})))

        def move() -> None:
            self._due.append(Noticed(NodeChanged(node, NodeState.DEAD, "it was drained", node, {}, {})))
            for actor in [actor for actor in self.actors.values() if actor.node == node]:
                actor.node = "new"
                self._restart(actor)

        self.world.at(1.0, move)

    # ------------------------------------------------------------ the training function

    def _train(self, actor: SimActor, call: Call) -> None:
        attempt, place, _, _, checkpoint, copies = call.args
        if [step for step, _ in copies if str(step).encode() != checkpoint] or len(set(copies)) < len(copies):
            self.world.fail(f"these are no copies of the checkpoint {checkpoint!r}: {copies}")
        if self.program.once and (actor.key, actor.life) in self._used:
            self.world.fail(f"attempt {attempt} begins in a process of {actor.key} that has run the function")
        self._used.add((actor.key, actor.life))
        others = {one.attempt for one in self.all if not one.has_ended}
        if others - {attempt}:
            self.world.fail(f"attempt {attempt} begins while {others} run")
        training = self.trainings.setdefault(call.key, Training(call.key, actor, attempt, place, 0))
        training.actor, training.place, training.attempt = actor, place, attempt
        training.step = int(checkpoint) + 1 if checkpoint else 0
        self.all.append(training)
        if getattr(actor, "left", 0) >= attempt:
            self._end(training, Returned(has_left=True))
        else:
            self._send(training, [Joined()])
            self._next(training)

    def _next(self, training: Training) -> None:
        """The next step, some time."""
        life = training.actor.life

        def step() -> None:
            if not training.has_ended and training.actor.life == life:
                self._step(training)

        self._after(step)

    def _step(self, training: Training) -> None:
        program, rank, step = self.program, training.place.rank, training.step
        is_last = rank == training.place.world_size - 1 and rank > 0
        if step >= program.steps or (program.returns_early and is_last and step >= program.steps // 2):
            self._end(training, Returned(str(rank).encode()))
            return
        if program.hangs and is_last and step >= program.steps // 2:
            return
        if self._happens(program.fails):
            self._fail(training, ValueError(f"step {step}"))
            return
        if self._happens(program.dies):
            self._restart(training.actor)
            return
        if training.questions == training.number and program.does("barrier", step, program.barriers):
            self._send(training, [Asked(training.number, "barrier", str(rank).encode())])
            training.questions, training.waits_for = training.number + 1, ("answer", training.number)
            return
        training.questions = training.number + 1
        told = metrics(training.attempt, rank, step)
        number, training.number = training.number, training.number + 1
        training.steps[number] = step
        training.step += 1
        records: list[Record] = []
        if program.does("checkpoint", step, program.checkpoints):
            part, name = Uploaded(number, f"part {rank}".encode()), f"step {step}"
            validation = b"v" if program.does("validation", step, program.validations) else b""
            if program.does("asynchronous", step, 0.5):
                records.append(Reported(number, told, name, validation=validation))
                self._after(lambda: self._uploaded(training, part))
            else:
                self._copied(training, number)
                records += [part, Reported(number, told, name, True, validation)]
                training.waits_for = ("committed", number + 1)
        else:
            records.append(Reported(number, told))
            if program.does("list", step, program.lists):
                training.wants_validated = program.does("validated", step, 0.5)
                records.append(Wanted(-1 - number, number + 1, training.wants_validated))
                training.waits_for = ("answer", -1 - number)
        training.reported += 1
        self._send(training, records)
        if training.waits_for is None:
            self._next(training)

    def _uploaded(self, training: Training, part: Uploaded) -> None:
        if not training.has_ended:
            self._copied(training, part.number)
            self._send(training, [part])

    def _copied(self, training: Training, number: int) -> None:
        """Perhaps an item with a copy of the files."""
        if self.world.rng.random() < self.program.copies:
            self._send(training, [Copied(number)])

    def _tell(self, actor: SimActor, attempt: int, message: Any) -> None:
        for training in self.all:
            if training.actor is actor and training.attempt == attempt and not training.has_ended:
                match message:
                    case Committed(count, checkpoint):
                        if not checkpoint:
                            self.world.fail("committed, without a checkpoint")
                        training.told |= {("committed", number) for number in range(count + 1)}
                    case Answered(number, data, is_list):
                        ranks = [str(rank).encode() for rank in range(training.place.world_size)]
                        if not is_list and decoded(data) != ranks:
                            self.world.fail(f"the answer is not that of all ranks: {data!r}")
                        if is_list and training.wants_validated and data != b"0":
                            self.world.fail(f"{data!r} validations are pending")
                        training.told.add(("answer", number))
                    case Preempted(nodes):
                        training.preempted = {node: leaving.ranks for node, leaving in nodes.items()}
                if training.waits_for in training.told:
                    training.waits_for = None
                    self._next(training)

    def _leave(self, actor: SimActor, attempt: int, answered: Any) -> None:
        actor.left = attempt  # type: ignore[attr-defined]

        def leave() -> None:
            for training in self.all:
                if training.actor is actor and training.attempt == attempt and not training.has_ended:
                    self._end(training, Returned(has_left=True))
            answered()

        late = self.world.rng.random() < self.program.leaves_late
        if late and self.world.rng.random() < 0.3:
            return  # never
        self.world.at(200.0 if late else self.world.delay_s(1.0), leave)

    def _end(self, training: Training, record: Returned) -> None:
        uploads = self._pending(training) if not record.has_left else []
        self._send(training, [*uploads, record])
        self._is_over(training, Done(training.key))

    def _pending(self, training: Training) -> list[Record]:
        """Uploads are waited for before the function has returned."""
        there = {one.number for batch, _ in training.outbox for one in batch if isinstance(one, Uploaded)}
        rank = training.place.rank
        return [Uploaded(n, f"part {rank}".encode()) for n in range(training.number) if n not in there]

    def _fail(self, training: Training, error: Exception) -> None:
        self._send(training, [Returned(has_left=True)])
        self._is_over(training, Failed(training.key, error))

    def _is_over(self, training: Training, event: Event) -> None:
        training.has_ended = True
        training.end = event
        training.actor.calls.pop(training.key, None)
        self._give(training)

    def _restart(self, actor: SimActor) -> None:
        self._lose(actor)
        actor.restarts += 1
        # What is known first, the end of the process or of its calls, is chance.
        self._due.append(ActorLost(actor.key, "its process ended"))
        restarted_s = self.world.rng.choice((0.0, self.program.restarts_late_s)) + self.world.delay_s(1.0)
        self.world.at(restarted_s, lambda: self._up(actor))

    # ------------------------------------------------------------ the stream

    def _send(self, training: Training, records: list[Record]) -> None:
        """What has left the process: its end does not lose it."""
        is_large = self.world.rng.random() < self.program.large
        training.outbox.append((records, is_large))
        self._after(lambda: self._give(training))

    def _take(self, key: Key, items: int) -> None:
        training = self.trainings.get(key)
        if training is not None:
            training.wanted += items
            self._after(lambda: self._give(training))

    def _call(self, call: Call) -> None:
        call = msgspec.structs.replace(call, args=self.resolve(tuple(call.args)))
        if call.method == "run":
            actor = self.actors.get(call.actor)
            stub = actor or SimActor(call.actor)
            self.trainings[call.key] = Training(call.key, stub, call.args[0], call.args[1], 0)
        super()._call(call)

    def _finish(self, key: Key, event: Event) -> None:
        training = self.trainings.get(key)
        if training is not None and key in self._tasks and isinstance(event, Failed):
            training.has_ended, training.end = True, event  # it could not begin
            self._give(training)
            return
        super()._finish(key, event)

    def _give(self, training: Training) -> None:
        key = training.key
        while training.wanted and training.outbox:
            records, is_large = training.outbox.popleft()
            training.wanted -= 1
            data = encode(records)
            self.results[key, training.given] = data
            match records:
                case [Copied(number)]:
                    self.results[key, training.given] = training.steps[number], training.place.rank
                    is_large = False
            self._due.append(Item(key, training.given, 100, (), None if is_large else data))
            training.given += 1
        if training.wanted and training.end is not None and not training.outbox:
            end, training.end = training.end, None
            if key in self.trainings:
                del self.trainings[key]
                super()._finish(key, end)

    def carry_out(self, effect: Any) -> None:
        if isinstance(effect, Forget) and effect.key not in self.results:
            self.world.fail(f"{effect.key} is forgotten, and not known")
        super().carry_out(effect)
