"""What a run keeps: checkpoints, metrics, and the number of its failures, in the run's folder; and the calls of the
user's callbacks. In the controller's process, one method at a time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

import runtime
from runtime import cloudpickle
from runtime.train._api.callbacks import TrainRunContext
from runtime.train._api.exceptions import StorageError
from runtime.train._core.manifest import PartManifest
from runtime.train._core.plan import Kept, Opened
from runtime.train._core.reports import Complete
from runtime.train._core.retention import best, lookup, to_delete
from runtime.train._core.validations import Outcome, Pending
from runtime.train._core.validations import ReportedCheckpointStatus as Status
from runtime.train._run import failures as why
from runtime.train._run.records import RunRecords
from runtime.train._run.storage import Committed, Hidden, RunStorage
from runtime.train._run.validation import pending

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._api.config import RunConfig
    from runtime.train._api.result import Result
    from runtime.train._api.validation import ValidationConfig

_log = logging.getLogger(__name__)

DEFAULT_PATH = "~/ray_results"


class _State(msgspec.Struct):
    """What is written to the run's folder beside the checkpoints."""

    failures: int = 0


class _Leftovers(msgspec.Struct, frozen=True):
    """What is to be tidied. `committed`: names of checkpoints whose marks are not needed any more."""

    committed: list[str]
    hidden: list[Hidden]


class RunKeeper:
    """See `controller.Keeper`.

    Args:
        run: the run's configuration, with its name.
        resume_from: the latest checkpoint while the run has none of its own.
        config: what the run's folder says of its configuration.
        validation: how checkpoints are validated; None: they are not.
    """

    def __init__(
        self,
        run: RunConfig,
        resume_from: Checkpoint | None,
        config: Mapping[str, Any] | None = None,
        validation: ValidationConfig | None = None,
    ) -> None:
        self.storage = RunStorage(run.storage_path or DEFAULT_PATH, run.name or "", run.storage_filesystem)
        self._run = run
        self._context = TrainRunContext(run)
        self._latest = resume_from
        self._config = config or {}
        self._validation = validation
        self._records = RunRecords(self.storage)
        self._state = _State()
        self.last_metrics: list[dict[str, Any]] = []
        """Of each rank, of the last report that was kept. May be read in any thread."""

    def open(self) -> Opened:
        self.storage.open()
        state = self.storage.read_state()
        if state:
            self._state = msgspec.json.decode(state, type=_State)
        self._records.begin(self._config)
        committed = self.storage.committed()
        if committed:
            self._latest = committed[-1].checkpoint
        waiting = [one for one in committed if one.status is Status.PENDING_VALIDATION]
        return Opened(self._packed_latest(), self._state.failures, self._pending(waiting))

    def keep(self, reports: Sequence[Complete]) -> Kept:
        names = []
        for report in reports:
            metrics = [cloudpickle.loads(one) for one in report.metrics]
            checkpoint = self._commit(report, metrics[0]) if report.parts else None
            names += [report.checkpoint] if report.parts else []
            self.last_metrics = metrics
            self._records.add(report.number, metrics, report.checkpoint, self._state.failures)
            for callback in self._run.callbacks or ():
                callback.after_report(self._context, metrics, checkpoint)
        self._records.flush()
        if not names:
            return Kept(self._packed_latest())
        leftovers = _Leftovers(names, self._hide())
        waiting = [one for one in self.storage.committed() if one.name in names and one.validation]
        return Kept(self._packed_latest(), self._pending(waiting), leftovers)

    def tidy(self, leftovers: Sequence[_Leftovers]) -> None:
        for each in leftovers:
            for name in each.committed:
                self.storage.tidy(name)
            for hidden in each.hidden:
                self.storage.remove(hidden)

    def validated(self, outcome: Outcome) -> Kept:
        name, status, run = outcome.name, outcome.status, self._run.name
        found = next((one for one in self.storage.committed() if one.name == name), None)
        if found is None:
            return Kept(self._packed_latest())
        metrics = dict(found.metrics)
        if status is Status.VALIDATED:
            metrics.update(outcome.metrics)
            try:
                self._check_score(name, metrics)
            except ValueError as error:
                metrics, status = dict(found.metrics), Status.VALIDATION_FAILED
                _log.warning("train run %s: the metrics of a validation do not count. %s", run, error)
        elif status is Status.VALIDATION_TIMEOUT:
            _log.warning(
                "train run %s: the validation of checkpoint %s has exceeded its timeout_s (ValidationTaskConfig) and "
                "was cancelled.",
                run,
                name,
            )
        else:
            _log.warning(
                "train run %s: the validation of checkpoint %s has failed.", run, name, exc_info=outcome.error
            )
        self.storage.validated(name, status, metrics)
        hidden = self._hide()
        return Kept(self._packed_latest(), leftovers=_Leftovers([], hidden) if hidden else None)

    def failed(self, failures: int, errors: Mapping[int, BaseException]) -> None:
        self._state.failures = failures
        self.storage.write_state(msgspec.json.encode(self._state))
        _log.warning("train run %s: failure %d: %s", self._run.name, failures, why.summary(errors))
        for callback in self._run.callbacks or ():
            callback.after_exception(self._context, why.by_rank(errors))

    def fetch(self, batch: Any) -> bytes:
        value: bytes = runtime.get(batch)
        return value

    def checkpoints(self) -> bytes:
        found = self.storage.committed()
        return cloudpickle.dumps([(one.checkpoint, one.metrics, one.status) for one in found])

    def close(self, error: BaseException | None, value: bytes) -> Result:
        from runtime.train._api.config import CheckpointConfig
        from runtime.train._api.result import Result

        committed = self.storage.committed()
        with contextlib.suppress(StorageError):
            self.storage.sweep()  # of attempts that failed
        by_name = {one.name: one for one in committed}
        kept = self._run.checkpoint_config or CheckpointConfig()
        named = [(one.name, one.metrics) for one in committed]
        attribute, order = kept.checkpoint_score_attribute, kept.checkpoint_score_order
        try:
            ranked = best(named, kept.num_to_keep, attribute, order)
        except ValueError:  # a metric that is no number has ended the run
            ranked = best(named, kept.num_to_keep, None, order)
        failure = why.failure(error) if error is not None else None
        status = "FINISHED" if failure is None else "ERRORED"
        last = self.last_metrics[0] if self.last_metrics else None
        metrics = committed[-1].metrics if committed else None
        self._records.end(
            status, str(failure or ""), last if last is not None else metrics, self._state.failures
        )
        return Result(
            metrics=metrics,
            checkpoint=committed[-1].checkpoint if committed else self._latest,
            error=failure,
            path=self.storage.folder,
            best_checkpoints=[(by_name[name].checkpoint, by_name[name].metrics) for name in ranked],
            return_value=cloudpickle.loads(value) if value else None,
            _filesystem=None if self.storage.is_local else self.storage.storage_filesystem,
        )

    def _commit(self, report: Complete, metrics: dict[str, Any]) -> Checkpoint:
        parts = [msgspec.msgpack.decode(part, type=PartManifest) for part in report.parts]
        wanted = report.validation if self._validation is not None else b""
        checkpoint = self.storage.commit(report.checkpoint, parts, metrics, wanted)
        self._latest = checkpoint
        self._check_score(report.checkpoint, metrics, may_come_later=bool(wanted))
        return checkpoint

    def _check_score(self, name: str, metrics: Mapping[str, Any], may_come_later: bool = False) -> None:
        """Warns of a checkpoint that lacks the metric which ranks them.

        Raises:
            ValueError: it is no number.
        """
        kept = self._run.checkpoint_config
        if kept is None or kept.checkpoint_score_attribute is None:
            return
        attribute, order = kept.checkpoint_score_attribute, kept.checkpoint_score_order
        if lookup(metrics, attribute) is None and not may_come_later:
            _log.warning(
                "Checkpoint %s is ranked last: its metrics lack checkpoint_score_attribute %r; they have %s.",
                name,
                attribute,
                ", ".join(sorted(map(str, metrics))) or "none",
            )
        best([(name, metrics)], 1, attribute, order)

    def _hide(self) -> list[Hidden]:
        """Hides the checkpoints that are not kept any more. Those whose validation is pending are."""
        kept = self._run.checkpoint_config
        if kept is None:
            return []
        committed = self.storage.committed()
        waiting = [one.name for one in committed if one.status is Status.PENDING_VALIDATION]
        protected = waiting if self._validation is not None else []
        named = [(one.name, one.metrics) for one in committed]
        attribute, order = kept.checkpoint_score_attribute, kept.checkpoint_score_order
        return [
            self.storage.hide(name)
            for name in to_delete(named, kept.num_to_keep, attribute, order, protected)
        ]

    def _pending(self, waiting: Sequence[Committed]) -> list[Pending]:
        config = self._validation
        if config is None:
            return []
        return [pending(config, one.name, one.checkpoint, one.validation) for one in waiting]

    def _packed_latest(self) -> bytes:
        return cloudpickle.dumps(self._latest) if self._latest is not None else b""
