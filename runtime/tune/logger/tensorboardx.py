"""Results for TensorBoard."""

from __future__ import annotations

import importlib.util
import numbers
from typing import Any

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import flat

_AUTOMATIC = frozenset({"config", "pid", "timestamp", "training_iteration", "timesteps_total"})


class TBXLoggerCallback(LoggerCallback):
    """Writes numbers for TensorBoard, by tensorboardX, under `ray/tune/`.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self) -> None:
        if not is_installed():
            raise ImportError(
                "TBXLoggerCallback needs tensorboardX, which is not installed: pip install tensorboardX"
            )
        self._writers: dict[Any, Any] = {}

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        writer = self._writers.get(trial)
        if writer is None:
            from tensorboardX import SummaryWriter

            writer = self._writers[trial] = SummaryWriter(trial.local_path, flush_secs=30)
        step = result.get("timesteps_total") or result["training_iteration"]
        for name, value in flat(result).items():
            if name.partition("/")[0] in _AUTOMATIC or isinstance(value, bool):
                continue
            if isinstance(value, numbers.Real):
                writer.add_scalar(f"ray/tune/{name}", float(value), global_step=step)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        writer = self._writers.pop(trial, None)
        if writer is not None:
            writer.close()


def is_installed() -> bool:
    """Whether tensorboardX can be imported."""
    return importlib.util.find_spec("tensorboardX") is not None
