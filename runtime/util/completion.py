"""Results in the order of completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runtime import api


def as_completed(
    refs: Sequence[Any], *, chunk_size: int = 10, yield_obj_refs: bool = False, **wait_options: Any
) -> Iterator[Any]:
    """The values of `refs`, `chunk_size` at a time as they become ready.

    Args:
        refs: references.
        chunk_size: how many to wait for at once.
        yield_obj_refs: yield references instead of values.
        wait_options: options of `wait`: `timeout`, `fetch_local`.

    Raises:
        ValueError: `chunk_size` below 1, or `num_returns` given.
    """
    _check(chunk_size, wait_options)
    waiting = list(refs)
    while waiting:
        ready, waiting = _next_chunk(waiting, chunk_size, yield_obj_refs, wait_options)
        yield from ready


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    **wait_options: Any,
) -> Iterator[Any]:
    """Runs the remote function `fn` on every item; yields the results as they become ready.

    Args:
        fn: a remote function of one argument.
        items: an iterable, read as tasks finish.
        backpressure_size: the limit of concurrent tasks; None: no limit.
        chunk_size, yield_obj_refs, wait_options: see `as_completed`.

    Raises:
        ValueError: a size below 1, or `num_returns` given.
    """
    if backpressure_size is not None and backpressure_size <= 0:
        raise ValueError("backpressure_size must be positive.")
    _check(chunk_size, wait_options)
    waiting: list[Any] = []
    for item in items:
        waiting.append(fn.remote(item))
        if backpressure_size is not None and len(waiting) >= backpressure_size:
            ready, waiting = _next_chunk(waiting, chunk_size, yield_obj_refs, wait_options)
            yield from ready
    yield from as_completed(waiting, chunk_size=chunk_size, yield_obj_refs=yield_obj_refs, **wait_options)


def _check(chunk_size: int, wait_options: dict[str, Any]) -> None:
    if chunk_size < 1:
        raise ValueError("`chunk_size` must be >= 1")
    if "num_returns" in wait_options:
        raise ValueError("Use the `chunk_size` argument instead of `num_returns`.")


def _next_chunk(
    waiting: list[Any], chunk_size: int, yield_obj_refs: bool, wait_options: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    ready, rest = api.wait(waiting, num_returns=min(chunk_size, len(waiting)), **wait_options)
    return (ready if yield_obj_refs else api.get(ready)), rest
