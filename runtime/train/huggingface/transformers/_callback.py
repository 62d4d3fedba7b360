"""Reports of a trainer of Transformers."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from typing import Any

import torch.distributed as distributed
import transformers

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.reporting import get_context, report


class RayTrainReportCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Reports the metrics and a checkpoint whenever the trainer saves one.

    The checkpoint has the trainer's in the folder `checkpoint`. The metrics are the last of each name that the trainer
    logged: log, evaluate and save at the same steps to have those of the checkpoint.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer, on every worker."""
        metrics: dict[str, Any] = {}
        for entry in state.log_history:
            metrics.update(entry)
        if distributed.is_initialized():
            distributed.barrier()  # until the ranks of the node have written their random states
        saved = pathlib.Path(
            args.output_dir, f"{transformers.trainer_utils.PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        )
        if get_context().get_local_rank() != 0 or not saved.is_dir():
            report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix=".report-", dir=args.output_dir) as folder:
            shutil.copytree(saved, pathlib.Path(folder, self.CHECKPOINT_NAME), copy_function=_link)
            report(metrics, checkpoint=Checkpoint.from_directory(folder))


def _link(source: str, target: str) -> None:
    """A second name of a file; a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
