"""The execution of a data set: a controller that moves bundles between operators and starts tasks within a budget of
bytes. Pure.

Two rules decide what runs. A task starts, and a paused stream goes on, only if the next block fits (`credits`), the
operators nearest to the output first; an operator that is refused stops everything before it. And when nothing at all
is on its way, the work that is earliest in the result gets one credit over the budget, so that an execution always goes
on. So the bytes held stay within the budget plus one block for each running task, as far as blocks are as large as
predicted.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from runtime._controllers.controller import (
    Begin,
    Call,
    Cancel,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Item,
    Key,
    Reply,
    Requested,
    ResultOf,
    Sleep,
    Stop,
    Submit,
    Take,
    TimerFired,
    Wait,
)
from runtime._core.fsm import Machine
from runtime.exceptions import (
    NodeDiedError,
    ObjectLostError,
    ObjectReconstructionFailedError,
    OutOfMemoryError,
    RayActorError,
    RaySystemError,
    RayTaskError,
)

from .bundles import Bundle, Order, Work
from .credits import Ledger
from .operators import Barrier, Given, Limit, Operator, Running, Sink, Stage, Together, Union, topological
from .requests import Close, Delivered, Next, Resize
from .states import TRANSITIONS, Input, State

log = logging.getLogger(__name__)
TICK_S = 1.0
"""How often pools of actors look whether they are too large."""
STREAM_SLACK_BYTES = 1 << 20
"""A stream pauses once so much of it was not taken, and one block may go beyond it."""
MOST_TRIES = 4
"""Attempts of a call whose actor died. Of a task whose worker died the engine makes as many."""
MOST_RUNS = 3
"""How often an execution begins again, as blocks are gone for good."""
DIED = (RayActorError, NodeDiedError, ObjectLostError, RaySystemError)


@dataclass(frozen=True, slots=True)
class Limits:
    """`cpus`: how many CPUs tasks may take at a time. `errored_blocks`: failed tasks that are forgiven; -1: all."""

    budget_bytes: int
    cpus: float
    errored_blocks: int = 0


class Execution:
    """Runs the operators before a sink until the consumer has all of its bundles.

    Args:
        make: the operators, anew at each call, with equal work: see `_begin_again`.
    """

    def __init__(self, make: Callable[[], Sink], limits: Limits) -> None:
        self.machine: Machine[State, Input] = Machine("execution", State.RUNNING, TRANSITIONS)
        self.ledger = Ledger(limits.budget_bytes)
        self.errored = 0
        self.runs = 1
        self._make = make
        self._use(make())
        self._limits = limits
        self._stage_of: dict[Key, Stage] = {}
        self._effects: list[Effect] = []
        self._requests: deque[int] = deque()
        self._delivered: dict[int, Bundle] = {}
        self._numbers = 0
        self._tasks = 0
        self._since_s = 0.0
        self._now = 0.0
        self._error: BaseException | None = None

    def _use(self, sink: Sink) -> None:
        self.sink = sink
        self.operators = topological(sink)
        self.stages = [each for each in reversed(self.operators) if isinstance(each, Stage)]
        """Those nearest to the output first."""
        self._in_turn = [each for each in self.operators if isinstance(each, Limit | Together)]
        """Those whose bundles have to wait for their turn."""

    # ------------------------------------------------------------ the controller

    def step(self, event: Event, now: float) -> Sequence[Effect]:
        self._effects = []
        self._now = now
        if not isinstance(event, TimerFired):
            self._since_s = now
        match event:
            case Begin():
                self._begin()
            case Item(key):
                self._item(event)
            case Done(key):
                self._ended(key)
            case Failed(key, error):
                self._failed(key, error)
            case Requested(number, what):
                self._requested(number, what)
            case TimerFired("tick"):
                self._effects.append(Sleep("tick", TICK_S))
        self._step_groups(event)
        if self.machine.state is State.RUNNING:
            for operator in self._in_turn:
                self._advance(operator)
            self._emit()
        if self.machine.state is State.RUNNING:
            self._schedule()
        return self._effects

    def waiting_for(self) -> Sequence[Wait]:
        waits: list[Wait] = []
        if self.sink.can_emit and not self._requests:
            return []
        for stage in self.stages:
            if stage.group is not None:
                waits += stage.group.waiting_for()
            if stage.running:
                oldest = min(stage.running.values(), key=lambda task: (not task.asked, task.begun_s))
                what = f"{len(stage.running)} tasks of {stage.name}, {stage.active} of them active, "
                what += f"the oldest of which {oldest.work.told}"
                waits.append(Wait(("tasks", stage.name), what, oldest.begun_s))
            if len(stage.queue):
                held, budget = self.ledger.held_bytes >> 20, self.ledger.budget_bytes >> 20
                what = f"room for {len(stage.queue)} tasks of {stage.name}; {held} of {budget} MiB are held"
                waits.append(Wait(("room", stage.name), what, self._since_s))
        return waits

    # ------------------------------------------------------------ events

    def _begin(self) -> None:
        if any(stage.group is not None for stage in self.stages):
            self._effects.append(Sleep("tick", TICK_S))
        for operator in self.operators:
            if isinstance(operator, Given):
                for bundle in operator.bundles:
                    self._deliver(operator, bundle)
                self._finish(operator)
            elif isinstance(operator, Stage):
                self._check(operator)

    def _item(self, event: Item) -> None:
        stage = self._stage_of.get(event.key)
        if stage is None:  # of an earlier run
            self._effects.append(Forget((event.key, event.index)))
            return
        task = stage.running[event.key]
        self._settle(task)
        told = event.metadata or {}
        rows, size_bytes = told.get("rows", 0), told.get("bytes", event.size_bytes)
        key = (event.key, event.index)
        bundle = Bundle(key, ResultOf(key), rows, size_bytes, task.floor, 0, told)
        task.taken += 1
        if task.cancelled or stage.is_cut or self.machine.state is not State.RUNNING:
            self._effects.append(Forget(key))
            self._ask(stage, task)  # or nobody would hear of its end
            return
        stage.figures.add(rows, size_bytes, told)
        stage.prediction.seen(size_bytes)
        self.ledger.hold(bundle)
        self._deliver(stage, bundle)
        self._release(bundle)

    def _ended(self, key: Key) -> None:
        stage = self._stage_of.pop(key, None)
        if stage is None:
            return
        task = self._leave(stage, key)
        stage.figures.finished += 1
        self._let_go(task.work)
        self._check(stage)

    def _failed(self, key: Key, error: BaseException) -> None:
        stage = self._stage_of.pop(key, None)
        if stage is None:
            return
        task = self._leave(stage, key)
        work = task.work
        if task.cancelled or stage.is_cut or self.machine.state is not State.RUNNING:
            self._let_go(work)
        elif isinstance(error, ObjectReconstructionFailedError):
            self._begin_again(error)
            return
        elif _has_died(error) and work.tries + 1 < MOST_TRIES:
            again = dataclasses.replace(work, tries=work.tries + 1, skip=work.skip + task.taken)
            stage.figures.retried += 1
            self._enqueue(stage, again)
            self._let_go(work)
        elif 0 <= self._limits.errored_blocks <= self.errored:
            stage.figures.failed += 1
            if isinstance(error, OutOfMemoryError):
                error.add_note(f"In the operator {stage.name}, in a task that {work.told}.")
            if work.tries:
                error.add_note(f"In {stage.name}: {work.tries + 1} attempts have failed.")
            self._fail(error)
        else:
            self.errored += 1
            stage.figures.failed += 1
            log.warning("%s: a failed task is left out (max_errored_blocks): %s", stage.name, error)
            self._let_go(work)
        self._check(stage)

    def _requested(self, number: int, what: Any) -> None:
        match what:
            case Next(done):
                for each in done:
                    bundle = self._delivered.pop(each, None)
                    if bundle is not None:
                        self._release(bundle)
                self._requests.append(number)
            case Close():
                self._effects.append(Reply(number))
                self._end(Input.CLOSED)
            case Resize(budget_bytes):
                self.ledger.budget_bytes = budget_bytes
                self._effects.append(Reply(number))

    def _step_groups(self, event: Event) -> None:
        for stage in self.stages:
            if stage.group is None or (stage.is_finished and isinstance(event, TimerFired)):
                continue
            self._effects += stage.group.step(event, self._now, len(stage.queue))
            if stage.group.failure and not stage.is_finished and self.machine.state is State.RUNNING:
                self._fail(RuntimeError(f"{stage.name}: {stage.group.failure}"))

    # ------------------------------------------------------------ bundles on their way

    def _deliver(self, operator: Operator, bundle: Bundle) -> None:
        """Gives a bundle that is held to everybody who takes it; each holds it for itself."""
        for target, port in operator.outputs:
            if target.is_finished:
                continue
            match target:
                case Stage():
                    self._enqueue(target, Work(bundle.order, (bundle,)))
                case Barrier():
                    self.ledger.park(bundle)
                    target.collected[port].append(bundle)
                case Sink() if target.has_given(bundle.order):
                    pass
                case Limit() | Together() | Sink():
                    self.ledger.hold(bundle)
                    target.waiting.push(bundle)
                case Union():
                    self._deliver(target, bundle.at((port, *bundle.order)))

    def _enqueue(self, stage: Stage, work: Work) -> None:
        for bundle in work.inputs:
            if work.is_parked:
                self.ledger.park(bundle)
            else:
                self.ledger.hold(bundle)
        stage.queue.push(work)

    def _let_go(self, work: Work) -> None:
        for bundle in work.inputs:
            if work.is_parked:
                self._unpark(bundle)
            else:
                self._release(bundle)

    def _release(self, bundle: Bundle) -> None:
        if self.ledger.release(bundle) and isinstance(bundle.source, ResultOf):
            self._effects.append(Forget(bundle.key))

    def _unpark(self, bundle: Bundle) -> None:
        if self.ledger.unpark(bundle) and isinstance(bundle.source, ResultOf):
            self._effects.append(Forget(bundle.key))

    def _advance(self, operator: Limit | Together) -> None:
        """Lets rows through whose turn it is."""
        while len(operator.waiting) and not operator.is_finished:
            if operator.waiting.first.order >= operator.inputs[0].floor():
                return
            if isinstance(operator, Limit):
                self._let_through(operator, operator.waiting.pop())
            else:
                bundle = operator.waiting.pop()
                operator.gathered.append(bundle)
                if operator.is_parked:
                    self.ledger.park(bundle)
                    self._release(bundle)
                if operator.is_full:
                    self._pass_on(operator)

    def _let_through(self, limit: Limit, bundle: Bundle) -> None:
        let = bundle.part(0, min(bundle.rows, limit.left)) if bundle.rows > limit.left else bundle
        limit.left -= let.rows
        self._deliver(limit, let)
        self._release(bundle)
        if not limit.left:
            self._finish(limit)

    def _pass_on(self, together: Together) -> None:
        gathered, together.gathered = tuple(together.gathered), []
        for target, _ in together.outputs:
            if isinstance(target, Stage) and gathered and not target.is_finished:
                self._enqueue(target, Work(gathered[0].order, gathered, is_parked=together.is_parked))
        self._let_go(Work((), gathered, is_parked=together.is_parked))

    def _emit(self) -> None:
        """Answers requests of the consumer."""
        sink = self.sink
        while self._requests and sink.can_emit:
            bundle = sink.give()
            self._delivered[self._numbers] = bundle
            self._effects.append(
                Reply(self._requests.popleft(), (Delivered(self._numbers, bundle), bundle.source))
            )
            self._numbers += 1
        if self._requests and sink.is_finished and not len(sink.waiting):
            while self._requests:
                self._effects.append(Reply(self._requests.popleft()))
            self._end(Input.ALL_TAKEN)

    # ------------------------------------------------------------ ends of operators

    def _check(self, operator: Operator) -> None:
        """Finishes an operator that has nothing left to do."""
        if operator.is_finished or operator.open_inputs:
            return
        match operator:
            case Stage() if not operator.is_idle:
                return
            case Limit() | Together():
                self._advance(operator)
                if operator.is_finished:
                    return
                if isinstance(operator, Together):
                    self._pass_on(operator)
            case Barrier():
                self._plan(operator)
        self._finish(operator)

    def _finish(self, operator: Operator) -> None:
        operator.is_finished = True
        operator.figures.ended_s = self._now
        if isinstance(operator, Stage) and operator.group is not None:
            self._effects += operator.group.end(self._now)
        if isinstance(operator, Limit):
            self._drop_waiting(operator)
        for each in operator.inputs:
            self._cut(each)
        for target, _ in operator.outputs:
            target.open_inputs -= 1
            self._check(target)

    def _cut(self, operator: Operator) -> None:
        """Stops an operator whose bundles nobody wants any more, and what is before it."""
        if operator.is_finished or operator.is_cut:
            return
        if not all(target.is_finished or target.is_cut for target, _ in operator.outputs):
            return
        operator.is_cut = operator.is_finished = True
        match operator:
            case Stage():
                for work in operator.queue.drain():
                    self._let_go(work)
                for task in operator.running.values():
                    task.cancelled = True
                    self._effects.append(Cancel(task.key))
                    self._ask(operator, task)  # or nobody would hear of its end
                if operator.group is not None:
                    self._effects += operator.group.end(self._now)
            case Limit() | Together():
                self._drop_waiting(operator)
            case Barrier():
                for bundles in operator.collected:
                    for bundle in bundles:
                        self._unpark(bundle)
        for each in operator.inputs:
            self._cut(each)

    def _drop_waiting(self, operator: Limit | Together) -> None:
        for bundle in operator.waiting.drain():
            self._release(bundle)
        if isinstance(operator, Together):
            self._let_go(Work((), tuple(operator.gathered), is_parked=operator.is_parked))
            operator.gathered = []

    def _plan(self, barrier: Barrier) -> None:
        """Everything has come: has the work planned and given to the stage behind."""
        collected, barrier.collected = barrier.collected, []
        for bundles in collected:
            bundles.sort(key=lambda bundle: bundle.order)
        try:
            planned = barrier.plan(collected)
        except Exception as error:
            self._fail(error)
            planned = ()
        for target, _ in barrier.outputs:
            if isinstance(target, Stage):
                for work in planned:
                    self._enqueue(target, dataclasses.replace(work, is_parked=True))
        for bundles in collected:
            for bundle in bundles:
                self._unpark(bundle)

    # ------------------------------------------------------------ tasks

    def _schedule(self) -> None:
        """Starts tasks and asks for blocks as far as the budget allows."""
        for stage in self.stages:
            if not self._serve(stage):
                break
        else:
            return
        if self._delivered or self.sink.can_emit or any(stage.active for stage in self.stages):
            return  # a consumer that waits has let go of what it had
        self._grant_one()

    def _serve(self, stage: Stage) -> bool:
        """Whether nothing of this stage waits for credit."""
        for task in sorted((task for task in stage.running.values() if not task.asked), key=_place):
            if not self.ledger.fits(stage.prediction.block_bytes):
                return False
            self._ask(stage, task)
        while len(stage.queue) and self._has_slot(stage):
            if not self.ledger.fits(2 * stage.prediction.block_bytes):
                return False
            self._launch(stage)
        return True

    def _grant_one(self) -> None:
        """Nothing is on its way: one credit for the earliest work in the result."""
        best: tuple[tuple[int, ...], Stage, Running | None] | None = None
        for stage in self.stages:
            candidates: list[tuple[tuple[int, ...], Stage, Running | None]] = [
                (task.floor, stage, task) for task in stage.running.values() if not task.asked
            ]
            if len(stage.queue) and self._has_slot(stage):
                candidates.append((stage.queue.first.order, stage, None))
            for candidate in candidates:
                if best is None or candidate[0] < best[0]:
                    best = candidate
        if best is None:
            return
        _, stage, task = best
        if task is not None:
            self._ask(stage, task)
        else:
            self._launch(stage)

    def _has_slot(self, stage: Stage) -> bool:
        if not stage.has_room:
            return False
        if stage.group is not None:
            return True
        return sum(each.spec.cpus * each.busy for each in self.stages) < self._limits.cpus

    def _launch(self, stage: Stage) -> None:
        work = stage.queue.pop()
        key = ("task", self._tasks)
        self._tasks += 1
        layout = tuple((bundle.start, bundle.rows) for bundle in work.inputs)
        args = (layout, work.args, work.skip, work.order, *(bundle.source for bundle in work.inputs))
        options = {**stage.spec.options, "_generator_backpressure_num_bytes": STREAM_SLACK_BYTES}
        if stage.group is None:
            self._effects.append(
                Submit(key, stage.spec.function, (stage.spec.program, *args), options=options)
            )
        else:
            options["num_returns"] = "streaming"
            for effect in stage.group.call(key, "run", args, self._now):
                if isinstance(effect, Call):
                    effect = msgspec.structs.replace(effect, options=options)
                self._effects.append(effect)
        block_bytes = stage.prediction.block_bytes
        task = stage.running[key] = Running(key, work, block_bytes, self._now)
        self.ledger.reserve(block_bytes)
        self._stage_of[key] = stage
        stage.figures.tasks += 1
        if stage.figures.begun_s is None:
            stage.figures.begun_s = self._now
        self._ask(stage, task)

    def _ask(self, stage: Stage, task: Running) -> None:
        if task.asked:
            return
        task.asked = True
        task.asked_bytes = stage.prediction.block_bytes
        self.ledger.reserve(task.asked_bytes)
        self._effects.append(Take(task.key))

    def _settle(self, task: Running) -> None:
        """What was asked for has come, or will never come."""
        if task.asked:
            task.asked = False
            self.ledger.reserve(-task.asked_bytes)

    def _leave(self, stage: Stage, key: Key) -> Running:
        task = stage.running.pop(key)
        self._settle(task)
        self.ledger.reserve(-task.reserved_bytes)
        return task

    # ------------------------------------------------------------ the end

    def _fail(self, error: BaseException) -> None:
        if self.machine.state is State.RUNNING:
            self._error = error
            self._end(Input.ERROR)

    def _end(self, why: Input) -> None:
        if self.machine.state is not State.RUNNING:
            return
        self.machine.step(why, self._now)
        self._stop_all()
        self._effects.append(Stop(error=self._error))

    def _stop_all(self) -> None:
        for stage in self.stages:
            for key in stage.running:
                self._effects.append(Cancel(key))
            if stage.group is not None:
                self._effects += stage.group.end(self._now)

    # ------------------------------------------------------------ once more

    def _begin_again(self, error: BaseException) -> None:
        """Blocks are gone for good, as those that an actor made are when their node and the actor are gone: everything
        runs once more, and what was delivered is left out. That keeps nothing for the case that a node dies."""
        if self.machine.state is not State.RUNNING:
            return
        if self.runs >= MOST_RUNS:
            self._fail(error)
            return
        log.warning("Blocks were lost and cannot be rebuilt: the data set runs again. %s", error)
        self._stop_all()
        self._effects += [Forget(key) for key in self.ledger.clear()]
        self._reset()
        self._begin()

    def reopen(self, lost: Sequence[Order]) -> None:
        """It has ended, and its consumer could not read the bundles of these places, the last ones that were given. It
        can run once more, in another loop."""
        self.sink.take_back(lost)
        self.machine = Machine("execution", State.RUNNING, TRANSITIONS)
        self.ledger.clear()
        self._requests.clear()
        self._reset()

    def _reset(self) -> None:
        self.runs += 1
        self.errored = 0
        self._stage_of.clear()
        self._delivered.clear()
        given = self.sink.given
        self._use(self._make())
        self.sink.given = given


def _has_died(error: BaseException) -> bool:
    """Whether a process or node failed, and not the user's code."""
    return isinstance(error, DIED) and (
        not isinstance(error, RayTaskError) or isinstance(error, ObjectLostError)
    )


def _place(task: Running) -> tuple[int, ...]:
    return task.floor
