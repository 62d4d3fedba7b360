"""Data loaders of torch, of which each worker reads its share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from runtime.train._api.reporting import get_context
from runtime.train.torch._devices import get_device

log = logging.getLogger(__name__)
_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
)
"""What a loader with another sampler takes over."""


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> DataLoader[Any]:
    """A loader of this worker's share of the data set, whose batches are on the worker's device.

    With several workers it gets a `DistributedSampler`, which shuffles if the loader did. Call
    `loader.sampler.set_epoch(epoch)` before each epoch: otherwise each has the same order. Loaders of an
    `IterableDataset`, and those that have a `DistributedSampler`, keep what they have.

    Args:
        data_loader: the same on every worker.
        add_dist_sampler: whether to divide the data set.
        move_to_device: whether to move the tensors of a batch. They may lie in lists, tuples and mappings.
        auto_transfer: on a GPU, copy the next batch while the program works on the last.

    Raises:
        ValueError: the loader has a batch sampler of its own, which cannot be divided.
        RuntimeError: this is not a training function.
    """
    context = get_context()
    if add_dist_sampler and context.get_world_size() > 1:
        data_loader = divided(data_loader, context.get_world_size(), context.get_world_rank())
    device = get_device()
    if not move_to_device or device.type == "cpu":  # batches are made on the CPU
        return data_loader
    return _OnDevice(data_loader, device, auto_transfer)


def divided(loader: DataLoader[Any], world_size: int, rank: int) -> DataLoader[Any]:
    """A loader of one rank's share of what `loader` reads."""
    if isinstance(loader.dataset, IterableDataset) or isinstance(loader.sampler, DistributedSampler):
        return loader
    if loader.batch_size is None and loader.batch_sampler is not None:
        raise ValueError(
            "A data loader with a batch_sampler cannot be divided among workers: give it a batch_size instead, or a "
            "batch sampler that knows the ranks and add_dist_sampler=False."
        )
    if not isinstance(loader.sampler, SequentialSampler | RandomSampler) and rank == 0:
        log.warning(
            "A DistributedSampler replaces the data loader's %s. add_dist_sampler=False keeps it.",
            type(loader.sampler).__name__,
        )
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset,
        num_replicas=world_size,
        rank=rank,
        shuffle=not isinstance(loader.sampler, SequentialSampler),
    )
    kept = {name: getattr(loader, name) for name in _KEPT}
    if loader.batch_size is not None:
        kept["drop_last"] = loader.drop_last
    return DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=sampler, **kept)


class _OnDevice(DataLoader[Any]):  # type: ignore[misc]
    """Gives the batches of another loader on a GPU, and is that loader in all else."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, ahead: bool) -> None:
        self.__dict__.update(loader.__dict__)
        self._loader = loader
        self._device = device
        self._stream = torch.cuda.Stream(device) if ahead else None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None:
            for batch in self._loader:
                yield moved(batch, self._device, is_ahead=False)
            return
        copied: list[Any] = []
        for batch in self._loader:
            with torch.cuda.stream(self._stream):
                copied.append(moved(batch, self._device, is_ahead=True))
            if len(copied) == 2:
                yield self._arrived(copied.pop(0))
        if copied:
            yield self._arrived(copied.pop())

    def _arrived(self, batch: Any) -> Any:
        """The batch, for the stream on which the program computes."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for tensor in _tensors(batch):
            tensor.record_stream(computing)  # or its memory would be given away once the copying is over
        return batch


def moved(item: Any, device: torch.device, is_ahead: bool) -> Any:
    """A batch with its tensors on a device.

    Args:
        is_ahead: the copy may go on after the return.
    """
    if isinstance(item, torch.Tensor):
        return item.to(device, non_blocking=is_ahead)
    if isinstance(item, Mapping):
        return {key: moved(value, device, is_ahead) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(moved(each, device, is_ahead) for each in item))
    if isinstance(item, tuple | list):
        return type(item)(moved(each, device, is_ahead) for each in item)
    return item


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        if item.is_cuda:
            yield item
    elif isinstance(item, Mapping):
        for value in item.values():
            yield from _tensors(value)
    elif isinstance(item, tuple | list):
        for each in item:
            yield from _tensors(each)
