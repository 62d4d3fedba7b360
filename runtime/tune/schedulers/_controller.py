"""What schedulers see of a study: its trials and its controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

RUNNING = "RUNNING"
PAUSED = "PAUSED"


class Trial(Protocol):
    """One trial. Hashable by identity."""

    @property
    def trial_id(self) -> str: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def status(self) -> str: ...
    @property
    def last_result(self) -> dict[str, Any]: ...
    @property
    def placement_group_factory(self) -> Any: ...
    @property
    def experiment_tag(self) -> str: ...
    @property
    def evaluated_params(self) -> dict[str, Any]: ...
    def is_finished(self) -> bool: ...


class Controller(Protocol):
    """The study as schedulers see and steer it. All calls but `get_trials` and `get_live_trials` take constant time."""

    @property
    def search_alg(self) -> Any: ...

    def get_trials(self) -> list[Any]:
        """All trials. Takes time in proportion to their number: not for every result."""
        ...

    def get_live_trials(self) -> set[Any]:
        """All trials that have not ended. Takes time in proportion to their number: not for every result."""
        ...

    def next_pending(self) -> Any | None:
        """The oldest pending trial: it has not run yet, or is to be tried again after a failure."""
        ...

    def next_paused(self) -> Any | None:
        """The trial that has been paused longest and is ready."""
        ...

    def others_wait(self) -> bool:
        """Whether trials wait for a worker, or to be chosen."""
        ...

    def is_ready(self, trial: Any) -> bool:
        """Whether a trial can be chosen to run: it is pending or paused, and its checkpoint is complete."""
        ...

    def stop_trial(self, trial: Any) -> None:
        """Ends a paused, pending or running trial."""
        ...

    def pause_trial(self, trial: Any, should_checkpoint: bool = True) -> None:
        """Takes a running trial off its worker. It runs again when `choose_trial_to_run` returns it."""
        ...

    def exploit(
        self, trial: Any, donor: Any, config: dict[str, Any], experiment_tag: str = ""
    ) -> bool | None:
        """Changes a paused or running trial: it continues from `donor`'s latest checkpoint with `config`.

        It is paused until `choose_trial_to_run` returns it. A running donor that can save on request is saved first,
        and one that is being saved is waited for. The donor may be the trial itself. Returns False, and changes
        nothing, if the donor has no checkpoint.
        """
        ...

    def set_resources(self, trial: Any, placement_group_factory: Any) -> None:
        """Changes a trial's resources. A running one is saved, and paused until `choose_trial_to_run` returns it."""
        ...

    def total_resources(self) -> Mapping[str, float]:
        """Resources of the whole cluster by name."""
        ...

    def log_line(self, file_name: str, text: str) -> None:
        """Appends a line to a file in the experiment's folder."""
        ...
