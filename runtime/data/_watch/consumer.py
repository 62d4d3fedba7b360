"""Where the time goes of the code that takes the blocks of a data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Consumer:
    """Seconds of one pass.

    Attributes:
        waited_s: until blocks were there.
        fetched_s: until they were in this process.
        busy_s: in the code that took them: it makes batches, formats them, and runs the user's code.
    """

    waited_s: float = 0.0
    fetched_s: float = 0.0
    busy_s: float = 0.0
    blocks: int = 0
    rows: int = 0

    def timed(self, blocks: Iterator[T], rows_of: Callable[[T], int]) -> Iterator[T]:
        """The blocks, whose times are taken."""
        begun = time.perf_counter()
        for block in blocks:
            given = time.perf_counter()
            self.waited_s += given - begun
            self.blocks += 1
            self.rows += rows_of(block)
            try:
                yield block
            finally:
                begun = time.perf_counter()
                self.busy_s += begun - given
        self.waited_s += time.perf_counter() - begun

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """The block is fetched, in what otherwise is the time until it is there."""
        begun = time.perf_counter()
        yield
        took_s = time.perf_counter() - begun
        self.fetched_s += took_s
        self.waited_s -= took_s
