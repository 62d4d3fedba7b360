"""The process of one rank."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from runtime import cloudpickle
from runtime._extension import streams
from runtime.train._api.context import TrainContext
from runtime.train._core.ranks import Place
from runtime.train._core.records import Message, Record, Returned, encode

from . import session, stacks
from .backend import Backend

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
    """

    name: str
    function: bytes
    backend: bytes
    storage: Any
    metadata: dict[str, Any]
    resources: dict[str, float]
    stamp: str
    validates: bool = False


class Worker:
    """The actor of one rank. `run` holds a thread of it; the other methods are called meanwhile."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._backend: Backend = cloudpickle.loads(setup.backend)
        self._session: session.Session | None = None
        self._thread: threading.Thread | None = None
        self._attempt = 0
        self._told_to_leave = 0  # the attempt

    def rendezvous(self, place: Place) -> dict[str, Any]:
        """On rank 0, before the others begin."""
        return self._backend.rendezvous(self._context(place))

    def run(
        self, attempt: int, place: Place, rendezvous: dict[str, Any] | None, shards: Any, checkpoint: bytes
    ) -> Iterator[streams.Described]:
        """Runs the training function; yields its records.

        Raises:
            Exception: of the function, or of what it needs.
        """
        if attempt <= self._told_to_leave:  # the message that said so was faster
            return
        own = session.Session(
            self._context(place),
            cloudpickle.loads(checkpoint) if checkpoint else None,
            shards,
            f"{self._setup.stamp}_{attempt:03d}",
            self._setup.validates,
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
                has_ended = isinstance(batch[-1], Returned)
                yield _item(batch)
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


def _item(batch: list[Record]) -> streams.Described:
    data = encode(batch)
    return streams.Described(None, data) if len(data) <= RIDES_ALONG else streams.Described(data, None)
