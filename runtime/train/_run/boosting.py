"""What trainers and callbacks of XGBoost and LightGBM have in common: their arguments, which metrics are reported, and
when a model is saved."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.reporting import get_context, report
from runtime.train._api.trainer import DataParallelTrainer

Metrics = str | Sequence[str] | Mapping[str, str]


class BoostingTrainer(DataParallelTrainer):
    """Refuses what Ray's trainers of earlier versions took in place of a training function.

    Args:
        train_loop_per_worker: the training function.
        params, label_column, num_boost_round, dmatrix_params: the older arguments.
        options: of `DataParallelTrainer`.

    Raises:
        DeprecationWarning: one of the older arguments is given, as in Ray.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        label_column: str | None = None,
        num_boost_round: int | None = None,
        dmatrix_params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        legacy = {
            "params": params,
            "label_column": label_column,
            "num_boost_round": num_boost_round,
            "dmatrix_params": dmatrix_params,
        }
        given = [argument for argument, value in legacy.items() if value is not None]
        if given:
            raise DeprecationWarning(
                f"{name} does not take {', '.join(given)} any more. Write a training function, and pass it as "
                "train_loop_per_worker: it takes its rows from ray.train.get_dataset_shard(), calls the library's own "
                "train(), and reports by RayTrainReportCallback."
            )
        if train_loop_per_worker is None:
            raise TypeError(f"{name} needs a training function: train_loop_per_worker.")
        super().__init__(train_loop_per_worker, **options)


class BoostingCallback:
    """Reports after iterations; rank 0 with a checkpoint, since all ranks have the same model.

    Args:
        metrics: those to report, or new names to theirs; None: all.
        filename: of the model in the checkpoint. Default: CHECKPOINT_NAME.
        frequency: iterations between two checkpoints; 0: none.
        checkpoint_at_end: the last iteration has a checkpoint.
        results_postprocessing_fn: makes what is reported of the metrics.
    """

    CHECKPOINT_NAME: str

    def __init__(
        self,
        metrics: Metrics | None = None,
        filename: str | None = None,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._metrics = [metrics] if isinstance(metrics, str) else metrics
        self._filename = filename or self.CHECKPOINT_NAME
        self._frequency = frequency
        self._checkpoint_at_end = checkpoint_at_end
        self._postprocessing = results_postprocessing_fn
        self._last: dict[str, Any] = {}
        self._saved = -1  # the last iteration with a checkpoint

    def _after(self, iteration: int, metrics: dict[str, Any], save: Callable[[str], object]) -> None:
        """An iteration is over, from 0. `save`: writes the model to a path."""
        self._last = self._chosen(metrics)
        if self._frequency and (iteration + 1) % self._frequency == 0:
            self._saved = iteration
            self._report(save)
        else:
            self._send(self._last)

    def _end(self, iteration: int, save: Callable[[str], object]) -> None:
        """The training is over; `iteration`: its last."""
        if self._checkpoint_at_end and self._saved != iteration:
            self._report(save)

    def _report(self, save: Callable[[str], object]) -> None:
        if not self._has_checkpoint():
            self._send(self._last)
            return
        with tempfile.TemporaryDirectory() as folder:
            save(str(pathlib.Path(folder, self._filename)))
            self._send(self._last, Checkpoint.from_directory(folder))

    def _has_checkpoint(self) -> bool:
        """Whether this process saves the model."""
        return not get_context().get_world_rank()

    def _send(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        report(metrics, checkpoint=checkpoint)

    def _chosen(self, metrics: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self._metrics, Mapping):
            metrics = {name: metrics[theirs] for name, theirs in self._metrics.items()}
        elif self._metrics is not None:
            metrics = {name: metrics[name] for name in self._metrics}
        return self._postprocessing(metrics) if self._postprocessing is not None else metrics
