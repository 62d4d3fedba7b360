"""Writes down what an experiment does: journal, callbacks, checkpoints that are not kept."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from runtime import cloudpickle
from runtime.train._run.storage import RunStorage
from runtime.tune._api.callback import Callback
from runtime.tune._api.exceptions import TuneError
from runtime.tune._core import records
from runtime.tune._core.trial import Saved, Trial
from runtime.tune._run.journal import Journal
from runtime.tune._run.place import Folder


class ExperimentKeeper:
    """See `_core.study.Keeper`. Belongs to the thread of the experiment.

    Args:
        storage: of the experiment's folder.
        stamp: of the experiment.
        folder: the same, for trials.
        staging: a local folder for what loggers write, if the storage is remote.
        callbacks: in the order in which they are called.
        trials: all of them, for callbacks.
    """

    def __init__(
        self,
        storage: RunStorage,
        stamp: str,
        folder: Folder,
        staging: str,
        callbacks: Sequence[Callback],
        trials: Callable[[], list[Trial]],
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._staging = staging
        self.callbacks = callbacks
        self._trials = trials
        self._journal = Journal(storage, stamp)
        self._results = 0

    def write(self, record: records.Record) -> None:
        try:
            self._journal.write(record)
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            if not (record and isinstance(record[-1], BaseException)):
                raise TuneError(
                    f"The record {record[:2]} of the experiment cannot be pickled, so it could not be restored: {error}"
                ) from error
            self._journal.write((*record[:-1], TuneError(f"{type(record[-1]).__name__}: {record[-1]}")))

    def tell(self, what: str, trial: Trial, **info: Any) -> None:
        if what == "on_trial_start":
            os.makedirs(trial.local_path, exist_ok=True)
        elif what == "on_trial_result":
            self._results += 1
        elif what in ("on_trial_error", "on_trial_recover"):
            self._write_error(trial)
        for callback in self.callbacks:
            getattr(callback, what)(iteration=self._results, trials=self._trials(), trial=trial, **info)
        if what == "on_trial_start" and trial.beginning is not None:
            self.tell("on_trial_restore", trial)
        elif what == "on_checkpoint":
            self.tell("on_trial_save", trial)
        elif what in ("on_trial_complete", "on_trial_error"):
            self._upload(trial)

    def delete(self, trial: Trial, saved: Saved) -> None:
        storage = self._folder.storage(trial.custom_dirname)
        storage.remove(storage.hide(saved.name))

    def log_line(self, file_name: str, text: str) -> None:
        if self._storage.is_local:
            self._storage.append_lines(file_name, text.rstrip("\n") + "\n")
        else:
            with open(os.path.join(self._staging, file_name), "a", encoding="utf-8") as file:
                file.write(text.rstrip("\n") + "\n")

    def flush(self) -> None:
        """Has the journal survive."""
        self._journal.flush()

    def close(self) -> None:
        """Ends the journal."""
        self._journal.close()

    def _write_error(self, trial: Trial) -> None:
        error, folder = trial.error, trial.local_path
        assert error is not None
        os.makedirs(folder, exist_ok=True)
        text = str(error) if isinstance(error, TuneError) else "".join(traceback.format_exception(error))
        with open(os.path.join(folder, "error.txt"), "a", encoding="utf-8") as file:
            file.write(f"Failure {trial.num_failures}:\n{text}\n")
        try:
            pickled = cloudpickle.dumps(error)
        except Exception as refused:
            pickled = cloudpickle.dumps(TuneError(f"{error} (it cannot be pickled: {refused})"))
        with open(os.path.join(folder, "error.pkl"), "wb") as binary:
            binary.write(pickled)

    def _upload(self, trial: Trial) -> None:
        """Brings what loggers have written to a remote storage."""
        folder = trial.local_path
        if self._storage.is_local or not os.path.isdir(folder):
            return
        target = self._folder.storage(trial.custom_dirname)
        for entry in os.scandir(folder):
            if entry.is_file():
                with open(entry.path, "rb") as file:
                    target.write(entry.name, file.read())
