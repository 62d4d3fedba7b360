"""The session of a training function: how `runtime.train`'s functions reach the run from within it."""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import cloudpickle
from runtime.train._api.config import CheckpointUploadMode
from runtime.train._api.context import TrainContext
from runtime.train._core.records import (
    Answered,
    Asked,
    Committed,
    Copied,
    Joined,
    Leaving,
    Message,
    Preempted,
    Record,
    Reported,
    Returned,
    Uploaded,
    Wanted,
    decoded,
)
from runtime.train._run.calls import Cancelled
from runtime.train._run.upload import Uploads, encoded

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._core.manifest import PartManifest
    from runtime.train._run.rank_metrics import RankMetrics


UPLOAD_GRACE_S = 2.0
"""How long an upload that a report waits for may go on when its rank is to leave."""


class Left(BaseException):
    """The training function is to end, so that it can be called again: other workers have failed, or their number
    changes. No `Exception`, so that a loop which goes on after errors ends, too."""


class Session:
    """One call of the training function on one rank.

    Args:
        context: its place.
        checkpoint: the latest that is committed; None: there is none.
        shards: of the data sets, by name.
        stamp: begins the names of the call's checkpoints; the same on all ranks.
        validates: the run has a validation function.
        copy_bytes: of each checkpoint so much at most is copied into the object store; 0: nothing.
        metrics: counts what happens; None: nobody does.
    """

    def __init__(
        self,
        context: TrainContext,
        checkpoint: Any = None,
        shards: dict[str, Any] | None = None,
        stamp: str = "0",
        validates: bool = False,
        copy_bytes: int = 0,
        metrics: RankMetrics | None = None,
    ) -> None:
        self.context = context
        self.checkpoint = checkpoint
        self.shards = shards or {}
        self.validates = validates
        self._stamp = stamp
        self._reports = 0
        self._questions = 0
        self._uploads = Uploads()
        self._copy_bytes = copy_bytes
        self._metrics = metrics
        self._copies: dict[int, Any] = {}  # by report, on their way
        self._outbox: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._lock = threading.Condition()  # guards what follows
        self._committed = 0
        self._answers: dict[int, bytes] = {}
        self._preempted: dict[str, Leaving] = {}
        self._sent = 0
        self._put = 0
        self._is_leaving = False
        self._leaving_s = 0.0
        self._has_returned = False
        self._upload_error: BaseException | None = None

    # ------------------------------------------------------------ the training function's side

    def report(
        self, metrics: dict[str, Any], checkpoint: str = "", waits: bool = False, validation: bytes = b""
    ) -> int:
        """Reports; returns the number of the report. See `records.Reported`. When this returns, the report has left
        the process: its sudden end does not lose it.

        Raises:
            Left: the training function is to end.
        """
        with self._lock:
            self._check()
            number = self._reports
            self._reports += 1
        self._send(Reported(number, cloudpickle.dumps(metrics), checkpoint, waits, validation))
        return number

    def counted_report(self) -> AbstractContextManager[None]:
        """Counts a report, whose call is the block."""
        return self._metrics.report(self.context.get_world_rank()) if self._metrics else nullcontext()

    def joined(self) -> None:
        """The rank is connected with the others."""
        self._send(Joined(os.getpid()), checks=False, waits=False)

    def report_checkpoint(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint,
        name: str | None,
        mode: CheckpointUploadMode,
        deletes: bool | None,
        upload_fn: Callable[[Checkpoint, str], Checkpoint] | None,
        validation: bytes = b"",
    ) -> None:
        """Reports with a checkpoint. See `reporting.report`, and `records.Reported.validation`.

        Raises:
            Left: the training function is to end.
            Exception: the files could not be stored.
        """
        folder = name or f"checkpoint_{self._stamp}_{self._reports:06d}"
        storage, rank = self.context.storage, self.context.get_world_rank()
        if mode is CheckpointUploadMode.ASYNC:
            number = self.report(metrics, folder, validation=validation)
            self._uploads.submit(
                partial(self._upload, number, checkpoint, folder, deletes is not False, upload_fn)
            )
            return
        copy = None
        if mode is CheckpointUploadMode.NO_UPLOAD:
            part = storage.adopt(checkpoint, folder, rank)
        elif upload_fn is not None:
            part = storage.adopt(upload_fn(checkpoint, folder), folder, rank)
        else:
            try:
                part, copy = self._uploaded(checkpoint, folder, self._is_late)
            except Cancelled:
                raise Left from None
        if deletes:
            shutil.rmtree(checkpoint.path, ignore_errors=True)
        # Also if it is to leave: the others may have given this report, and the run goes on from the checkpoint then.
        with self._lock:
            number = self._reports
            self._reports += 1
        self._send_part(number, part, copy)
        self._send(Reported(number, cloudpickle.dumps(metrics), folder, True, validation), checks=False)
        with self._lock:
            self._wait(lambda: self._committed > number)

    def drain(self, timeout_s: float) -> None:
        """Waits for the uploads that are under way.

        Raises:
            TimeoutError: they have not ended in time.
            Exception: one has failed.
        """
        if not self._uploads.drain(timeout_s):
            raise TimeoutError(
                f"Rank {self.context.get_world_rank()} still uploads a checkpoint to {self.context.storage.path} "
                f"{timeout_s:g} s after its training function has returned, so the checkpoint was given up. See "
                "whether the storage answers, or report larger checkpoints less often."
            )
        with self._lock:
            error, self._upload_error = self._upload_error, None
        if error is not None:
            raise error

    def exchange(self, what: str, data: bytes) -> list[bytes]:
        """What each rank gave, once all ranks have called it.

        Raises:
            Left: the training function is to end.
        """
        with self._lock:
            number = self._questions
            self._questions += 1
        self._send(Asked(number, what, data))
        return decoded(self._answer(number))

    def preempted(self) -> dict[str, Leaving]:
        """The machines that will be taken away, by node, as far as any rank knows.

        Raises:
            Left: the training function is to end.
        """
        known: dict[str, Leaving] = {}
        for data in self.exchange("get_preemption_info", msgspec.msgpack.encode(self._preempted)):
            known.update(msgspec.msgpack.decode(data, type=dict[str, Leaving]))
        return known

    def reported_checkpoints(self, are_validated: bool, timeout_s: float | None) -> bytes:
        """The run's checkpoints, pickled, once this rank's reports are committed, and no validation is pending if
        `are_validated`; those that are there if that is not so in time.

        Raises:
            Left: the training function is to end.
        """
        with self._lock:
            number = -1 - self._questions
            self._questions += 1
        self._send(Wanted(number, self._reports, are_validated))
        try:
            return self._answer(number, timeout_s)
        except TimeoutError:
            self._send(Wanted(number, 0))  # needs nothing
            return self._answer(number)

    # ------------------------------------------------------------ the worker's side

    def tell(self, message: Message) -> None:
        """Takes a message of the controller."""
        with self._lock:
            match message:
                case Committed(count, checkpoint):
                    self._committed = max(self._committed, count)
                    if self.checkpoint is not None:
                        self.checkpoint.release_copies()
                    self.checkpoint = cloudpickle.loads(checkpoint) if checkpoint else self.checkpoint
                case Answered(number, data):
                    self._answers[number] = data
                case Preempted(nodes):
                    self._preempted = nodes
            self._lock.notify_all()

    def leave(self) -> None:
        """Has every call of this session raise `Left` from now on."""
        with self._lock:
            self._is_leaving = True
            self._leaving_s = time.monotonic()
            self._lock.notify_all()
        self._uploads.cancel()

    def _is_late(self) -> bool:
        """Whether an upload that its report waits for is given up."""
        return self._is_leaving and time.monotonic() > self._leaving_s + UPLOAD_GRACE_S

    @property
    def reports(self) -> int:
        """How many were given."""
        return self._reports

    @property
    def is_leaving(self) -> bool:
        """Whether `leave` was called."""
        return self._is_leaving

    def returned(self, value: Any, has_left: bool) -> None:
        """The training function has ended: the last record. What is said first counts."""
        with self._lock:
            if self._has_returned:
                return
            self._has_returned = True
        data = cloudpickle.dumps(value) if self.context.get_world_rank() == 0 and value is not None else b""
        self._send(Returned(data, has_left), checks=False, waits=False)

    def take(self) -> list[Record]:
        """Waits for records, and takes all there are."""
        batch = [self._outbox.get()]
        while True:
            try:
                batch.append(self._outbox.get_nowait())
            except queue.Empty:
                return batch

    def take_copy(self, number: int) -> Any:
        """The value that belongs to a `Copied`. Once."""
        return self._copies.pop(number)

    def have_left(self, count: int) -> None:
        """So many more records have left the process."""
        with self._lock:
            self._sent += count
            self._lock.notify_all()

    # ------------------------------------------------------------ inside

    def _send(self, record: Record, checks: bool = True, waits: bool = True) -> None:
        with self._lock:
            if checks:
                self._check()
            self._put += 1
            own = self._put
            self._outbox.put(record)
            if waits:
                self._lock.wait_for(lambda: self._sent >= own)

    def _answer(self, number: int, timeout_s: float | None = None) -> bytes:
        with self._lock:
            self._wait(lambda: number in self._answers, timeout_s)
            return self._answers.pop(number)

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        ended = self._lock.wait_for(
            lambda: condition() or self._is_leaving or self._upload_error is not None, timeout_s
        )
        if not ended:
            raise TimeoutError
        if not condition():
            self._check()

    def _upload(
        self,
        number: int,
        checkpoint: Checkpoint,
        folder: str,
        deletes: bool,
        upload_fn: Callable[[Checkpoint, str], Checkpoint] | None,
    ) -> None:
        """In the thread of the uploads."""
        storage, rank = self.context.storage, self.context.get_world_rank()
        try:
            if upload_fn is not None:
                part = storage.adopt(upload_fn(checkpoint, folder), folder, rank)
                copy = None
            else:
                part, copy = self._uploaded(checkpoint, folder, lambda: self._uploads.is_cancelled)
        except Cancelled:
            pass  # the checkpoint will not be committed
        except Exception as error:
            with self._lock:
                self._upload_error = self._upload_error or error
                self._lock.notify_all()
            return  # the files stay
        else:
            self._send_part(number, part, copy)
        if deletes:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _uploaded(
        self, checkpoint: Checkpoint, folder: str, is_cancelled: Callable[[], bool]
    ) -> tuple[PartManifest, Any]:
        """Uploads files. Returns what they are, and them for the object store; None: they are not copied."""
        storage, rank, start_s = self.context.storage, self.context.get_world_rank(), time.perf_counter()
        part = storage.upload(checkpoint, folder, rank, is_cancelled)
        if self._metrics is not None:
            self._metrics.uploaded(rank, time.perf_counter() - start_s, part.size_bytes)
        if not self._copy_bytes or storage.is_local:
            return part, None
        from runtime.train._run import near

        return part, near.copied(*checkpoint.resolve(), part, self._copy_bytes)

    def _send_part(self, number: int, part: PartManifest, copy: Any) -> None:
        """The files of a report are in the storage."""
        if copy is not None:
            self._copies[number] = copy
            self._send(Copied(number), checks=False, waits=False)
        self._send(Uploaded(number, encoded(part)), checks=False, waits=False)

    def _check(self) -> None:
        if self._is_leaving:
            raise Left
        if self._upload_error is not None:
            error, self._upload_error = self._upload_error, None
            raise error


_current: Session | None = None


def current() -> Session:
    """The session of the training function that runs in this process.

    Raises:
        RuntimeError: none does.
    """
    if _current is None:
        raise RuntimeError(
            "This can only be called in a training function, while a trainer runs it: fit() calls the function in the "
            "processes of the workers."
        )
    return _current


def enter(session: Session | None) -> None:
    """Makes a session the process's; None: there is none any more."""
    global _current
    _current = session
