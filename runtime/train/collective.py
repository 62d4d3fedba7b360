"""Points at which the workers of a run wait for each other, with any framework."""

from __future__ import annotations

from typing import TypeVar

from runtime import cloudpickle
from runtime.train._run.session import current

T = TypeVar("T")


def barrier() -> None:
    """Returns once every worker has called it.

    Raises:
        RuntimeError: this is not a training function.
    """
    current().exchange("barrier", b"")


def broadcast_from_rank_zero(data: T) -> T:
    """What rank 0 gave; all workers call it, and it returns once all have.

    For small values, such as a path: they go through the run's controller. Use torch.distributed for tensors.

    Args:
        data: can be pickled; ignored on the other ranks.

    Raises:
        RuntimeError: this is not a training function.
    """
    session = current()
    is_first = session.context.get_world_rank() == 0
    said = session.exchange("broadcast_from_rank_zero", cloudpickle.dumps(data) if is_first else b"")
    answer: T = cloudpickle.loads(said[0])
    return answer
