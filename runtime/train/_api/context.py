"""Where a training function runs."""

from __future__ import annotations

from typing import Any

import msgspec

from runtime.train._core.ranks import Place


class TrainContext(msgspec.Struct, frozen=True):
    """A worker's place in its run. `get_context()` gives it.

    Attributes:
        place: the ranks.
        experiment_name: of the run.
        storage: of the run (`runtime.train._run.storage.RunStorage`).
        metadata: what was given to the trainer.
        resources: of the worker.
    """

    place: Place
    experiment_name: str
    storage: Any = None
    metadata: dict[str, Any] = {}
    resources: dict[str, float] = {}

    def get_world_rank(self) -> int:
        """The worker's rank among all workers."""
        return self.place.rank

    def get_world_size(self) -> int:
        """The number of workers."""
        return self.place.world_size

    def get_local_rank(self) -> int:
        """The worker's rank among those of its node."""
        return self.place.local_rank

    def get_local_world_size(self) -> int:
        """The number of workers of its node."""
        return self.place.local_world_size

    def get_node_rank(self) -> int:
        """The rank of the worker's node among the nodes with workers."""
        return self.place.node_rank

    def get_experiment_name(self) -> str:
        """The name of the run."""
        return self.experiment_name

    def get_storage(self) -> Any:
        """The run's folder and its file system."""
        return self.storage

    def get_metadata(self) -> dict[str, Any]:
        """What was given to the trainer as `metadata`."""
        return self.metadata

    def get_trial_name(self) -> str:
        """The name of the run: a run that is not part of a tuning is its own trial."""
        return self.experiment_name

    def get_trial_id(self) -> str:
        """The name of the run."""
        return self.experiment_name

    def get_trial_resources(self) -> dict[str, float]:
        """The resources of the worker."""
        return self.resources

    def get_trial_dir(self) -> str:
        """The path of the run's folder."""
        return str(self.storage.folder) if self.storage is not None else ""
