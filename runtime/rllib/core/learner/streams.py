"""Streams of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def with_end(items: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
    """Pairs of item and whether it is the last one."""
    nothing = object()
    item: Any = next(items, nothing)
    while item is not nothing:
        following = next(items, nothing)
        yield item, following is nothing
        item = following


def endless(source: Any, minibatch_size: int | None, kwargs: dict[str, Any]) -> Iterator[Any]:
    while True:
        is_empty = True
        batches = (
            source.iter_batches(batch_size=minibatch_size, **kwargs)
            if hasattr(source, "iter_batches")
            else source
        )
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty:
            raise ValueError("The data iterator of this learner has no batches")
