"""What a run of training ends with."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.exceptions import TrainingFailedError
from runtime.train._core import retention

if TYPE_CHECKING:
    import pandas

_CONFIG = "config.json"
_END = "result.json"


@dataclass
class Result:
    """The result of `fit`.

    Attributes:
        metrics: those of the latest checkpoint; None: there is none.
        checkpoint: the latest; None: there is none.
        error: why the run failed.
        path: of the run's folder, on `filesystem`.
        best_checkpoints: those that are kept, with the metrics of rank 0, in the order of their commits, or with the
            best last if `CheckpointConfig.checkpoint_score_attribute` ranks them.
        return_value: of the training function on rank 0.
        config: the run's configuration, where its folder has it.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: TrainingFailedError | None
    path: str
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]]
    return_value: Any = None
    config: dict[str, Any] | None = None
    _filesystem: Any = field(default=None, repr=False)

    @property
    def filesystem(self) -> Any:
        """The file system of `path`. See `Checkpoint.filesystem`."""
        from runtime.train._run import files

        return files.public(self.path, self._filesystem)[0]

    @property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """A row of metrics for each of `best_checkpoints`; None if there are none. Needs pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        if not self.best_checkpoints:
            return None
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "metrics_dataframe needs pandas, which is not installed here: pip install pandas"
            ) from None
        return pandas.DataFrame([metrics for _, metrics in self.best_checkpoints])

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """The checkpoint with the best value of a metric. Those without the metric, or where it is NaN, do not count.

        Args:
            metric: its name, "outer/inner" for one in a dict.
            mode: whether "max" or "min" is best.

        Raises:
            ValueError: the mode is another one, or the metric no number.
            RuntimeError: no checkpoint has the metric.
        """
        if mode not in ("max", "min"):
            raise ValueError(f'mode must be "max" or "min", not {mode!r}.')
        if not self.best_checkpoints:
            raise RuntimeError(f"The run {self.path} has no checkpoint.")
        having = [
            (str(index), metrics)
            for index, (_, metrics) in enumerate(self.best_checkpoints)
            if retention.lookup(metrics, metric) is not None
        ]
        if not having:
            known = sorted({name for _, metrics in self.best_checkpoints for name in metrics})
            raise RuntimeError(
                f"No checkpoint of the run {self.path} has the metric {metric!r}. Their metrics are: "
                f"{', '.join(known) or 'none'}."
            )
        return self.best_checkpoints[int(retention.best(having, 1, metric, mode)[0])][0]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """The result of a run, from its folder, without the error and the returned value.

        Args:
            path: of the run's folder: a local path, a URI, or a path on `storage_filesystem`.
            storage_filesystem: of `pyarrow.fs` or fsspec.

        Raises:
            RuntimeError: there is no run.
            StorageError: the folder cannot be read.
        """
        from runtime.train._run import files
        from runtime.train._run.storage import RunStorage

        given = os.fspath(path).rstrip("/")
        if files.is_local(given, storage_filesystem):
            given = files.local_path(given)
        storage = RunStorage(*files.split(given), storage_filesystem)
        committed = storage.committed()
        config, end = storage.read(_CONFIG), storage.read(_END)
        if not committed and not config and not end:
            raise RuntimeError(
                f"There is no run in {files.shown(given)}: it has neither a checkpoint with a manifest nor {_CONFIG}."
            )
        return cls(
            metrics=committed[-1].metrics if committed else None,
            checkpoint=committed[-1].checkpoint if committed else None,
            error=None,
            path=storage.folder,
            best_checkpoints=[(one.checkpoint, one.metrics) for one in committed],
            config=json.loads(config) if config else None,
            _filesystem=None if storage.is_local else storage.storage_filesystem,
        )
