"""What a run of training ends with when it fails."""

from __future__ import annotations

from typing import Any

from runtime.exceptions import RayError
from runtime.train._api.preemption import PreemptionInfo


class TrainingFailedError(RayError):
    """A run of training has failed. `fit` raises a subclass."""


class WorkerGroupError(TrainingFailedError):
    """The training function failed, or could not be run.

    Attributes:
        worker_failures: the errors by rank; none where the run failed as a whole.
    """

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(error_message)
        self._error_message = error_message
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._error_message, self.worker_failures)


class PreemptionError(TrainingFailedError):
    """Machines were taken away more often than `FailureConfig.max_preemption_failures`.

    Attributes:
        preemption_info: the last of them.
    """

    def __init__(self, preemption_info: PreemptionInfo) -> None:
        super().__init__(
            f"Machines were taken away too often. The last were {preemption_info.preempted_node_ids}, with the ranks "
            f"{preemption_info.preempted_ranks}. FailureConfig.max_preemption_failures says how often is forgiven."
        )
        self.preemption_info = preemption_info

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preemption_info,)


class ControllerError(TrainingFailedError):
    """The controller of the run failed: its process, its storage, or a callback.

    Attributes:
        controller_failure: the error.
    """

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(
            f"The run's controller failed: {type(controller_failure).__name__}: {controller_failure}"
        )
        self.controller_failure = controller_failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.controller_failure,)


class StorageError(RayError):
    """Files of a run or of a checkpoint could not be read or written.

    Attributes:
        path: of the file or folder.
        reason: what is wrong.
    """

    def __init__(self, what: str, path: str, reason: str, advice: str = "") -> None:
        super().__init__(f"Cannot {what} {path}: {reason.rstrip('.')}. {advice}".rstrip())
        self._arguments = (what, path, reason, advice)
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments
