"""The configuration that an environment is made with."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


class EnvContext(dict[str, Any]):
    """`env_config`, with the numbers of the environment and of the runner that makes it.

    Attributes:
        worker_index: of the runner: 0 is the local one, remote ones count from 1.
        vector_index: of the environment in its runner, from 0.
        num_workers: how many remote runners there are; None if that is not known.
        remote: whether the environments of a runner are actors; always False.
        recreated_worker: whether the runner replaces one that failed.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None,
        worker_index: int,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int | None = None,
        recreated_worker: bool = False,
    ) -> None:
        super().__init__(env_config or {})
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.remote = remote
        self.num_workers = num_workers
        self.recreated_worker = recreated_worker

    def copy_with_overrides(
        self,
        env_config: Mapping[str, Any] | None = None,
        worker_index: int | None = None,
        vector_index: int | None = None,
        remote: bool | None = None,
        num_workers: int | None = None,
        recreated_worker: bool | None = None,
    ) -> EnvContext:
        """A deep copy, with the given values instead of its own."""
        return EnvContext(
            copy.deepcopy(dict(self if env_config is None else env_config)),
            self.worker_index if worker_index is None else worker_index,
            self.vector_index if vector_index is None else vector_index,
            self.remote if remote is None else remote,
            self.num_workers if num_workers is None else num_workers,
            self.recreated_worker if recreated_worker is None else recreated_worker,
        )

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Sets the keys that are not there."""
        for key, value in defaults.items():
            self.setdefault(key, value)

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = (self.worker_index, self.vector_index, self.remote, self.num_workers, self.recreated_worker)
        return EnvContext, (dict(self), *numbers)

    def __repr__(self) -> str:
        return (
            f"{super().__repr__()} (worker={self.worker_index} env={self.vector_index} of {self.num_workers})"
        )

    __str__ = __repr__
