"""A trial: one configuration, tried. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from runtime._core.fsm import Edge, Machine

if TYPE_CHECKING:
    from runtime.tune._api.resources import PlacementGroupFactory


class TrialState(Enum):
    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"


class TrialEvent(Enum):
    CHOSEN = "chosen to run"
    STARTED = "runner started it"
    PAUSE = "paused"
    RETRY = "failed, tried again"
    COMPLETE = "complete"
    FAIL = "failed for good"
    RESUME = "resumed by a restore"


_P, _S, _R = TrialState.PENDING, TrialState.STARTING, TrialState.RUNNING
_H, _T, _E = TrialState.PAUSED, TrialState.TERMINATED, TrialState.ERROR

TRANSITIONS: Final[Mapping[tuple[TrialState, TrialEvent], Edge[TrialState]]] = {
    (_P, TrialEvent.CHOSEN): Edge(_S, "the scheduler chose it, and it waits for a runner"),
    (_P, TrialEvent.PAUSE): Edge(_H, "the scheduler gave it another configuration before it ran"),
    (_P, TrialEvent.COMPLETE): Edge(_T, "it was stopped before it ran"),
    (_P, TrialEvent.FAIL): Edge(_E, "it could not be run"),
    (_S, TrialEvent.STARTED): Edge(_R, "a runner has it"),
    (_S, TrialEvent.PAUSE): Edge(_H, "the scheduler paused it before it ran"),
    (_S, TrialEvent.RETRY): Edge(_P, "its runner did not start, and failures are left"),
    (_S, TrialEvent.COMPLETE): Edge(_T, "it was stopped before it ran"),
    (_S, TrialEvent.FAIL): Edge(_E, "its runner did not start"),
    (_R, TrialEvent.PAUSE): Edge(_H, "the scheduler paused it"),
    (_R, TrialEvent.RETRY): Edge(_P, "it failed, and failures are left"),
    (_R, TrialEvent.COMPLETE): Edge(_T, "its function returned, or it was stopped"),
    (_R, TrialEvent.FAIL): Edge(_E, "it failed, and no failures are left"),
    (_H, TrialEvent.CHOSEN): Edge(_S, "the scheduler has it go on"),
    (_H, TrialEvent.PAUSE): Edge(_H, "the scheduler gave it another configuration"),
    (_H, TrialEvent.COMPLETE): Edge(_T, "it was stopped while it was paused"),
    (_H, TrialEvent.FAIL): Edge(_E, "it could not be paused"),
    (_T, TrialEvent.RESUME): Edge(_P, "the experiment was restored, with trials that had finished"),
    (_E, TrialEvent.RESUME): Edge(_P, "the experiment was restored, with trials that had failed"),
}


class Saved(msgspec.Struct, frozen=True):
    """A checkpoint that is committed.

    Attributes:
        name: of its folder in the trial's.
        checkpoint: where it is.
        metrics: those that were reported with it.
        iteration, time_total_s: how far the trial was.
    """

    name: str
    checkpoint: Any
    metrics: dict[str, Any]
    iteration: int = 0
    time_total_s: float = 0.0


class Trial:
    """One configuration, as schedulers, searchers, stoppers and callbacks see it.

    Attributes:
        trial_id: unique in the experiment.
        number: its place in the order of creation, from 0.
        trainable_name: of the function or class.
        config: what the trainable gets.
        evaluated_params: the part of it that the search chose.
        experiment_tag: the number and these values, as text.
        placement_group_factory: the resources.
        last_result: the last that it reported.
        saved: the checkpoints that are kept, the latest last.
        restore_from: another trial's that its next run begins with; None: the latest of its own.
        num_failures: how often it failed.
        error: why it failed last.
        path: of its folder, on the storage's file system.
        local_path: where loggers write; the same, if the storage is a local folder.
        checkpoint_number: of the next checkpoint.
    """

    __slots__ = (
        "checkpoint_number",
        "config",
        "custom_dirname",
        "custom_trial_name",
        "error",
        "evaluated_params",
        "experiment_tag",
        "last_result",
        "local_path",
        "machine",
        "num_failures",
        "number",
        "path",
        "placement_group_factory",
        "restore_from",
        "saved",
        "trainable_name",
        "trial_id",
    )

    def __init__(
        self,
        trial_id: str,
        number: int,
        trainable_name: str,
        config: dict[str, Any],
        evaluated_params: dict[str, Any],
        experiment_tag: str,
        placement_group_factory: PlacementGroupFactory,
    ) -> None:
        self.trial_id = trial_id
        self.number = number
        self.trainable_name = trainable_name
        self.config = config
        self.evaluated_params = evaluated_params
        self.experiment_tag = experiment_tag
        self.placement_group_factory = placement_group_factory
        self.machine: Machine[TrialState, TrialEvent] = Machine(
            f"trial {trial_id}", TrialState.PENDING, TRANSITIONS
        )
        self.last_result: dict[str, Any] = {}
        self.saved: list[Saved] = []
        self.restore_from: Saved | None = None
        self.checkpoint_number = 0
        self.num_failures = 0
        self.error: BaseException | None = None
        self.path = ""
        self.local_path = ""
        self.custom_trial_name = ""
        self.custom_dirname = ""

    @property
    def status(self) -> str:
        """PENDING, STARTING, RUNNING, PAUSED, TERMINATED or ERROR."""
        return self.machine.state.value

    @property
    def state(self) -> TrialState:
        return self.machine.state

    @property
    def checkpoint(self) -> Any:
        """The latest that is committed; None: there is none."""
        return self.saved[-1].checkpoint if self.saved else None

    @property
    def beginning(self) -> Saved | None:
        """What its next run begins with."""
        return self.restore_from or (self.saved[-1] if self.saved else None)

    def is_finished(self) -> bool:
        """Whether it is TERMINATED or ERROR."""
        return self.machine.state in (TrialState.TERMINATED, TrialState.ERROR)

    @property
    def logdir(self) -> str:
        """The same as `local_path`."""
        return self.local_path

    def __str__(self) -> str:
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    __repr__ = __str__
