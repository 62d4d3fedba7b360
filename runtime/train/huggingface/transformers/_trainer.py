"""Trainers of Transformers that read data sets of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset


class _Batches(IterableDataset[Any]):  # type: ignore[misc]
    """Batches that are made already, as a data set of torch."""

    def __init__(self, batches: Any) -> None:
        super().__init__()
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def prepare_trainer(trainer: Any) -> Any:
    """Lets a trainer read the shards of data sets.

    Where its `train_dataset` or `eval_dataset` is what `get_dataset_shard(...).iter_torch_batches(...)` gives, the
    trainer takes these batches as they are. Such a training needs `max_steps`, since a stream has no length.

    Returns:
        The trainer.
    """
    base: Any = type(trainer)

    class RayTransformersTrainer(base):  # type: ignore[misc]
        """The trainer's class with loaders for batches of shards."""

        def get_train_dataloader(self) -> DataLoader[Any]:
            if _is_stream(self.train_dataset):
                return _loader(self.train_dataset)
            loader: DataLoader[Any] = super().get_train_dataloader()
            return loader

        def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
            chosen = self.eval_dataset if eval_dataset is None else eval_dataset
            if isinstance(chosen, str) and isinstance(self.eval_dataset, dict):
                chosen = self.eval_dataset[chosen]
            if _is_stream(chosen):
                return _loader(chosen)
            loader: DataLoader[Any] = super().get_eval_dataloader(eval_dataset)
            return loader

    trainer.__class__ = RayTransformersTrainer
    return trainer


def _is_stream(dataset: Any) -> bool:
    """Whether it is an iterable that `runtime.data` has made."""
    return type(dataset).__module__.startswith("runtime.data.")


def _loader(batches: Any) -> DataLoader[Any]:
    return DataLoader(_Batches(batches), batch_size=None)
