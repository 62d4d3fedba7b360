"""How data.py takes a figure: every result is checked, and what does not end within its limit counts as failed."""

from __future__ import annotations

import contextlib
import math
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from comparison import Measuring
from data_input import MIB
from figures import progress
from store_watch import StoreWatch

SLOW_S = 5.0
"""What takes longer is measured once."""
Check = Callable[[Any], None]
Operation = Callable[[], Any]


class Timing:
    """Takes figures of one engine or of anchors.

    Args:
        m: takes them.
        limit_s: for each figure.
    """

    def __init__(self, m: Measuring, limit_s: int) -> None:
        self.m = m
        self._limit_s = limit_s

    def take(self, name: str, take: Callable[[], float], tool: str = "") -> None:
        """What `take` returns. A tool that is not installed is left out."""
        self.together([name], lambda: self.m.note(name, take(), tool), tool)

    def together(self, names: list[str], part: Callable[[], None], tool: str = "") -> None:
        """Runs a part that notes these, if one of them is wanted."""
        if not self.m.wants(*names):
            return

        def bounded() -> None:
            try:
                with deadline(self._limit_s):
                    part()
            except ModuleNotFoundError as error:
                progress(f"data: {names[0]}: left out: {error}")

        self.m.guard(bounded, f"{names[0]} {tool}".rstrip())

    def seconds(self, name: str, operation: Operation, check: Check, tool: str = "") -> None:
        """What an operation takes."""
        self.take(name, lambda: self.seconds_of(operation, check), tool)

    def seconds_of(self, operation: Operation, check: Check) -> float:
        """The median, after a warm-up."""
        first = once(operation, check)
        if first > SLOW_S:
            return once(operation, check)
        return statistics.median(once(operation, check) for _ in range(self.m.rounds))

    def rate(self, name: str, count: int, operation: Operation, check: Check, tool: str = "") -> None:
        """How many a second, of the `count` that an operation does."""
        self.take(name, lambda: count / self.seconds_of(operation, check), tool)

    def epochs(self, name: str, epoch: Operation, check: Check, tool: str = "") -> None:
        """Rows a second, of epochs that return (rows, value)."""
        self.take(name, lambda: self.rate_of_epochs(epoch, check), tool)

    def rate_of_epochs(self, epoch: Operation, check: Check) -> float:
        """The median of the rounds."""
        start = time.perf_counter()
        rows, value = epoch()
        first_s, rates = time.perf_counter() - start, []
        check(value)
        if first_s > SLOW_S:  # most of it may be imports
            start = time.perf_counter()
            rows, value = epoch()
            return rows / (time.perf_counter() - start)
        for _ in range(self.m.rounds):
            rows, start = 0, time.perf_counter()
            while time.perf_counter() - start < self.m.round_s:
                more, value = epoch()
                rows += more
            rates.append(rows / (time.perf_counter() - start))
            check(value)
        return statistics.median(rates)

    def passes(
        self,
        first: str,
        whole: str,
        batches: Callable[[], Iterable[Any]],
        of_batch: Callable[[Any], int],
        expected: int,
        tool: str = "",
    ) -> None:
        """Seconds until the first batch and all of them; the numbers that `of_batch` gives add up to `expected`."""

        def part() -> None:
            firsts, wholes = [], []
            for _ in range(self.m.rounds):
                start, first_s, total = time.perf_counter(), 0.0, 0
                for batch in batches():
                    first_s = first_s or time.perf_counter() - start
                    total += of_batch(batch)
                wholes.append(time.perf_counter() - start)
                firsts.append(first_s)
                require(total == expected, f"{total} in place of {expected}")
            self.m.note(first, statistics.median(firsts), tool)
            self.m.note(whole, statistics.median(wholes), tool)

        self.together([first, whole], part, tool)

    def watched(
        self,
        main: str,
        of_seconds: Callable[[float], float],
        operation: Operation,
        check: Check,
        tool: str = "",
    ) -> None:
        """Runs an operation once: its figure, its peak in the store, and what was written to disk."""

        def part() -> None:
            with StoreWatch() as watch:
                seconds = once(operation, check)
            self.m.note(main, of_seconds(seconds), tool)
            if not tool:
                self.m.note(f"{main}: peak store", watch.peak_bytes / MIB)
            self.m.note(f"{main}: written to disk", watch.disk_bytes / MIB, tool)

        self.together([main, f"{main}: peak store", f"{main}: written to disk"], part, tool)


def once(operation: Operation, check: Check) -> float:
    """Seconds of an operation, without those of the check."""
    start = time.perf_counter()
    result = operation()
    seconds = time.perf_counter() - start
    check(result)
    return seconds


def require(condition: object, message: str) -> None:
    """Raises if something is not as it should be."""
    if not condition:
        raise AssertionError(message)


def equal(expected: Any) -> Check:
    """The check that a value is the one expected; of numbers with fractions nearly."""

    def check(value: Any) -> None:
        same = (
            math.isclose(value, expected, rel_tol=1e-4) if isinstance(expected, float) else value == expected
        )
        require(same, f"{str(value)[:100]} in place of {str(expected)[:100]}")

    return check


@contextlib.contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the main thread after so many seconds."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
