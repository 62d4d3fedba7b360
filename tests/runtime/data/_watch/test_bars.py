"""The lines that a terminal shows of an execution."""

from __future__ import annotations

from runtime.data._exec.bundles import Work
from runtime.data._exec.operators import Sink, Stage, TaskSpec
from runtime.data._exec.state import Execution, Limits
from runtime.data._watch.bars import last_line, lines, number, size
from runtime.data._watch.views import view

MIB = 1 << 20


def execution() -> tuple[Execution, Stage, Stage]:
    """Ten tasks that read, and one for each of their blocks."""
    read = Stage("Read", [], TaskSpec(), seeds=[Work((n,)) for n in range(10)])
    doubled = Stage("map(double)", [read], TaskSpec())
    return Execution(lambda: Sink(doubled, is_ordered=True), Limits(64 * MIB, 4)), read, doubled


def test_before_the_first_task_little_is_known() -> None:
    made, _, _ = execution()
    assert lines("ds", view(made, 0.0)) == [
        "ds: 0 rows, 0 B of 64 MiB held, 0 s",
        "  Read          0%|                | 0/10 tasks, 0 rows, waits for CPUs",
        "  map(double)    ?|                | 0/? tasks, 0 rows, waits for input",
    ]
    assert lines("ds", view(made, 0.0), with_operators=False) == ["ds: 0 rows, 0 B of 64 MiB held, 0 s"]


def test_tasks_to_come_are_estimated_from_those_that_ended() -> None:
    made, read, doubled = execution()
    for _ in range(5):
        read.queue.pop()
        read.figures.finished += 1
        read.figures.add(300_000, MIB, {})
        read.figures.add(300_000, MIB, {})
    read.figures.begun_s = doubled.figures.begun_s = 1.0
    doubled.figures.finished = 4
    doubled.figures.failed = 1
    doubled.figures.add(1000, MIB, {"task_s": 0.5, "paused_s": 0.25})
    seen = view(made, 11.0)
    assert [each.expected for each in seen.operators] == [10, 20]
    assert seen.operators[1].paused_s == 0.25
    assert lines("ds", seen) == [
        "ds: 1.0k rows, 0 B of 64 MiB held, 10 s",
        "  Read         50%|########        | 5/10 tasks, 3.0M rows, 300k rows/s, waits for CPUs",
        "  map(double)  20%|###             | 4/20 tasks, 1.0k rows, 100 rows/s, 1 failed, waits for input",
    ]
    assert last_line("ds", seen, failed=True) == "ds: 1.0k rows failed after 10.0 s"


def test_numbers_are_short() -> None:
    assert [number(n) for n in (0, 999, 1000, 12_345, 5_000_000, 7e12)] == [
        "0",
        "999",
        "1.0k",
        "12k",
        "5.0M",
        "7000G",
    ]
    assert [size(n) for n in (0, 1536, 20 * MIB)] == ["0 B", "1.5 KiB", "20 MiB"]
