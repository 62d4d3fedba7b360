"""The ranks' parts of the data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.train.data_config import DataConfig


class Shards:
    """Divides the data sets of a job anew for each attempt.

    Args:
        datasets: by name; a function makes its data set here.
        config: how they are divided.
    """

    def __init__(self, datasets: Mapping[str, Any], config: DataConfig) -> None:
        self._datasets = datasets
        self._config = config

    def of(self, nodes: Sequence[str]) -> list[dict[str, Any]]:
        """What each rank gets. `nodes`: of the ranks."""
        datasets = {name: one() if callable(one) else one for name, one in self._datasets.items()}
        return self._config.configure(datasets, len(nodes), None, list(nodes))
