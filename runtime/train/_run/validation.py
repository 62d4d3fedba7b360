"""The task that validates a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import runtime
from runtime import cloudpickle
from runtime.train._core.validations import Pending

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._api.validation import ValidationConfig


def pending(config: ValidationConfig, name: str, checkpoint: Checkpoint, wanted: bytes) -> Pending:
    """What the controller is told of a validation.

    Args:
        name: of the checkpoint.
        wanted: what its report says of the validation, pickled.
    """
    task = config.task(cloudpickle.loads(wanted))
    work = cloudpickle.dumps((config.fn, checkpoint, task.fn_kwargs or {}))
    return Pending(name, (work,), task.timeout_s)


def task() -> Any:
    """The task; `Pending.arguments` are its arguments."""
    return runtime.remote(validate)


def validate(work: bytes) -> dict[str, Any]:
    """Calls the user's function.

    Raises:
        TypeError: it returns something other than metrics.
        Exception: of the function.
    """
    function, checkpoint, arguments = cloudpickle.loads(work)
    metrics = function(checkpoint, **arguments)
    if not isinstance(metrics, dict):
        raise TypeError(f"The validation function must return a dict of metrics, not {metrics!r:.100}.")
    return metrics
