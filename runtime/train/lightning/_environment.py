"""The workers of a run as Lightning's cluster, and the check that a trainer uses them."""

from __future__ import annotations

from typing import Any

from runtime.train._api.reporting import get_context
from runtime.train.lightning._library import environments
from runtime.train.lightning._strategies import RayDDPStrategy, RayDeepSpeedStrategy, RayFSDPStrategy

_STRATEGIES = (RayDDPStrategy, RayFSDPStrategy, RayDeepSpeedStrategy)


class RayLightningEnvironment(environments.LightningEnvironment):  # type: ignore[misc,name-defined]
    """Ranks and sizes of the training function's context. Lightning starts no processes of its own."""

    @property
    def creates_processes_externally(self) -> bool:
        """Always."""
        return True

    def world_size(self) -> int:
        """The number of workers."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """The worker's rank."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """The worker's rank on its node."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """The rank of the worker's node."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Has no effect: Lightning would compute it from the number of local devices."""

    def set_global_rank(self, rank: int) -> None:
        """Has no effect, as `set_world_size`."""

    def teardown(self) -> None:
        """Has no effect: the process group belongs to the run."""


def prepare_trainer(trainer: Any) -> Any:
    """Checks that a Lightning trainer runs over the workers.

    Returns:
        The trainer.

    Raises:
        RuntimeError: its strategy or its cluster environment is not one of this module.
    """
    if not isinstance(trainer.strategy, _STRATEGIES):
        names = ", ".join(each.__name__ for each in _STRATEGIES)
        raise RuntimeError(
            f"Invalid strategy class: {type(trainer.strategy).__name__}. Give the Trainer one of {names} of "
            "ray.train.lightning, or a class derived from one."
        )
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if environment is not None and not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(
            f"Invalid cluster environment plugin: {type(environment).__name__}. Give the Trainer "
            "plugins=[RayLightningEnvironment()]."
        )
    return trainer
