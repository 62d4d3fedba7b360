"""What a training function calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import cloudpickle
from runtime.train._api.config import CheckpointConsistencyMode, CheckpointUploadMode
from runtime.train._api.context import TrainContext
from runtime.train._api.preemption import PreemptionInfo
from runtime.train._api.validation import ValidationTaskConfig
from runtime.train._core.validations import ReportedCheckpointStatus
from runtime.train._run.session import current

if TYPE_CHECKING:
    from runtime.data import DataIterator
    from runtime.train._api.checkpoint import Checkpoint

TRAIN_DATASET_KEY = "train"


class ReportedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint of the run.

    Attributes:
        checkpoint: where it is.
        metrics: those of rank 0 that were reported with it, and those of its validation.
        status: whether it is validated.
    """

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Reports metrics, and a checkpoint if there is one. Each rank's n-th report belongs to the others' n-th: call it
    equally often on all ranks.

    Without a checkpoint it does not wait for other ranks. With one it returns, in the mode SYNC, when every rank has
    given its n-th report and the checkpoint is committed. When it returns, the report has left the process.

    Args:
        metrics: can be pickled. Those of rank 0 count for the result and for the choice of checkpoints.
        checkpoint: this rank's files of the checkpoint; files of all ranks come together in one folder.
        checkpoint_dir_name: of the checkpoint's folder in the run's, the same on all ranks. Default: unique.
        checkpoint_upload_mode: what becomes of the files.
        delete_local_checkpoint_after_upload: whether the local folder is removed then. Default: in the mode ASYNC.
        checkpoint_upload_fn: brings the files to the storage itself: called with the checkpoint and the name of its
            folder, it returns a checkpoint that is there.
        validation: whether, or how, the checkpoint is validated by the trainer's `validation_config`: by a task,
            beside the training.

    Raises:
        RuntimeError: this is not a training function.
        ValueError: there is nothing to validate, or the trainer has no validation function.
        Exception: the files of this checkpoint, or of an earlier one in the mode ASYNC, could not be stored.
    """
    session = current()
    if not isinstance(metrics, dict):
        raise ValueError(f"Metrics must be a dict, not {type(metrics).__name__}.")
    if not isinstance(validation, bool | ValidationTaskConfig):
        raise ValueError(f"validation must be a bool or a ValidationTaskConfig, not {validation!r:.100}.")
    if validation and checkpoint is None:
        raise ValueError("validation needs a checkpoint: report(metrics, checkpoint=..., validation=...).")
    if validation and not session.validates:
        raise ValueError("validation needs a validation function: give the trainer a validation_config.")
    with session.counted_report():
        if checkpoint is None:
            session.report(metrics)
            return
        session.report_checkpoint(
            metrics,
            checkpoint,
            checkpoint_dir_name,
            checkpoint_upload_mode,
            delete_local_checkpoint_after_upload,
            checkpoint_upload_fn,
            cloudpickle.dumps(validation) if validation else b"",
        )


def get_checkpoint() -> Checkpoint | None:
    """The run's latest committed checkpoint, from which the training function goes on; None: there is none yet.

    Raises:
        RuntimeError: this is not a training function.
    """
    checkpoint: Checkpoint | None = current().checkpoint
    return checkpoint


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """The run's checkpoints that are kept, oldest first, when all that this rank has reported are committed.

    Args:
        consistency_mode: whether it waits for validations as well.
        timeout_s: seconds to wait; then it returns those that are there. None: without a limit.

    Raises:
        RuntimeError: this is not a training function.
    """
    are_validated = consistency_mode is CheckpointConsistencyMode.VALIDATED
    found = cloudpickle.loads(current().reported_checkpoints(are_validated, timeout_s))
    return [ReportedCheckpoint(*one) for one in found]


def get_preemption_info() -> PreemptionInfo | None:
    """Machines of the run that will be taken away, while there is time to save a checkpoint; None: none will. Failures
    that follow count as preemptions (`FailureConfig.max_preemption_failures`).

    All ranks get the same answer: it waits for all of them, so call it equally often on all ranks.

    Raises:
        RuntimeError: this is not a training function.
    """
    nodes = current().preempted()
    return PreemptionInfo.of(nodes) if nodes else None


def get_dataset_shard(dataset_name: str | None = None) -> DataIterator:
    """This rank's part of a data set of the trainer.

    Args:
        dataset_name: its key in `datasets`; "train" by default.

    Raises:
        RuntimeError: this is not a training function.
        KeyError: the trainer has no such data set.
    """
    shards = current().shards
    name = dataset_name or TRAIN_DATASET_KEY
    if name not in shards:
        known = ", ".join(sorted(shards)) or "none"
        raise KeyError(
            f"The trainer has no data set {name!r}; it has {known}. They are the trainer's argument datasets."
        )
    shard: DataIterator = shards[name]
    return shard


def get_context() -> TrainContext:
    """This worker's place in the run.

    Raises:
        RuntimeError: this is not a training function.
    """
    return current().context
