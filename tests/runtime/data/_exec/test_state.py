"""What an execution does with events that the simulation has no cases of: pure."""

from __future__ import annotations

from runtime._controllers.controller import Begin, Done, Failed, Requested, Stop, Submit
from runtime.data._exec.bundles import Bundle, Work
from runtime.data._exec.operators import Sink, Stage, TaskSpec
from runtime.data._exec.requests import Next
from runtime.data._exec.state import Execution, Limits
from runtime.data.datasource import BlockMetadata, ReadTask
from runtime.exceptions import OutOfMemoryError


def test_a_task_that_ran_out_of_memory_is_named_with_its_input() -> None:
    group = Bundle("block", "block", 1000, 300 << 20)
    stage = Stage("MapGroups[k]", [], TaskSpec("function"), seeds=[Work((0,), (group,))])
    execution = Execution(lambda: Sink(stage, is_ordered=True), Limits(1 << 30, 1))
    execution.ledger.hold(group)
    effects = [*execution.step(Begin(), 0.0), *execution.step(Requested(0, Next()), 0.0)]
    (submitted,) = [effect for effect in effects if isinstance(effect, Submit)]
    error = OutOfMemoryError("the worker was killed")
    ended = execution.step(Failed(submitted.key, error), 1.0)
    assert [effect.error for effect in ended if isinstance(effect, Stop)] == [error]
    assert error.__notes__ == [
        "In the operator MapGroups[k], in a task that has 1000 rows (300 MiB) of input."
    ]


def test_the_task_that_runs_longest_is_told_with_its_input() -> None:
    known = [BlockMetadata(10, 80, input_files=[f"{i}.csv", "more.csv"]) for i in range(3)]
    works = [Work((i,), args=(ReadTask(list, each),)) for i, each in enumerate(known)]
    stage = Stage("read", [], TaskSpec("function"), seeds=works)
    execution = Execution(lambda: Sink(stage, is_ordered=True), Limits(1 << 30, 2))
    execution.step(Begin(), 0.0)
    first, _ = stage.running
    execution.step(Done(first), 5.0)
    (tasks,) = execution.waiting_for()
    assert tasks.what == "2 tasks of read, 2 of them active, the oldest of which reads 1.csv and 1 more files"
    assert tasks.since_s == 0.0
