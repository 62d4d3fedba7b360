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
from runtime.train._run import failures as why
from runtime.train._run.records import RunRecords
from runtime.train._run.storage import RunStorage

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._api.config import RunConfig
    from runtime.train._api.result import Result

_log = logging.getLogger(__name__)

DEFAULT_PATH = "~/ray_results"


class _State(msgspec.Struct):
    """What is written to the run's folder beside the checkpoints."""

    failures: int = 0


class RunKeeper:
    """See `controller.Keeper`.

    Args:
        run: the run's configuration, with its name.
        resume_from: the latest checkpoint while the run has none of its own.
        config: what the run's folder says of its configuration.
    """

    def __init__(
        self, run: RunConfig, resume_from: Checkpoint | None, config: Mapping[str, Any] | None = None
    ) -> None:
        self.storage = RunStorage(run.storage_path or DEFAULT_PATH, run.name or "", run.storage_filesystem)
        self._run = run
        self._context = TrainRunContext(run)
        self._latest = resume_from
        self._config = config or {}
        self._records = RunRecords(self.storage)
        self._state = _State()
        self._metrics: dict[str, Any] | None = None  # the last of rank 0
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
            self._metrics = committed[-1].metrics
        return Opened(self._packed_latest(), self._state.failures)

    def keep(self, reports: Sequence[Complete]) -> Kept:
        for report in reports:
            metrics = [cloudpickle.loads(one) for one in report.metrics]
            checkpoint = self._commit(report, metrics[0]) if report.parts else None
            self._metrics, self.last_metrics = metrics[0], metrics
            self._records.add(report.number, metrics, report.checkpoint, self._state.failures)
            for callback in self._run.callbacks or ():
                callback.after_report(self._context, metrics, checkpoint)
        self._records.flush()
        return Kept(self._packed_latest())

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
        return cloudpickle.dumps([(one.checkpoint, one.metrics) for one in self.storage.committed()])

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
        self._records.end(status, str(failure or ""), self._metrics, self._state.failures)
        return Result(
            metrics=self._metrics,
            checkpoint=committed[-1].checkpoint if committed else self._latest,
            error=failure,
            path=self.storage.folder,
            best_checkpoints=[(by_name[name].checkpoint, by_name[name].metrics) for name in ranked],
            return_value=cloudpickle.loads(value) if value else None,
            _filesystem=None if self.storage.is_local else self.storage.storage_filesystem,
        )

    def _commit(self, report: Complete, metrics: dict[str, Any]) -> Checkpoint:
        parts = [msgspec.msgpack.decode(part, type=PartManifest) for part in report.parts]
        checkpoint = self.storage.commit(report.checkpoint, parts, metrics)
        self._latest = checkpoint
        kept = self._run.checkpoint_config
        if kept is not None:
            attribute, order = kept.checkpoint_score_attribute, kept.checkpoint_score_order
            if attribute is not None and lookup(metrics, attribute) is None:
                _log.warning(
                    "Checkpoint %s is ranked last: its metrics lack checkpoint_score_attribute %r; they have %s.",
                    report.checkpoint,
                    attribute,
                    ", ".join(sorted(map(str, metrics))) or "none",
                )
            committed = [(one.name, one.metrics) for one in self.storage.committed()]
            best(committed[-1:], 1, attribute, order)  # raises if it is no number
            for name in to_delete(committed, kept.num_to_keep, attribute, order):
                self.storage.delete(name)
        return checkpoint

    def _packed_latest(self) -> bytes:
        return cloudpickle.dumps(self._latest) if self._latest is not None else b""
