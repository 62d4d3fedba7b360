"""What a trial's function calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runtime.tune._run.session import current_or_none

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.tune._run.session import Session


def report(metrics: dict[str, Any], *, checkpoint: Checkpoint | None = None) -> None:
    """Reports the metrics of an iteration. It returns when the next one is wanted; a trial that is stopped or paused
    does not come back from it.

    Args:
        metrics: can be pickled.
        checkpoint: its files are copied to the trial's folder before this returns.

    Raises:
        RuntimeError: this is not a trial's function.
        ValueError: the metrics are no dict.
        StorageError: the checkpoint could not be stored.
    """
    session = _session("report")
    if not isinstance(metrics, dict):
        raise ValueError(f"Metrics must be a dict, not {type(metrics).__name__}.")
    session.report(metrics, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint that the trial goes on from: of its own after a failure or a pause, or another trial's. None: it
    begins.

    Raises:
        RuntimeError: this is not a trial.
    """
    found: Checkpoint | None = _session("get_checkpoint").place.checkpoint
    return found


def get_context() -> TuneContext:
    """The trial that this process runs. Outside of one its values are None."""
    return TuneContext(current_or_none())


class TuneContext:
    """The trial that a function runs in."""

    def __init__(self, session: Any) -> None:
        self._place = session.place if session is not None else None

    def get_experiment_name(self) -> str | None:
        """The experiment's name."""
        return self._place.folder.name if self._place is not None else None

    def get_trial_name(self) -> str | None:
        """The trial's name."""
        return self._place.assignment.name if self._place is not None else None

    def get_trial_id(self) -> str | None:
        """The trial's id."""
        return self._place.trial_id if self._place is not None else None

    def get_trial_resources(self) -> Any:
        """The trial's PlacementGroupFactory."""
        return self._place.assignment.resources if self._place is not None else None

    def get_trial_dir(self) -> str | None:
        """The trial's folder on this machine."""
        return self._place.local_path if self._place is not None else None

    def get_storage(self) -> Any:
        """The storage of the trial's folder."""
        return self._place.storage if self._place is not None else None


def _session(name: str) -> Session:
    session = current_or_none()
    if session is None:
        raise RuntimeError(
            f"tune.{name}() works in a trial's function only, while a Tuner runs it. In a function that runtime.train "
            f"runs, call train.{name}()."
        )
    found: Session = session
    return found
