"""XGBoost's communicator between the workers of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.train._api.trainer import BackendConfig
from runtime.train._run.backend import Backend, WorkerContext
from runtime.util import get_node_ip_address


@dataclass
class XGBoostConfig(BackendConfig):
    """How the workers are connected.

    Attributes:
        xgboost_communicator: "rabit".

    Raises:
        ValueError: another communicator is asked for.
    """

    xgboost_communicator: str = "rabit"

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise ValueError(f"xgboost_communicator must be rabit, not {self.xgboost_communicator!r}.")

    def make_backend(self) -> Backend:
        """What connects them."""
        return XGBoostBackend()

    def to_dict(self) -> dict[str, Any]:
        """The fields, as they are written to the run's folder."""
        return {"xgboost_communicator": self.xgboost_communicator}


class XGBoostBackend(Backend):
    """A tracker on rank 0 by which the ranks meet, and a communicator on each."""

    modules = ("xgboost",)
    has_rendezvous = True

    def __init__(self) -> None:
        self._tracker: Any = None
        self._communicator: Any = None

    def rendezvous(self, context: WorkerContext) -> dict[str, Any]:
        """Starts the tracker.

        Returns:
            What the communicators need to find it.
        """
        from xgboost.tracker import RabitTracker

        host = get_node_ip_address()
        self._tracker = RabitTracker(n_workers=context.get_world_size(), host_ip=host, sortby="task")
        self._tracker.start()
        return dict(self._tracker.worker_args())

    def join(self, rendezvous: dict[str, Any], context: WorkerContext) -> None:
        """Connects with the other ranks. XGBoost sorts its own ranks by the names that these give themselves."""
        from xgboost.collective import CommunicatorContext

        name = f"rank-{context.get_world_rank():08d}"
        communicator = CommunicatorContext(**rendezvous, dmlc_task_id=name)
        communicator.__enter__()
        self._communicator = communicator

    def leave(self) -> None:
        """Disconnects."""
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.__exit__(None, None, None)
        self._tracker = None
