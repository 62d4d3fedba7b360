"""Reports of a Lightning trainer."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import uuid
from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.config import CheckpointUploadMode
from runtime.train._api.reporting import get_context, report
from runtime.train.lightning._library import pl


class RayTrainReportCallback(pl.callbacks.Callback):  # type: ignore[misc]
    """Reports the metrics and a checkpoint at the end of each epoch of training.

    The checkpoint has Lightning's in `checkpoint.ckpt`: a file, or a folder of shards.

    Args:
        checkpoint_upload_mode: how the checkpoint is uploaded; SYNC by default.
        validation: whether the checkpoint is validated (`report`).
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(
        self, checkpoint_upload_mode: CheckpointUploadMode | None = None, validation: Any = False
    ) -> None:
        super().__init__()
        self.checkpoint_upload_mode = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self.validation = validation

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning, on every worker."""
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        # One folder for the workers of a node: each shard of FSDP goes where rank 0 says.
        name = trainer.strategy.broadcast(f"lightning-checkpoint-{uuid.uuid4().hex}")
        folder = pathlib.Path(tempfile.gettempdir(), name)
        folder.mkdir(exist_ok=True)
        trainer.save_checkpoint(folder / self.CHECKPOINT_NAME, weights_only=False)
        is_first = get_context().get_local_rank() == 0
        has_files = is_first and any(folder.iterdir())
        is_kept = self.checkpoint_upload_mode is CheckpointUploadMode.NO_UPLOAD and has_files
        is_uploading = self.checkpoint_upload_mode is CheckpointUploadMode.ASYNC and has_files
        try:
            report(
                metrics,
                checkpoint=Checkpoint.from_directory(str(folder)) if has_files else None,
                checkpoint_upload_mode=self.checkpoint_upload_mode,
                delete_local_checkpoint_after_upload=is_uploading,
                validation=self.validation,
            )
        finally:
            if is_first and not is_kept and not is_uploading:
                shutil.rmtree(folder, ignore_errors=True)
        trainer.strategy.barrier()
