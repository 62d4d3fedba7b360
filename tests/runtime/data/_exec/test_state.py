"""What an execution does with events that the simulation has no cases of: pure."""

from __future__ import annotations

from runtime._controllers.controller import Begin, Failed, Requested, Stop, Submit
from runtime.data._exec.bundles import Bundle, Work
from runtime.data._exec.operators import Sink, Stage, TaskSpec
from runtime.data._exec.requests import Next
from runtime.data._exec.state import Execution, Limits
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
    assert error.__notes__ == ["In the operator MapGroups[k], in a task with 1000 rows (300 MiB) of input."]
