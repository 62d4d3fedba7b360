"""How an experiment is configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from runtime.train._api import config as train_config
from runtime.train._run.files import is_local, local_path


@dataclass
class TuneConfig:
    """What is searched, and how.

    Attributes:
        mode: whether the "min" or the "max" of the metric is best; a list for several metrics.
        metric: its name, "outer/inner" for one in a dict; a list where the searcher has several objectives.
        search_alg: suggests configurations. Default: random samples and grids.
        scheduler: stops, pauses and changes trials. Default: none of it, first come first served.
        num_samples: how many trials, or how often the grid is tried; -1: until the time or a stopper ends it.
        max_concurrent_trials: how many trials may run at a time. Default: as many as have room.
        time_budget_s: after so long all trials are stopped.
        reuse_actors: whether a process runs one trial after the other. By default each trial has a fresh one.
        trial_name_creator: gives the name of a trial.
        trial_dirname_creator: gives the name of its folder.
    """

    mode: str | list[str] | None = None
    metric: str | list[str] | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None

    def __post_init__(self) -> None:
        for mode in self.mode if isinstance(self.mode, list) else [self.mode]:
            if mode not in (None, "min", "max"):
                raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        if self.num_samples < 1 and self.num_samples != -1:
            raise ValueError(f"num_samples must be at least 1, or -1, not {self.num_samples}.")
        if self.max_concurrent_trials is not None and self.max_concurrent_trials < 0:
            raise ValueError(f"max_concurrent_trials must not be negative: {self.max_concurrent_trials}.")

    @property
    def budget_s(self) -> float | None:
        """The time budget in seconds."""
        if isinstance(self.time_budget_s, timedelta):
            return self.time_budget_s.total_seconds()
        return self.time_budget_s


@dataclass
class CheckpointConfig(train_config.CheckpointConfig):
    """Which checkpoints of a trial are made and kept.

    Attributes:
        checkpoint_frequency: a class saves one after so many iterations; 0: never by itself. Functions report theirs.
        checkpoint_at_end: whether a class saves one when it is done.
    """

    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.checkpoint_frequency < 0:
            raise ValueError(f"checkpoint_frequency must not be negative: {self.checkpoint_frequency}.")


@dataclass
class FailureConfig(train_config.FailureConfig):
    """What a trial survives.

    Attributes:
        fail_fast: whether the first trial that fails for good ends the experiment; "raise": with its error.
    """

    fail_fast: bool | str = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f'fail_fast must be True, False or "raise", not {self.fail_fast!r}.')
        if self.fail_fast and self.max_failures:
            raise ValueError(f"fail_fast needs max_failures=0, and it is {self.max_failures}.")


@dataclass
class SyncConfig:
    """Accepted for programs that have one: trials write to the storage themselves, and nothing is synchronized."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


@dataclass
class RunConfig:
    """A run of an experiment.

    Attributes:
        name: of the experiment and its folder. Default: from the trainable and the time.
        storage_path: where the folder is: a path or a URI. Default: ~/ray_results.
        storage_filesystem: fsspec's or pyarrow's file system for `storage_path`, which is a path there then.
        failure_config: what trials survive.
        checkpoint_config: which checkpoints are made and kept.
        sync_config: has no effect.
        verbose: 0: nothing is shown; 1 and 2: the experiment; None: as 1.
        stop: when a trial ends: {"metric": bound}, a function of trial id and result, or a Stopper.
        callbacks: called while it runs (`tune.Callback`).
        progress_reporter: shows the experiment in the place of the built-in table.
        log_to_file: whether what trials print goes to files of their folders: True, a name, or two names for stdout and
            stderr.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    verbose: int | Any | None = None
    stop: Mapping[str, Any] | Any | None = None
    callbacks: Sequence[Any] | None = None
    progress_reporter: Any = None
    log_to_file: bool | str | tuple[str, str] = False

    def __post_init__(self) -> None:
        self.failure_config = self.failure_config or FailureConfig()
        self.checkpoint_config = self.checkpoint_config or CheckpointConfig()
        if self.storage_path is not None:
            self.storage_path = str(self.storage_path)
            if is_local(self.storage_path, self.storage_filesystem):
                self.storage_path = local_path(self.storage_path)

    @property
    def log_files(self) -> tuple[str, str]:
        """The names of the files for stdout and stderr; "": none."""
        if isinstance(self.log_to_file, tuple | list):
            stdout, stderr = self.log_to_file
            return stdout, stderr
        if isinstance(self.log_to_file, str):
            return self.log_to_file, self.log_to_file
        return ("stdout", "stderr") if self.log_to_file else ("", "")


@dataclass
class ResumeConfig:
    """What becomes of the trials of an experiment that is restored.

    Attributes:
        finished: those that had ended without an error.
        unfinished: those that had not ended, or not begun.
        errored: those that failed.

    Raises:
        ValueError: a value is no `ResumeType`.
    """

    class ResumeType(Enum):
        """What becomes of trials of one kind."""

        RESUME = "resume"
        """They run, from their latest checkpoints."""
        RESTART = "restart"
        """They run, from the beginning."""
        SKIP = "skip"
        """They do not run. Those that had not ended have ended then."""

    finished: ResumeType = ResumeType.SKIP
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP

    def __post_init__(self) -> None:
        kinds = self.finished, self.unfinished, self.errored
        self.finished, self.unfinished, self.errored = map(ResumeType, kinds)


ResumeType = ResumeConfig.ResumeType
