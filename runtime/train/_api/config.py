"""How a run of training is configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from runtime.train._run.files import is_local, local_path


class CheckpointUploadMode(Enum):
    """What becomes of a checkpoint's files when it is reported."""

    SYNC = "SYNC"
    """They are in the storage when `report` returns."""
    ASYNC = "ASYNC"
    """They are uploaded by a thread of the worker."""
    NO_UPLOAD = "NO_UPLOAD"
    """They are in the storage already: the checkpoint's path is taken as it is."""


class CheckpointConsistencyMode(Enum):
    """Which checkpoints `get_all_reported_checkpoints` waits for."""

    COMMITTED = "COMMITTED"
    """Those that are reported."""
    VALIDATED = "VALIDATED"
    """Those that are reported, and their validations."""


@dataclass
class ScalingConfig:
    """The workers of a run.

    Attributes:
        num_workers: how many. A pair is the least and the most of a run that grows and shrinks: it starts with as many
            as have room, goes on with fewer where a worker is not replaced in time, and has more where there is room
            again. 0: the function is called in this process (local mode).
        use_gpu: each worker has a GPU, unless `resources_per_worker` says how many.
        resources_per_worker: for example {"CPU": 2, "GPU": 1}. Default: a CPU, and a GPU with `use_gpu`.
        placement_strategy: of the placement group: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        accelerator_type: the type that the nodes must have (`runtime.util.accelerators`).
        label_selector: labels that the nodes must have; a list has those of the n-th worker's node.
        trainer_resources: of the controller. Default: none.
        elastic_resize_monitor_interval_s: seconds between looks for room for more workers; and so long, but 30 s at
            most, an elastic run waits for the replacement of a worker.

    Raises:
        ValueError: a value cannot be meant.
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    trainer_resources: Mapping[str, float] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.num_workers, tuple):
            least, most = self.num_workers
            if not 1 <= least <= most:
                raise ValueError(
                    f"num_workers=(least, most) needs 1 <= least <= most, not {self.num_workers}."
                )
        elif self.num_workers < 0:
            raise ValueError(f"num_workers must not be negative: {self.num_workers}.")
        strategies = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
        if self.placement_strategy not in strategies:
            raise ValueError(
                f"placement_strategy must be one of {', '.join(strategies)}, not {self.placement_strategy!r}."
            )
        selectors = self.label_selector
        if not (selectors is None or isinstance(selectors, Mapping) or len(selectors) == self.num_workers):
            raise ValueError(
                f"A list of label_selector has one for each of the workers (num_workers={self.num_workers}), not "
                f"{len(selectors)}."
            )
        if self.use_tpu or self.topology:
            raise NotImplementedError("use_tpu and topology: training on TPU slices is not supported yet.")
        if not self.use_gpu and (self.resources_per_worker or {}).get("GPU"):
            raise ValueError(
                "resources_per_worker asks for GPUs and use_gpu is False. Set use_gpu=True, or leave the GPUs out."
            )
        if self.use_gpu and (self.resources_per_worker or {}).get("GPU") == 0:
            raise ValueError("use_gpu is True and resources_per_worker has no GPU: 0. Leave one of them out.")

    @property
    def most_workers(self) -> int:
        """How many workers the run has at most."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one worker."""
        bundle = dict(self.resources_per_worker) if self.resources_per_worker is not None else {"CPU": 1.0}
        if self.use_gpu:
            bundle.setdefault("GPU", 1.0)
        if self.accelerator_type:
            bundle[f"accelerator_type:{self.accelerator_type}"] = 0.001
        return {name: float(amount) for name, amount in bundle.items() if amount}

    @property
    def total_resources(self) -> dict[str, float]:
        """The resources of all workers and the controller."""
        total = {name: amount * self.most_workers for name, amount in self.bundle.items()}
        for name, amount in (self.trainer_resources or {}).items():
            total[name] = total.get(name, 0.0) + amount
        return total


@dataclass
class FailureConfig:
    """What a run survives.

    Attributes:
        max_failures: how often workers may fail; -1: without a limit.
        controller_failure_limit: how often the controller's process may end; -1: without a limit.
        max_preemption_failures: how often machines that are taken away may count as no failure; -1: without a limit.
    """

    max_failures: int = 0
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1

    def __post_init__(self) -> None:
        for name in ("max_failures", "controller_failure_limit", "max_preemption_failures"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < -1:
                raise ValueError(f"{name} must be a whole number from -1, not {value!r}.")


@dataclass
class CheckpointConfig:
    """Which checkpoints of a run are kept.

    Attributes:
        num_to_keep: how many; None: all. The latest is kept in any case.
        checkpoint_score_attribute: the metric that ranks them; None: the later the better.
        checkpoint_score_order: whether the "max" or the "min" of it is best.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and self.num_to_keep < 1:
            raise ValueError(f"num_to_keep must be None or at least 1, not {self.num_to_keep}.")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f"checkpoint_score_order must be max or min, not {self.checkpoint_score_order!r}."
            )


@dataclass
class LoggingConfig:
    """What a run logs.

    Attributes:
        log_level: of the library's own messages.
    """

    log_level: str | int = "INFO"


@dataclass
class RunConfig:
    """A run of training.

    Attributes:
        name: of the run and its folder. Default: from the time.
        storage_path: where the run's folder is: a path or a URI. Default: ~/ray_results.
        storage_filesystem: fsspec's or pyarrow's file system for `storage_path`, which is a path there then.
        failure_config: what it survives.
        checkpoint_config: which checkpoints it keeps.
        callbacks: called while it trains (`UserCallback`).
        worker_runtime_env: the runtime environment of the workers.
        logging_config: what is logged.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    callbacks: Sequence[Any] | None = None
    worker_runtime_env: Mapping[str, Any] | None = None
    logging_config: LoggingConfig | None = None

    def __post_init__(self) -> None:
        self.failure_config = self.failure_config or FailureConfig()
        self.checkpoint_config = self.checkpoint_config or CheckpointConfig()
        if self.storage_path is not None:
            self.storage_path = str(self.storage_path)
            if is_local(self.storage_path, self.storage_filesystem):
                self.storage_path = local_path(
                    self.storage_path
                )  # other processes have other current folders
