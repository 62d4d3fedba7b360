"""The tuner: runs an experiment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from runtime.train._run import files
from runtime.tune._api.config import ResumeConfig, ResumeType, RunConfig, TuneConfig
from runtime.tune._api.result_grid import ResultGrid
from runtime.tune._api.trainable import Equipped, found_trainable


class Tuner:
    """Tries configurations.

    Args:
        trainable: a function of the configuration, a class of `tune.Trainable`, what `with_resources` or
            `with_parameters` gave, or a registered name.
        param_space: the configuration, with domains (`tune.uniform`, `tune.grid_search`, ...) where it is to be chosen.
        tune_config: what is searched, and how.
        run_config: name, storage, failures, checkpoints and callbacks.

    Raises:
        TypeError: the trainable cannot be run.
        ValueError: it is not registered, or a value cannot be meant.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        from runtime.tune._run import driver

        if trainable is None:
            raise TypeError("A Tuner needs a trainable: a function of the configuration, or a class.")
        self._trainable = found_trainable(trainable)
        run = run_config or RunConfig()
        if run.name is None:
            date = datetime.now().strftime(
                "%Y-%m-%d_%H-%M-%S-%f"
            )  # a second is too coarse for short experiments
            run = replace(run, name=f"{self._trainable.__name__}_{date}")
        self._definition = driver.define(param_space, tune_config or TuneConfig(), run)
        self._resume: ResumeConfig | None = None
        self._results: ResultGrid | None = None

    def fit(self) -> ResultGrid:
        """Runs the experiment to its end. Starts a local cluster where the process has none. Ctrl-C ends it, and gives
        the results so far.

        Raises:
            TuneError: it cannot go on.
            BaseException: a trial's error, with `FailureConfig(fail_fast="raise")`.
        """
        from runtime.tune._run import driver

        trials = driver.fit(self._trainable, self._definition, self._resume)
        self._results = self._grid(trials)
        self._resume = ResumeConfig()
        return self._results

    def get_results(self) -> ResultGrid:
        """The results of `fit`, or of the experiment that was restored, as its folder tells.

        Raises:
            RuntimeError: there are none yet.
        """
        from runtime.tune._run import driver

        if self._results is not None:
            return self._results
        if self._resume is None:
            raise RuntimeError(
                "There are no results yet. Call fit() first, or Tuner.restore() an experiment."
            )
        return self._grid(driver.past_trials(self._definition))

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        _resume_config: ResumeConfig | None = None,
    ) -> Tuner:
        """An experiment that goes on where it was, whatever had ended it. Trials that had finished do not run again,
        unless they are asked for.

        Args:
            path: of the experiment's folder: a local path, a URI, or a path on `storage_filesystem`.
            trainable: the same as before; its code may differ.
            resume_unfinished: whether trials that had not ended run, from their latest checkpoints.
            resume_errored: whether trials that failed run again, from their latest checkpoints.
            restart_errored: whether they run again from the beginning.
            param_space: the same as before, with objects that may differ, such as references.
            storage_filesystem: of `pyarrow.fs` or fsspec.
            _resume_config: in the place of the three flags; the only way to run finished trials again.

        Raises:
            TuneError: there is no experiment, or it cannot be read.
            ValueError: failed trials cannot both be resumed and restarted.
        """
        from runtime.tune._run import driver

        if resume_errored and restart_errored:
            raise ValueError("resume_errored and restart_errored exclude each other.")
        parent, name = _split(path, storage_filesystem)
        run = RunConfig(name=name, storage_path=parent, storage_filesystem=storage_filesystem)
        found = driver.load(driver.storage_of(run))
        run = replace(
            found.run, name=name, storage_path=run.storage_path, storage_filesystem=storage_filesystem
        )
        tuner = cls.__new__(cls)
        tuner._trainable = found_trainable(trainable)
        space = found.param_space if param_space is None else dict(param_space)
        tuner._definition = replace(found, run=run, param_space=space)
        tuner._resume = _resume_config or ResumeConfig(
            unfinished=ResumeType.RESUME if resume_unfinished else ResumeType.SKIP,
            errored=(
                ResumeType.RESUME
                if resume_errored
                else ResumeType.RESTART
                if restart_errored
                else ResumeType.SKIP
            ),
        )
        tuner._results = None
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether there is an experiment in a folder."""
        from runtime.tune._run import driver

        parent, name = _split(path, storage_filesystem)
        run = RunConfig(name=name, storage_path=parent, storage_filesystem=storage_filesystem)
        return bool(driver.storage_of(run).read(driver.DEFINITION))

    def _grid(self, trials: Any) -> ResultGrid:
        from runtime.tune._run import driver

        storage, tune = driver.storage_of(self._definition.run), self._definition.tune
        filesystem = None if storage.is_local else storage.storage_filesystem
        return ResultGrid(trials, storage.folder, tune.metric, tune.mode, filesystem)

    @property
    def trainable(self) -> Equipped:
        """What trials run."""
        return self._trainable


def _split(path: str | os.PathLike[str], filesystem: Any) -> tuple[str, str]:
    given = os.fspath(path).rstrip("/")
    if files.is_local(given, filesystem):
        given = files.local_path(given)
    return files.split(given)
