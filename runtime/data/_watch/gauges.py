"""The metrics of running data sets, with Ray's names: `ray_data_output_rows` and the like, by `dataset` and
`operator`. They are gone when the data set ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.util.metrics import Gauge

from .views import ExecutionView, OperatorView

Reads = Callable[[OperatorView], float]
_SHOWN: dict[str, tuple[str, Reads]] = {
    "data_output_rows": ("rows of the blocks that an operator has made", lambda op: op.rows),
    "data_output_bytes": ("bytes of the blocks that an operator has made", lambda op: op.size_bytes),
    "data_current_bytes": ("bytes of the blocks that wait for an operator", lambda op: op.held_bytes),
    "data_num_tasks_submitted": ("tasks that were started", lambda op: op.submitted),
    "data_num_tasks_running": ("tasks that run", lambda op: op.running),
    "data_num_tasks_finished": ("tasks that have finished", lambda op: op.finished),
    "data_num_tasks_failed": ("tasks that have failed", lambda op: op.failed),
    "data_block_generation_time": ("seconds that tasks took to make blocks", lambda op: op.block_s),
    "data_task_output_backpressure_time": (
        "seconds that tasks waited until their blocks were taken",
        lambda op: op.paused_s,
    ),
}
_TAGS = ("dataset", "operator")
_gauges: dict[str, Any] = {}


def show(name: str, view: ExecutionView) -> None:
    """Sets the metrics of a data set."""
    for number, operator in enumerate(view.operators):
        tags = {"dataset": name, "operator": tag(number, operator)}
        for metric, (description, reads) in _SHOWN.items():
            _gauge(metric, description).set(float(reads(operator)), tags)


def show_spilled(name: str, view: ExecutionView, disk_bytes: Callable[[str], int]) -> None:
    """Sets how much of an operator's blocks lies on disk.

    Args:
        disk_bytes: of the blocks of operators with this name.
    """
    for number, operator in enumerate(view.operators):
        gauge = _gauge("data_spilled_bytes", "bytes on disk of the blocks that an operator has made")
        gauge.set(float(disk_bytes(operator.name)), {"dataset": name, "operator": tag(number, operator)})


def remove(name: str) -> None:
    """The data set has ended."""
    from runtime._extension import metrics

    metrics.remove("dataset", name)


def tag(number: int, operator: OperatorView) -> str:
    """The value of the tag `operator`: its name with its place in the plan."""
    return f"{operator.name[:100]}_{number}"


def _gauge(name: str, description: str) -> Any:
    if name not in _gauges:
        _gauges[name] = Gauge(name, description, tag_keys=_TAGS)
    return _gauges[name]
