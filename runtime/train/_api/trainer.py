"""Trainers whose workers all run the same function on a part of the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from runtime._system import settings
from runtime.train._api.callbacks import UserCallback
from runtime.train._api.config import RunConfig, ScalingConfig
from runtime.train._api.validation import ValidationConfig
from runtime.train._run.backend import Backend
from runtime.train.data_config import DataConfig

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._api.result import Result


class BackendConfig:
    """How the workers of a run are connected. This one does not connect them."""

    def make_backend(self) -> Backend:
        """What connects them, in each worker."""
        return Backend()

    def to_dict(self) -> dict[str, Any]:
        """The fields, as they are written to the run's folder."""
        return {}


class DataParallelTrainer:
    """Runs a training function on several workers.

    Args:
        train_loop_per_worker: the function. It takes `train_loop_config`, or nothing.
        train_loop_config: argument of the function.
        backend_config: how the workers are connected.
        scaling_config: the workers.
        run_config: name, storage, failures and checkpoints of the run.
        datasets: data sets by name, or functions that make them; each worker has a shard of them (`get_dataset_shard`).
        dataset_config: how they are divided.
        resume_from_checkpoint: what `get_checkpoint` gives before the run has a checkpoint of its own.
        metadata: what `get_context().get_metadata()` gives.
        validation_config: how checkpoints are validated whose report asks for that.

    Raises:
        ValueError: the function cannot be called with what it would get, or a callback is none.
        TypeError: `validation_config` is none.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: Any = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.backend_config = backend_config or BackendConfig()
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.datasets = dict(datasets or {})
        self.dataset_config = dataset_config or DataConfig()
        self.resume_from_checkpoint = resume_from_checkpoint
        self.metadata = dict(metadata or {})
        self.validation_config = validation_config
        if not isinstance(validation_config, ValidationConfig | None):
            raise TypeError(f"validation_config must be a ValidationConfig, not {validation_config!r:.100}.")
        wrong = [each for each in self.run_config.callbacks or () if not isinstance(each, UserCallback)]
        if wrong:
            raise ValueError(f"callbacks must be instances of UserCallback, not {wrong[0]!r}.")
        self._function = _without_arguments(train_loop_per_worker, train_loop_config)

    def fit(self) -> Result:
        """Runs the function until it has returned on every worker. Starts a local cluster where the process has none.

        Raises:
            WorkerGroupError: the function failed too often, or could not be run.
            ControllerError: the run's controller failed.
        """
        from runtime.train._run.driver import fit
        from runtime.train._run.job import Job

        name = self.run_config.name or datetime.now().strftime("train_run-%Y-%m-%d_%H-%M-%S.%f")
        limit_s = settings.TRAIN_REPORT_TIMEOUT_S.get()
        return fit(
            Job(
                function=self._function,
                backend=self.backend_config.make_backend(),
                scaling=self.scaling_config,
                run=replace(self.run_config, name=name),
                datasets=self.datasets,
                data_config=self.dataset_config,
                resume_from=self.resume_from_checkpoint,
                metadata=self.metadata,
                report_timeout_s=limit_s if limit_s >= 0 else None,
                validation=self.validation_config,
                copy_bytes=settings.TRAIN_COPY_BYTES.get(),
            )
        )


def _without_arguments(function: Callable[..., Any], config: Mapping[str, Any] | None) -> Callable[[], Any]:
    """The training function with its configuration.

    Raises:
        ValueError: it takes more than the configuration, or there is one that it does not take.
    """
    name = getattr(function, "__name__", repr(function))
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_KEYWORD, each.KEYWORD_ONLY)
    ]
    required = [
        each for each in parameters if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
    ]
    if len(required) > 1:
        raise ValueError(
            f"The training function {name} needs {len(required)} arguments; it is called with its configuration, "
            "or with nothing."
        )
    if parameters:
        return partial(function, dict(config or {}))
    if config:
        raise ValueError(f"There is a train_loop_config, and the training function {name} takes no argument.")
    return function
