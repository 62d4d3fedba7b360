"""An execution at one moment. Reading one is safe in any thread: the loop's thread alone changes it, and what is read
here are numbers and copies of lists, which may be of slightly different moments."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.data._exec.operators import Operator, Stage
from runtime.data._exec.state import Execution


@dataclass(frozen=True, slots=True)
class OperatorView:
    """A stage at one moment.

    Attributes:
        expected: how many tasks it will have run in the end; an estimate until its inputs are complete, None if there
            is nothing to estimate from.
        held_bytes: blocks that wait for its tasks, or are read by them.
        waits_for: why it does not start or continue a task now; "" if it does, or has finished.
        seconds: since its first task began, until its end.
    """

    name: str
    submitted: int
    running: int
    finished: int
    failed: int
    expected: int | None
    blocks: int
    rows: int
    size_bytes: int
    held_bytes: int
    block_s: float
    paused_s: float
    waits_for: str
    is_finished: bool
    seconds: float

    @property
    def done_part(self) -> float | None:
        """The finished part of its tasks, between 0 and 1; None if that is not known."""
        if self.is_finished:
            return 1.0
        return None if not self.expected else min(1.0, self.finished / self.expected)


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """An execution at one moment. `rows`: that its last operator has made. `seconds`: since its first task."""

    operators: tuple[OperatorView, ...]
    held_bytes: int
    budget_bytes: int
    seconds: float

    @property
    def rows(self) -> int:
        return self.operators[-1].rows if self.operators else 0


def view(execution: Execution, now: float) -> ExecutionView:
    """What an execution has done, and does.

    Args:
        now: by the clock of its loop.
    """
    expected: dict[int, int | None] = {}
    views: list[OperatorView] = []
    for operator in execution.operators:
        expected[id(operator)] = _expected(operator, expected)
        if isinstance(operator, Stage):
            views.append(_stage(execution, operator, expected[id(operator)], now))
    ledger = execution.ledger
    seconds = max((each.seconds for each in views), default=0.0)
    return ExecutionView(tuple(views), ledger.held_bytes, ledger.budget_bytes, seconds)


def _stage(execution: Execution, stage: Stage, expected: int | None, now: float) -> OperatorView:
    figures = stage.figures
    end_s = figures.ended_s if figures.ended_s is not None else now
    waiting = [*stage.queue.items(), *(task.work for task in list(stage.running.values()))]
    return OperatorView(
        stage.name,
        figures.tasks,
        len(stage.running),
        figures.finished,
        figures.failed,
        expected,
        figures.rows.count,
        int(figures.rows.total),
        int(figures.size_bytes.total),
        sum(bundle.size_bytes for work in waiting for bundle in work.inputs),
        figures.wall_s.total,
        figures.paused_s,
        _waits_for(execution, stage),
        stage.is_finished,
        0.0 if figures.begun_s is None else max(0.0, end_s - figures.begun_s),
    )


def _expected(operator: Operator, known: dict[int, int | None]) -> int | None:
    """How many bundles go into a stage, which is as many tasks; how many come out of another operator."""
    inputs = [_bundles(each, known) for each in operator.inputs]
    total = None if None in inputs else sum(each or 0 for each in inputs)
    if not isinstance(operator, Stage):
        return total
    figures = operator.figures
    begun = figures.finished + figures.failed + len(operator.running) + len(operator.queue)
    if not operator.open_inputs:
        return begun
    return None if total is None else max(total, begun)


def _bundles(operator: Operator, known: dict[int, int | None]) -> int | None:
    """How many bundles an operator will have made."""
    blocks = operator.figures.rows.count
    if operator.is_finished and isinstance(operator, Stage):
        return blocks
    expected = known[id(operator)]
    if not isinstance(operator, Stage) or expected is None:
        return None if isinstance(operator, Stage) else expected
    finished = operator.figures.finished
    return max(blocks, round(expected * blocks / finished)) if finished else None


def _waits_for(execution: Execution, stage: Stage) -> str:
    if stage.is_finished:
        return ""
    running = list(stage.running.values())
    if any(task.asked for task in running):
        return ""
    if not running and not len(stage.queue):
        return "input"
    if not execution.ledger.fits(stage.prediction.block_bytes):
        return "memory"
    if running:
        return "the consumer"
    return "an actor" if stage.group is not None else "CPUs"
