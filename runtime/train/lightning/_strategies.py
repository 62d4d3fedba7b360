"""Strategies of Lightning on the workers of a run, whose process group exists already.

Process group and timeout are chosen by `TorchConfig`.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from runtime.train.lightning._library import pl
from runtime.train.torch._devices import get_device


class _OnWorkers:
    """Device and ranks are the worker's."""

    world_size: int
    global_rank: int

    @property
    def root_device(self) -> torch.device:
        """The worker's device."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """What the sampler that Lightning adds to data loaders is made with."""
        return {"num_replicas": self.world_size, "rank": self.global_rank}


class RayDDPStrategy(_OnWorkers, pl.strategies.DDPStrategy):  # type: ignore[misc]
    """`DistributedDataParallel` over the workers. Takes the arguments of Lightning's `DDPStrategy`."""


class RayFSDPStrategy(_OnWorkers, pl.strategies.FSDPStrategy):  # type: ignore[misc]
    """`FullyShardedDataParallel` over the workers. Takes the arguments of Lightning's `FSDPStrategy`."""


class RayDeepSpeedStrategy(_OnWorkers, pl.strategies.DeepSpeedStrategy):  # type: ignore[misc]
    """DeepSpeed over the workers. Takes the arguments of Lightning's `DeepSpeedStrategy`.

    Raises:
        ImportError: DeepSpeed is not installed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if importlib.util.find_spec("deepspeed") is None:
            raise ImportError(
                "RayDeepSpeedStrategy needs DeepSpeed, which is not installed here: pip install 'deepspeed>=0.16', or "
                "use RayFSDPStrategy, which shards parameters and optimizer with torch alone."
            )
        super().__init__(*args, **kwargs)
