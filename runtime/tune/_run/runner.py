"""The process that runs trials, one at a time."""

from __future__ import annotations

import inspect
import os
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

import runtime
from runtime.train._api.checkpoint import Checkpoint
from runtime.tune._api.exceptions import TuneError
from runtime.tune._api.trainable import Trainable
from runtime.tune._core.messages import Assignment, Batch
from runtime.tune._core.trial import Saved
from runtime.tune._run import output
from runtime.tune._run.place import Folder, TrialPlace
from runtime.tune._run.session import Session, set_current

LEAVE_S = 5.0
"""How long a function may take to end after its trial was stopped; then its process is ended."""


class Setup(msgspec.Struct, frozen=True):
    """What a runner runs.

    Attributes:
        trainable: a function of the configuration, or a class.
        parameters: references to what it gets besides (`with_parameters`).
        folder: of the experiment.
        checkpoint_frequency: a class saves after so many iterations; 0: never by itself.
        checkpoint_at_end: whether a class saves when it is done.
        reuses: whether a runner takes the next trial when its own has ended.
        changes_folder: whether a trial's current folder is its own.
        log_to_file: names of the files for what a trial prints, of both streams; "": not written.
    """

    trainable: Any
    parameters: Mapping[str, Any]
    folder: Folder
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    reuses: bool = False
    changes_folder: bool = True
    log_to_file: tuple[str, str] = ("", "")


class Runner:
    """An actor. Calls of `begin`, `proceed` and `save` follow each other; `leave` may come at any time."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._parameters: dict[str, Any] | None = None
        self._session: Session | ClassSession | None = None
        self._kept: Trainable | None = None  # of a class that can be reset
        self._lock = threading.Lock()

    def begin(self, assignment: Assignment, ahead: int) -> Batch:
        """Runs a trial until it has something to tell. See `proceed`."""
        with self._lock:
            setup = self._setup
            if self._parameters is None:
                values = runtime.get(list(setup.parameters.values()))
                self._parameters = dict(zip(setup.parameters, values, strict=True))
            place = TrialPlace(assignment, setup.folder)
            if setup.changes_folder:
                os.makedirs(place.local_path, exist_ok=True)
                os.chdir(place.local_path)
            if any(setup.log_to_file):
                output.write_to(place.local_path, *setup.log_to_file)
            if inspect.isclass(setup.trainable):
                self._session = ClassSession(place, setup, self._parameters, self._kept)
            else:
                function = partial(setup.trainable, assignment.config, **self._parameters)
                self._session = Session(place, function)
                self._session.start()
            set_current(self._session)
            return self._session.proceed(ahead)

    def proceed(self, ahead: int) -> Batch:
        """Has the trial go on.

        Args:
            ahead: how many results it may give before it waits for the next call.

        Raises:
            BaseException: what the trial raised, after its results.
        """
        with self._lock:
            assert self._session is not None
            return self._session.proceed(ahead)

    def save(self) -> Saved | None:
        """Has a class save a checkpoint. None: it has none."""
        with self._lock:
            return self._session.save() if isinstance(self._session, ClassSession) else None

    def relay(self, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        """Reports in the name of the trial's function, which waits for a run of its own. See `Session.report`.

        Args:
            metrics: can be pickled.
            checkpoint: stays where it is.

        Raises:
            TuneError: the trial was stopped or paused.
        """
        session = self._session
        if not isinstance(session, Session):
            raise TuneError("The trial has ended: it takes no more reports.")
        session.relay(metrics, checkpoint)

    def leave(self, has_ended: bool) -> tuple[bool, Saved | None]:
        """Has the trial leave this process.

        Args:
            has_ended: whether it has ended, or is only paused.

        Returns:
            Whether another one can be run here, and the checkpoint of the end, if one is to be saved.
        """
        session = self._session
        if session is None:
            return True, None
        saved: Saved | None = None
        has_left = session.leave(LEAVE_S) if isinstance(session, Session) else True
        with self._lock:
            if isinstance(session, ClassSession):
                saved = session.leave(has_ended)
            self._kept = session.kept if isinstance(session, ClassSession) else None
            self._session = None
            set_current(None)
        return has_left, saved

    def close(self) -> None:
        """Has an object clean up: that of a trial which has failed, or one that was kept for the next trial."""
        with self._lock:
            session, self._session = self._session, None
            kept = session.kept if isinstance(session, ClassSession) else self._kept
            self._kept = None
            set_current(None)
            if kept is not None:
                kept.cleanup()


class ClassSession:
    """A trial of a class.

    Args:
        place: of the trial.
        setup: what is run.
        parameters: the values of `Setup.parameters`.
        kept: the object of the last trial, if it may be reset. Later: this trial's, until it has cleaned up.
    """

    def __init__(
        self, place: TrialPlace, setup: Setup, parameters: Mapping[str, Any], kept: Trainable | None
    ) -> None:
        self.place = place
        self._setup = setup
        self._parameters = parameters
        self.kept = kept
        self._object: Trainable | None = None
        self._saved_at = -1

    def proceed(self, _ahead: int) -> Batch:
        """Makes one step. See `Runner.proceed`."""
        place = self.place
        if self._object is None:
            self._object = self._made()
        place.resumed()
        metrics = self._object.step()
        if not isinstance(metrics, dict):
            raise TypeError(
                f"step() of {type(self._object).__name__} must return a dict of metrics, not {type(metrics).__name__}."
            )
        self._object._iteration = place.iteration + 1  # what is saved belongs to this step
        wants = bool(metrics.pop("should_checkpoint", False))
        is_done = bool(metrics.get("done"))
        frequency = self._setup.checkpoint_frequency
        due = frequency and (place.iteration + 1) % frequency == 0
        saved = None
        if wants or due or (is_done and self._setup.checkpoint_at_end):
            saved = self._save(metrics, is_new=True)
        result = place.filled(metrics, saved)
        self._object.log_result(result)
        return Batch([(result, saved)])

    def save(self) -> Saved | None:
        """Saves a checkpoint of the last step, unless that has one."""
        if self._object is None or self._saved_at == self.place.iteration:
            return None
        return self._save({}, is_new=False)

    def leave(self, has_ended: bool) -> Saved | None:
        """See `Runner.leave`. The object is kept for the next trial if that may reset it."""
        made, self._object = self._object, None
        if made is None:
            return None
        saved = None
        if has_ended and self._setup.checkpoint_at_end and self._saved_at != self.place.iteration:
            self._object = made
            saved = self._save({}, is_new=False)
            self._object = None
        if not self._setup.reuses or type(made).reset_config is Trainable.reset_config:
            made.cleanup()
            self.kept = None
        return saved

    def _made(self) -> Trainable:
        assignment = self.place.assignment
        config = assignment.config
        made = None
        if self.kept is not None and self.kept.reset_config(config):
            made = self.kept
        if made is None:
            former, self.kept = self.kept, None
            if former is not None:
                former.cleanup()
            made = self._setup.trainable.__new__(self._setup.trainable)
            made._begin(config, self.place)
            made.setup(config, **self._parameters)
        self.kept = made
        made._begin(config, self.place)
        beginning = assignment.beginning
        if beginning is not None:
            with beginning.checkpoint.as_directory() as folder:
                made._load(folder)
            made._iteration = self.place.iteration
        return made

    def _save(self, metrics: dict[str, Any], is_new: bool) -> Saved:
        assert self._object is not None
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            self._object._save(folder)
            saved = self.place.save(Checkpoint(folder), metrics, is_new)
        self._saved_at = self.place.iteration + is_new
        return saved
