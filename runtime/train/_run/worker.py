"""The process of one rank."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

import runtime
from runtime import cloudpickle
from runtime._extension import streams
from runtime.object_ref import ObjectRef
from runtime.train._api.context import TrainContext
from runtime.train._core.ranks import Place
from runtime.train._core.records import Copied, Message, Record, Returned, encode

from . import session, stacks
from .backend import Backend
from .near import FETCH_S, NearFiles
from .rank_metrics import RankMetrics

ABORT_AFTER_S = 0.2
"""How long a training function that is to leave may go on before its backend is asked to break what it waits for."""
UPLOADS_S = 600.0
"""How long uploads may go on after the training function has returned."""
RIDES_ALONG = 60 << 10
"""Batches up to this size are metadata of their item."""


class Setup(msgspec.Struct, frozen=True):
    """What all workers of a run have in common.

    Attributes:
        name: of the run.
        function: the training function, pickled by value; it takes no arguments.
        backend: pickled.
        storage: of the run.
        metadata, resources: see `TrainContext`.
        stamp: begins the names of checkpoints.
        validates: the run has a validation function.
        copy_bytes: see `Session`.
    """

    name: str
    function: bytes
    backend: bytes
    storage: Any
    metadata: dict[str, Any]
    resources: dict[str, float]
    stamp: str
    validates: bool = False
    copy_bytes: int = 0


class Worker:
    """The actor of one rank. `run` holds a thread of it; the other methods are called meanwhile."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._backend: Backend = cloudpickle.loads(setup.backend)
        self._session: session.Session | None = None
        self._thread: threading.Thread | None = None
        self._metrics = RankMetrics(setup.name)
        self._attempt = 0
        self._told_to_leave = 0  # the attempt
        self._held: dict[int, tuple[tuple[int, int], Any]] = {}  # see `hold`

    def rendezvous(self, place: Place) -> dict[str, Any]:
        """On rank 0, before the others begin."""
        return self._backend.rendezvous(self._context(place))

    def run(
        self,
        attempt: int,
        place: Place,
        rendezvous: dict[str, Any] | None,
        shards: Any,
        checkpoint: bytes,
        copies: Sequence[ObjectRef] = (),
    ) -> Iterator[streams.Described]:
        """Runs the training function; yields its records, and copies of its checkpoints.

        Args:
            copies: of the checkpoint's files (`near`).

        Raises:
            Exception: of the function, or of what it needs.
        """
        if attempt <= self._told_to_leave:  # the message that said so was faster
            return
        latest = cloudpickle.loads(checkpoint) if checkpoint else None
        if copies and latest is not None:
            latest = latest.with_copies(NearFiles(copies))
        own = session.Session(
            self._context(place),
            latest,
            shards,
            f"{self._setup.stamp}_{attempt:03d}",
            self._setup.validates,
            self._setup.copy_bytes,
            self._metrics,
        )
        failure: list[BaseException] = []
        thread = threading.Thread(
            target=self._train, args=(own, rendezvous or {}, failure), name="training", daemon=True
        )
        self._attempt, self._session, self._thread = attempt, own, thread
        session.enter(own)
        thread.start()
        ended = threading.Event()
        stacks.watch(place.rank, lambda: own.reports, self.stack, ended)
        try:
            has_ended = False
            while not has_ended:
                batch = own.take()
                # The end of an upload may be reported after that of the function.
                has_ended = any(isinstance(record, Returned) for record in batch)
                yield from _items(batch, own)
                streams.flush()
                own.have_left(len(batch))
            thread.join()
        finally:
            ended.set()
            session.enter(None)
            self._session = self._thread = None
        if failure:
            raise failure[0]

    def tell(self, attempt: int, message: Message) -> None:
        """A message of the controller for an attempt."""
        own = self._session
        if own is not None and attempt == self._attempt:
            own.tell(message)

    def hold(self, attempt: int, report: int, rank: int, copy: tuple[ObjectRef]) -> None:
        """Keeps a copy of another node's files for the latest checkpoint, until there is a later one.

        Args:
            attempt, report: of the checkpoint.
            rank: whose files they are.
            copy: not fetched yet, so that calls behind this one do not wait for it.

        Raises:
            RayError: it is gone, or did not come in time.
        """
        value = runtime.get(copy[0], timeout=FETCH_S)  # what maps it keeps it in this node's store
        current = attempt, report
        kept = {other: held for other, held in self._held.items() if held[0] >= current}
        self._held = {rank: (current, value), **kept}

    def leave(self, attempt: int) -> None:
        """Has the training function end, if it can: at its next report, or where its backend breaks what
        it waits for."""
        self._told_to_leave = attempt
        own, thread = self._session, self._thread
        if own is None or thread is None or attempt != self._attempt:
            return
        own.leave()
        thread.join(ABORT_AFTER_S)
        if thread.is_alive():
            self._backend.abort()

    def stack(self) -> str:
        """Where the training function is."""
        thread = self._thread
        frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
        return "".join(traceback.format_stack(frame)) if frame is not None else "it does not run"

    def _context(self, place: Place) -> TrainContext:
        setup = self._setup
        return TrainContext(place, setup.name, setup.storage, setup.metadata, setup.resources)

    def _train(self, own: session.Session, rendezvous: dict[str, Any], failure: list[BaseException]) -> None:
        value, has_left, is_first = None, False, False
        try:
            function: Callable[[], Any] = cloudpickle.loads(self._setup.function)
            try:
                self._backend.join(rendezvous, own.context)
                own.joined()
                value = function()
                own.drain(UPLOADS_S)
            except BaseException:
                is_first = (
                    not own.is_leaving
                )  # what follows has others fail, and then this one is to leave, too
                raise
            finally:
                self._backend.leave()
        except session.Left:
            has_left = True
        except BaseException as error:
            has_left = own.is_leaving and not is_first  # what the end of its connections has raised
            if not has_left:
                failure.append(error)
        own.returned(value, has_left or bool(failure))


def _items(batch: list[Record], own: session.Session) -> Iterator[streams.Described]:
    """Copies are items of their own; what is between them is one."""
    plain: list[Record] = []
    for record in batch:
        if isinstance(record, Copied):
            if plain:
                yield _item(plain)
                plain = []
            yield streams.Described(own.take_copy(record.number), encode([record]))
        else:
            plain.append(record)
    if plain:
        yield _item(plain)


def _item(batch: list[Record]) -> streams.Described:
    data = encode(batch)
    return streams.Described(None, data) if len(data) <= RIDES_ALONG else streams.Described(data, None)
