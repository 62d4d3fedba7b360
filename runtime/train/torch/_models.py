"""Models that train over all workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from runtime.train._api.reporting import get_context
from runtime.train.torch._devices import get_device

log = logging.getLogger(__name__)


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Puts a model on the worker's device and wraps it for training over all workers.

    With one worker the model is not wrapped.

    Args:
        model: the same on every worker. For "fsdp2", layers on which the program has called `fully_shard` itself
            become groups of their own.
        move_to_device: whether to move it, or the device to move it to.
        parallel_strategy: "ddp" (`DistributedDataParallel`), "fsdp" (`FullyShardedDataParallel`, on GPUs), "fsdp2"
            (`fully_shard`, which shards the model in place, also on CPUs) or None.
        parallel_strategy_kwargs: arguments for them.

    Raises:
        ValueError: an unknown strategy.
        RuntimeError: "fsdp" without a GPU, or this is not a training function.
    """
    if parallel_strategy not in (None, *_STRATEGIES):
        known = ", ".join(_STRATEGIES)
        raise ValueError(f"parallel_strategy must be one of {known} or None, not {parallel_strategy!r}.")
    context = get_context()
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    level = logging.INFO if context.get_local_rank() == 0 else logging.DEBUG
    if move_to_device:
        log.log(level, "Moving model to device: %s", device)
        model = model.to(device)
    if parallel_strategy is None or context.get_world_size() == 1:
        return model
    log.log(level, "Distributing the model: %s", parallel_strategy)
    return _STRATEGIES[parallel_strategy](model, device, dict(parallel_strategy_kwargs or {}))


def _ddp(model: torch.nn.Module, device: torch.device, options: dict[str, Any]) -> torch.nn.Module:
    if device.type != "cpu":
        options = {"device_ids": [device], "output_device": device, **options}
    return torch.nn.parallel.DistributedDataParallel(model, **options)


def _fsdp(model: torch.nn.Module, device: torch.device, options: dict[str, Any]) -> torch.nn.Module:
    if device.type == "cpu":
        raise RuntimeError(
            "FullyShardedDataParallel needs GPUs: set use_gpu=True in the ScalingConfig, or use "
            'parallel_strategy="fsdp2", which also works on CPUs.'
        )
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, **options)


def _fsdp2(model: torch.nn.Module, device: torch.device, options: dict[str, Any]) -> torch.nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if "mesh" not in options:
        options["mesh"] = init_device_mesh(device.type, (get_context().get_world_size(),))
    fully_shard(model, **options)
    return model


_STRATEGIES: dict[str, Callable[[torch.nn.Module, torch.device, dict[str, Any]], torch.nn.Module]] = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "fsdp2": _fsdp2,
}
