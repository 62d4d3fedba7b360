"""Local mode: the training function is called in the program's own process, as the only rank."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runtime import cloudpickle
from runtime.train._api.context import TrainContext
from runtime.train._api.exceptions import ControllerError
from runtime.train._core.failure_policy import Decision, FailurePolicy
from runtime.train._core.plan import Failures, Kept
from runtime.train._core.ranks import Place
from runtime.train._core.records import (
    Answered,
    Asked,
    Committed,
    Record,
    Reported,
    Returned,
    Uploaded,
    Wanted,
    encoded,
)
from runtime.train._core.reports import Ledger
from runtime.train._core.validations import Outcome, Pending
from runtime.train._core.validations import ReportedCheckpointStatus as Status
from runtime.train._run import session
from runtime.train._run.keeper import RunKeeper
from runtime.train._run.records import config_of
from runtime.train._run.validation import validate
from runtime.train._run.worker import UPLOADS_S

if TYPE_CHECKING:
    from runtime.train._api.result import Result
    from runtime.train._run.job import Job


def fit_here(job: Job) -> Result:
    """Runs a job in this process. After a failure that `max_failures` forgives, the function is called again.

    Raises:
        ControllerError: the run's folder cannot be used, or a callback failed.
    """
    keeper = RunKeeper(job.run, job.resume_from, config_of(job), job.validation)
    try:
        opened = keeper.open()
    except Exception as error:
        raise ControllerError(error) from error
    assert job.run.failure_config is not None
    policy = FailurePolicy(job.run.failure_config.max_failures, opened.failures)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f")
    checkpoint, waiting = opened.checkpoint, opened.pending
    for attempt in itertools.count(1):
        carrier, value, failure = _attempt(job, keeper, checkpoint, waiting, f"{stamp}_{attempt:03d}")
        checkpoint, waiting = carrier.latest, []
        try:
            if carrier.error is not None:
                raise carrier.error
            if failure is None:
                result = keeper.close(None, cloudpickle.dumps(value))
            else:
                decision = policy.failed(has_joined=True, has_progressed=True)
                keeper.failed(policy.failures, {0: failure})
                if decision is not Decision.GIVE_UP:
                    continue
                result = keeper.close(Failures("The training function has failed.", {0: failure}), b"")
        except Exception as error:
            raise ControllerError(error) from error
        if keeper.last_metrics:
            result.metrics = keeper.last_metrics[0]
        return result
    raise AssertionError("unreachable")


def _attempt(
    job: Job, keeper: RunKeeper, checkpoint: bytes, waiting: Sequence[Pending], stamp: str
) -> tuple[_Carrier, Any, Exception | None]:
    """Calls the function once: what it returned, or its error."""
    try:
        shards = _shards(job)
    except Exception as error:
        raise ControllerError(error) from error
    context = TrainContext(
        Place(0, 0, 1, 0, 1, 0), job.run.name or "", keeper.storage, job.metadata, job.scaling.bundle
    )
    latest = cloudpickle.loads(checkpoint) if checkpoint else None
    own = session.Session(context, latest, shards, stamp, validates=job.validation is not None)
    carrier = _Carrier(own, keeper, checkpoint, waiting)
    carrier.start()
    value: Any = None
    failure: Exception | None = None
    try:
        value = _call(job, own, context)
    except session.Left:
        pass  # the carrier has failed
    except Exception as error:
        failure = error
    finally:
        own.returned(None, has_left=failure is not None)
        carrier.join()
    return carrier, value, failure


def _shards(job: Job) -> dict[str, Any]:
    if not job.datasets:
        return {}
    from runtime.train._run.shards import Shards

    return Shards(job.datasets, job.data_config).of([""])[0]


def _call(job: Job, own: session.Session, context: TrainContext) -> Any:
    backend = job.backend
    session.enter(own)
    try:
        backend.join(backend.rendezvous(context) if backend.has_rendezvous else {}, context)
        value = job.function()
        own.drain(UPLOADS_S)
        return value
    finally:
        backend.leave()
        session.enter(None)


class _Carrier(threading.Thread):
    """Takes the records of the training function, commits them, and validates checkpoints: here nothing can cancel a
    validation, so it may take any time.

    Attributes:
        latest: the latest committed checkpoint, pickled.
        error: of the keeper.
    """

    def __init__(
        self, own: session.Session, keeper: RunKeeper, latest: bytes, waiting: Sequence[Pending]
    ) -> None:
        super().__init__(name="reports", daemon=True)
        self.latest = latest
        self.error: Exception | None = None
        self._own = own
        self._keeper = keeper
        self._ledger = Ledger(1)
        self._wanted: list[Wanted] = []
        self._waiting = waiting

    def run(self) -> None:
        has_returned = False
        self._do(lambda: self._validate(self._waiting))
        while not has_returned:
            batch = self._own.take()
            self._own.have_left(len(batch))
            has_returned = isinstance(batch[-1], Returned)
            self._do(lambda batch=batch: self._take(batch))  # type: ignore[misc]

    def _do(self, work: Callable[[], None]) -> None:
        if self.error is not None:
            return
        try:
            work()
        except Exception as error:
            self.error = error
            self._own.leave()

    def _take(self, batch: list[Record]) -> None:
        ledger = self._ledger
        for record in batch:
            match record:
                case Reported():
                    ledger.report(0, record)
                case Uploaded(number, part):
                    ledger.upload(0, number, part)
                case Asked(number, data=data):
                    self._own.tell(Answered(number, encoded([data])))
                case Wanted():
                    self._wanted.append(record)
        complete = ledger.take_complete()
        if not complete:
            self._answer()
            return
        kept = self._keeper.keep(complete)
        self.latest = kept.checkpoint
        if any(report.checkpoint for report in complete):
            self._own.tell(Committed(ledger.completed, kept.checkpoint))
        self._tidy(kept)
        self._answer(but_validated=True)
        self._validate(kept.pending)
        self._answer()

    def _answer(self, but_validated: bool = False) -> None:
        ready = [each for each in self._wanted if each.after <= self._ledger.completed]
        for wanted in ready:
            if not (but_validated and wanted.is_validated):
                self._wanted.remove(wanted)
                self._own.tell(Answered(wanted.number, self._keeper.checkpoints(), is_list=True))

    def _validate(self, waiting: Sequence[Pending]) -> None:
        for each in waiting:
            try:
                outcome = Outcome(each.name, Status.VALIDATED, validate(*each.arguments))
            except Exception as error:
                outcome = Outcome(each.name, Status.VALIDATION_FAILED, error=error)
            kept = self._keeper.validated(outcome)
            self.latest = kept.checkpoint
            self._tidy(kept)

    def _tidy(self, kept: Kept) -> None:
        if kept.leftovers is not None:
            self._keeper.tidy([kept.leftovers])
