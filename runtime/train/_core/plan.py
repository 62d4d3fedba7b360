"""What the controller of a run is given: the plan of the run, and the keeper of what it must not lose. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from runtime._controllers.members import GroupSpec

from .records import Leaving
from .reports import Complete
from .validations import Outcome, Pending


class Opened(msgspec.Struct, frozen=True):
    """How a run's folder was found. `checkpoint`: the latest, pickled; b"": none. `failures`: those counted so far.
    `pending`: checkpoints whose validation an earlier controller has not finished."""

    checkpoint: bytes = b""
    failures: int = 0
    pending: Sequence[Pending] = ()


class Kept(msgspec.Struct, frozen=True):
    """What has become of reports, or of the outcome of a validation.

    Attributes:
        checkpoint: see `Opened`.
        pending: checkpoints that are to be validated.
        leftovers: what `Keeper.tidy` can do later; None: nothing.
    """

    checkpoint: bytes = b""
    pending: Sequence[Pending] = ()
    leftovers: Any = None


class Keeper(Protocol):
    """What a run keeps outside of its controller. Its methods are called one at a time, except for `tidy`; what they
    raise ends it."""

    def open(self) -> Opened:
        """Opens the run's folder and removes what an earlier controller has not committed."""

    def keep(self, reports: Sequence[Complete]) -> Kept:
        """Commits reports: their checkpoints and metrics, and calls the user's callbacks."""

    def tidy(self, leftovers: Sequence[Any]) -> None:
        """Removes checkpoints that are not kept any more, side by side with the other methods. `leftovers`: those
        of several `Kept`."""

    def validated(self, outcome: Outcome) -> Kept:
        """Keeps what has come of a validation."""

    def failed(self, failures: int, errors: Mapping[int, BaseException]) -> None:
        """Keeps the number of failures, and calls the user's callbacks. `errors`: by rank."""

    def fetch(self, batch: Any) -> bytes:
        """The value of a reference: records of a worker that were too large to ride along."""

    def checkpoints(self) -> bytes:
        """The checkpoints that are reported, pickled, for `get_all_reported_checkpoints`."""

    def close(self, error: BaseException | None, value: bytes) -> Any:
        """The result of the run. `value`: what rank 0 returned, pickled."""


class Plan(msgspec.Struct, frozen=True):
    """What the controller is to do.

    Attributes:
        workers: of the group.
        size: the number of workers; the most of a run that grows and shrinks.
        least: of such a run; 0: its size does not change.
        room_for: called in a thread: for how many workers more there is room now; for a run that grows.
        resize_s: how often it is called; and so long, but 30 s at most, such a run waits for a worker's replacement.
        max_failures, max_preemptions: see `FailurePolicy`.
        has_rendezvous: rank 0 says where the ranks meet before they begin.
        new_processes: a process runs the training function once; later calls have new ones.
        shards_of: called with the nodes of the ranks, in a thread: what each rank gets of the data sets; None: nothing.
        stall_s: how long a rank may wait for another's report, at most; None: without a limit.
        validation, validation_options: see `Validations`.
    """

    workers: GroupSpec
    size: int
    least: int = 0
    room_for: Callable[[], int] | None = None
    resize_s: float = 60.0
    max_failures: int = 0
    max_preemptions: int = -1
    has_rendezvous: bool = False
    new_processes: bool = False
    shards_of: Any = None
    stall_s: float | None = None
    validation: Any = None
    validation_options: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Failures(Exception):
    """The workers have failed. `errors`: by rank; none where the run failed as a whole. `preempted`: nodes, if machines
    were taken away too often."""

    def __init__(
        self,
        message: str,
        errors: Mapping[int, BaseException] | None = None,
        preempted: Mapping[str, Leaving] | None = None,
    ) -> None:
        super().__init__(message)
        self.errors = errors or {}
        self.preempted = preempted or {}


class Aborted(Exception):
    """Somebody gave the run up."""


ABORT = "abort"
"""The request that gives the run up."""
