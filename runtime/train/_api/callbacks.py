"""What a program can have called while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._api.config import RunConfig


class TrainRunContext(msgspec.Struct, frozen=True):
    """The run, for callbacks.

    Attributes:
        run_config: its configuration, with the name that it has.
    """

    run_config: RunConfig

    def get_run_config(self) -> RunConfig:
        """The run's configuration."""
        return self.run_config


class UserCallback:
    """Called in the process of the run's controller, one call at a time. What a method raises ends the run with a
    `ControllerError`."""

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Every worker has given its n-th report.

        Args:
            run_context: the run.
            metrics: by rank.
            checkpoint: what was committed with it; None: nothing.
        """

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        """The training function has failed, and is called again where failures are left.

        Args:
            run_context: the run.
            worker_exceptions: by rank.
        """
