"""Trials that train with PyTorch Lightning."""

from __future__ import annotations

import logging
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train.lightning._library import pl
from runtime.tune._api.reporting import report

log = logging.getLogger(__name__)
_HOOKS = frozenset(name[3:] for name in dir(pl.callbacks.Callback) if name.startswith("on_")) - {
    "exception",
    "save_checkpoint",  # no other checkpoint can be saved meanwhile
    "load_checkpoint",
}


class TuneCallback(pl.callbacks.Callback):  # type: ignore[misc]
    """Base of callbacks that do something at hooks of Lightning.

    Args:
        on: The hooks, without "on_", such as "validation_end" or "train_epoch_end".

    Raises:
        ValueError: There is no such hook.
    """

    def __init__(self, on: str | Sequence[str] = "validation_end") -> None:
        super().__init__()
        for hook in [on] if isinstance(on, str) else on:
            if hook not in _HOOKS:
                raise ValueError(
                    f"on must be hooks of Lightning, without on_: {', '.join(sorted(_HOOKS))}; not {hook!r}."
                )
            setattr(self, f"on_{hook}", self._called)

    def _called(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        self._handle(trainer, pl_module)

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _handle().")


class TuneReportCheckpointCallback(TuneCallback):
    """Reports the trainer's metrics to the trial, with a checkpoint.

    Args:
        metrics: Those to report, or a dict from new names to them. Default: all.
        filename: Of Lightning's checkpoint in the trial's.
        save_checkpoints: Whether there is a checkpoint with each report.
        on: The hooks of Lightning at which it reports, without "on_".

    Raises:
        ValueError: There is no such hook.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(on)
        named = [metrics] if isinstance(metrics, str) else metrics
        self._metrics = (
            named if named is None or isinstance(named, Mapping) else {name: name for name in named}
        )
        self._filename = filename
        self._saves = save_checkpoints

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        found = {name: value.item() for name, value in trainer.callback_metrics.items()}
        if self._metrics is not None:
            missing = [theirs for theirs in self._metrics.values() if theirs not in found]
            if missing:
                log.warning("Lightning has no metrics %s; it has %s", missing, sorted(found))
            found = {name: found[theirs] for name, theirs in self._metrics.items() if theirs in found}
        if not found:
            return
        if not self._saves:
            report(found)
            return
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_checkpoint(pathlib.Path(folder, self._filename), weights_only=False)
            report(found, checkpoint=Checkpoint.from_directory(folder))


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports the trainer's metrics to the trial, without checkpoints.

    Args: see `TuneReportCheckpointCallback`.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)
