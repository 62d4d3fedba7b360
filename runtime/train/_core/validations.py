"""Validations of checkpoints: tasks that the controller starts, one after another. Pure.

A validation is pending from the commit of its checkpoint until its outcome is in the run's folder. One that fails or
takes too long is told, and ends nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from runtime._controllers.controller import (
    Cancel,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Sleep,
    Submit,
    TimerFired,
    Wait,
)


class ReportedCheckpointStatus(Enum):
    """How far a checkpoint is, with Ray's names."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


class Pending(msgspec.Struct, frozen=True):
    """A validation that is not done.

    Attributes:
        name: of the checkpoint.
        arguments: of the task.
        timeout_s: how long the task may take from its submission, with the time in which it waits for resources; None:
            without a limit.
    """

    name: str
    arguments: Sequence[Any] = ()
    timeout_s: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What has come of a validation. `metrics`: of one that succeeded. `error`: of one that failed."""

    name: str
    status: ReportedCheckpointStatus
    metrics: Any = None
    error: BaseException | None = None


class Validations:
    """The validations of a run.

    Args:
        function: the task, as `remote` makes it.
        options: of `.options()`.
    """

    def __init__(self, function: Any = None, options: Mapping[str, Any] | None = None) -> None:
        self._function = function
        self._options = options or {}
        self._waiting: deque[Pending] = deque()
        self._running: Pending | None = None
        self._number = 0  # of the task; earlier ones do not count any more
        self._since_s = 0.0
        self._unrecorded = 0  # outcomes that are not in the run's folder yet
        self._has_ended = False

    @property
    def are_pending(self) -> bool:
        """Whether the outcome of one is not in the run's folder."""
        return bool(self._waiting or self._running or self._unrecorded)

    @property
    def need_resources(self) -> bool:
        """Whether a task runs or waits."""
        return bool(self._waiting or self._running)

    def add(self, pending: Sequence[Pending], now: float) -> list[Effect]:
        """More checkpoints are to be validated."""
        if not self._has_ended:
            self._waiting += pending
        return self._next(now)

    def step(self, event: Event, now: float) -> tuple[list[Effect], list[Outcome]]:
        """What follows from an event of a key ("validation", number): effects, and an outcome to record. `recorded`
        must follow each."""
        is_running = self._running is not None and getattr(event, "key", None) == self._key
        match event:
            case Done(key, value):
                effects, outcomes = (
                    self._over(ReportedCheckpointStatus.VALIDATED, now, value) if is_running else ([], [])
                )
                return [Forget(key), *effects], outcomes  # one that was given up may end like this as well
            case Failed(_, error) if is_running:
                return self._over(ReportedCheckpointStatus.VALIDATION_FAILED, now, error=error)
            case TimerFired(key) if is_running:
                effects, outcomes = self._over(ReportedCheckpointStatus.VALIDATION_TIMEOUT, now)
                return [Cancel(key, force=True), *effects], outcomes
        return [], []

    def recorded(self) -> None:
        """An outcome is in the run's folder."""
        self._unrecorded -= 1

    def end(self) -> list[Effect]:
        """Gives all up; the checkpoints stay pending in the run's folder."""
        self._has_ended = True
        effects: list[Effect] = [Cancel(self._key, force=True)] if self._running is not None else []
        self._waiting.clear()
        self._running, self._unrecorded = None, 0
        self._number += 1
        return effects

    def waits(self) -> list[Wait]:
        """What they wait for."""
        if self._running is None:
            return []
        return [Wait(self._key, f"the validation of checkpoint {self._running.name}", self._since_s)]

    @property
    def _key(self) -> tuple[str, int]:
        return "validation", self._number

    def _next(self, now: float) -> list[Effect]:
        if self._running is not None or not self._waiting:
            return []
        self._running = self._waiting.popleft()
        self._number += 1
        self._since_s = now
        task = Submit(self._key, self._function, self._running.arguments, options=self._options, fetch=True)
        limit_s = self._running.timeout_s
        return [task, *([Sleep(self._key, limit_s)] if limit_s is not None else [])]

    def _over(
        self,
        status: ReportedCheckpointStatus,
        now: float,
        metrics: Any = None,
        error: BaseException | None = None,
    ) -> tuple[list[Effect], list[Outcome]]:
        assert self._running is not None
        effects: list[Effect] = []
        if self._running.timeout_s is not None and status is not ReportedCheckpointStatus.VALIDATION_TIMEOUT:
            effects.append(Sleep(self._key, -1))
        outcome = Outcome(self._running.name, status, metrics, error)
        self._running = None
        self._unrecorded += 1
        return [*effects, *self._next(now)], [outcome]
