"""Options of data sets: `DataContext.get_current()` has those of this process."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
RETRIED_IO_ERRORS = (
    "AWS Error INTERNAL_FAILURE",
    "AWS Error NETWORK_CONNECTION",
    "AWS Error SLOW_DOWN",
    "AWS Error UNKNOWN (HTTP status 503)",
    "AWS Error SERVICE_UNAVAILABLE",
)


@dataclass
class ExecutionResources:
    """Amounts of resources; None: no limit of one's own. `object_store_memory` and `memory` are in bytes."""

    cpu: float | None = None
    gpu: float | None = None
    object_store_memory: float | None = None
    memory: float | None = None


@dataclass
class ExecutionOptions:
    """How an execution runs.

    Attributes:
        resource_limits: what it may use. `object_store_memory` is the budget of blocks, by default an eighth of the
            cluster's object stores, shared by the data sets that this process runs at a time.
        preserve_order: whether rows come in the order of the input. If not, they come as soon as they are ready.
        exclude_resources: CPUs and bytes of the object stores that are kept for others.
        label_selector: labels of the nodes on which tasks and actors run. Those of a step count more.
        locality_with_output, actor_locality_enabled, verbose_progress: no effect.
    """

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    exclude_resources: ExecutionResources = field(default_factory=ExecutionResources)
    preserve_order: bool = True
    locality_with_output: bool = False
    actor_locality_enabled: bool = True
    verbose_progress: bool = False
    label_selector: dict[str, str] | None = None


@dataclass
class DataContext:
    """Options of this process's data sets. A data set keeps those of the time when it was made.

    Attributes:
        target_max_block_size: bytes; None: the default.
        target_min_block_size: bytes.
        max_errored_blocks: tasks that may fail, whose rows are left out; -1: any number.
        default_hash_shuffle_parallelism: into how many parts groups and joins are split; None: by their size.
        execution_options: see there.
        enable_progress_bars: whether a terminal shows the progress.
        retried_io_errors: parts of messages of errors of reading and writing after which it is tried again, 10 times
            with growing pauses. After errors of networks and busy servers it is anyway, 5 times.
        kept_heap_bytes: freed memory that a worker keeps for the arrays of its next batches; 0: as the C library does.
        scheduling_strategy: of all tasks and actors, unless a step has its own; None: actors are spread over the nodes
            by their CPUs, and tasks run where their blocks are.
        local_bytes_per_core: relational plans whose input is smaller run in this process; 0: never.
    """

    target_max_block_size: int | None = 128 * MIB
    target_min_block_size: int = MIB
    target_shuffle_max_block_size: int = 1024 * MIB
    read_op_min_num_blocks: int | None = None
    max_errored_blocks: int = 0
    default_hash_shuffle_parallelism: int | None = None
    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    enable_progress_bars: bool = True
    enable_operator_progress_bars: bool = True
    enable_rich_progress_bars: bool = False
    use_ray_tqdm: bool = True
    local_bytes_per_core: int = 64 * MIB
    kept_heap_bytes: int = 64 * MIB
    scheduling_strategy: Any = None
    retried_io_errors: list[str] = field(default_factory=lambda: list(RETRIED_IO_ERRORS))
    _config: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def get_current() -> DataContext:
        """The options of this process."""
        global _current
        if _current is None:
            _current = DataContext()
        return _current

    def copy(self) -> DataContext:
        """Its own copy."""
        return copy.deepcopy(self)

    def set_config(self, key: str, value: Any) -> None:
        """Keeps a value for the code of tasks and data sources."""
        self._config[key] = value

    def get_config(self, key: str, default: Any = None) -> Any:
        """See `set_config`."""
        return self._config.get(key, default)


_current: DataContext | None = None
