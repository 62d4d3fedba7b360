"""What an execution has done, as text."""

from __future__ import annotations

from runtime.data._exec.operators import Stage
from runtime.data._exec.state import Execution

MIB = 1 << 20


def summary(execution: Execution) -> str:
    """One paragraph for each operator that has run tasks, sources first, and the bytes that were held."""
    lines: list[str] = []
    for number, stage in enumerate(each for each in execution.operators if isinstance(each, Stage)):
        figures = stage.figures
        wall_s = 0.0
        if figures.begun_s is not None:
            wall_s = (figures.ended_s or figures.begun_s) - figures.begun_s
        failed = f", {figures.failed} failed" if figures.failed else ""
        lines += [
            f"Operator {number} {stage.name}: {figures.tasks} tasks{failed}, {figures.blocks} blocks in {wall_s:.2f} s",
            f"* Rows: {figures.rows}",
            f"* Bytes: {figures.size_bytes / MIB:.1f} MiB",
            f"* The largest block: {stage.prediction.block_bytes / MIB:.1f} MiB",
            f"* Time of tasks: {figures.task_s:.2f} s",
            "",
        ]
    ledger = execution.ledger
    lines.append(
        f"Blocks held at most: {ledger.peak_bytes / MIB:.1f} MiB of {ledger.budget_bytes / MIB:.1f} MiB"
    )
    return "\n".join(lines)
