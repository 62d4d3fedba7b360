"""Local mode: the training function is called in the program's own process, as the only rank."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runtime import cloudpickle
from runtime.train._api.context import TrainContext
from runtime.train._api.exceptions import ControllerError
from runtime.train._core.plan import Failures
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
from runtime.train._run import session
from runtime.train._run.keeper import RunKeeper
from runtime.train._run.records import config_of
from runtime.train._run.worker import UPLOADS_S

if TYPE_CHECKING:
    from runtime.train._api.result import Result
    from runtime.train._run.job import Job


def fit_here(job: Job) -> Result:
    """Runs a job in this process. A failure is not forgiven: the process would have to begin anew.

    Raises:
        ControllerError: the run's folder cannot be used, or a callback failed.
    """
    keeper = RunKeeper(job.run, job.resume_from, config_of(job))
    try:
        checkpoint = keeper.open().checkpoint
        shards = _shards(job)
    except Exception as error:
        raise ControllerError(error) from error
    context = TrainContext(
        Place(0, 0, 1, 0, 1, 0), job.run.name or "", keeper.storage, job.metadata, job.scaling.bundle
    )
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f")
    own = session.Session(context, cloudpickle.loads(checkpoint) if checkpoint else None, shards, stamp)
    carrier = _Carrier(own, keeper)
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
    try:
        if carrier.error is not None:
            raise carrier.error
        if failure is not None:
            keeper.failed(1, {0: failure})
            failed = Failures("The training function has failed.", {0: failure})
            return keeper.close(failed, b"")
        return keeper.close(None, cloudpickle.dumps(value))
    except Exception as error:
        raise ControllerError(error) from error


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
    """Takes the records of the training function, and commits them. `error`: of the keeper."""

    def __init__(self, own: session.Session, keeper: RunKeeper) -> None:
        super().__init__(name="reports", daemon=True)
        self.error: Exception | None = None
        self._own = own
        self._keeper = keeper
        self._ledger = Ledger(1)
        self._wanted: list[Wanted] = []

    def run(self) -> None:
        has_returned = False
        while not has_returned:
            batch = self._own.take()
            self._own.have_left(len(batch))
            has_returned = isinstance(batch[-1], Returned)
            if self.error is not None:
                continue
            try:
                self._take(batch)
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
        if complete:
            kept = self._keeper.keep(complete)
            if any(report.checkpoint for report in complete):
                self._own.tell(Committed(ledger.completed, kept.checkpoint))
        for wanted in [each for each in self._wanted if each.after <= ledger.completed]:
            self._wanted.remove(wanted)
            self._own.tell(Answered(wanted.number, self._keeper.checkpoints(), is_list=True))
