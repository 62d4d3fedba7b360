"""How checkpoints are validated beside the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint


class ValidationFn(Protocol):
    """A function that validates a checkpoint."""

    def __call__(self, checkpoint: Checkpoint, **kwargs: Any) -> dict[str, Any]:
        """Returns metrics, which are added to those of the checkpoint."""


@dataclass
class ValidationTaskConfig:
    """One validation.

    Attributes:
        fn_kwargs: keyword arguments of the validation function.
        timeout_s: seconds from the start of the task, with the time in which it waits for resources, after which it is
            cancelled; None: without a limit.

    Raises:
        ValueError: the timeout is not positive.
    """

    fn_kwargs: dict[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        self.fn_kwargs = dict(self.fn_kwargs or {})
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ValueError(f"timeout_s must be None or positive, not {self.timeout_s}.")


@dataclass
class ValidationConfig:
    """How the checkpoints of a run are validated: each by a task that calls a function, one after another.

    Attributes:
        fn: called with the checkpoint; returns metrics.
        task_config: what all validations have in common; `report(validation=ValidationTaskConfig(...))` overrides it.
        ray_remote_kwargs: options of the task: resources, retries (see `runtime.remote`).

    Raises:
        TypeError: the function cannot be called.
    """

    fn: ValidationFn
    task_config: ValidationTaskConfig = field(default_factory=ValidationTaskConfig)
    ray_remote_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task_config = self.task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = dict(self.ray_remote_kwargs or {})
        if not callable(self.fn):
            raise TypeError(f"The validation function must be callable, not {self.fn!r:.100}.")

    def task(self, wanted: bool | ValidationTaskConfig) -> ValidationTaskConfig:
        """The validation of one checkpoint.

        Args:
            wanted: what its report says. A configuration there has a timeout of its own, and its arguments override
                those that all have in common.
        """
        if not isinstance(wanted, ValidationTaskConfig):
            return self.task_config
        arguments = {**(self.task_config.fn_kwargs or {}), **(wanted.fn_kwargs or {})}
        return ValidationTaskConfig(arguments, wanted.timeout_s)
