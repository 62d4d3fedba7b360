"""The values of the metrics of this process. They are told to the node agent now and then, and only after a change."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from runtime._wire.messages.node import Metric, MetricsReport, Series

INTERVAL_S = 0.5
Tags = tuple[tuple[str, str], ...]


class Agent(Protocol):
    """Takes reports."""

    def send(self, message: MetricsReport) -> None:
        """Sends one, without waiting."""


class _Values:
    def __init__(self, kind: str, name: str, description: str, boundaries: Sequence[float]) -> None:
        self.kind = kind
        self.name = name
        self.description = description
        self.boundaries = list(boundaries)
        self.series: dict[Tags, list[float]] = {}


def _nobody() -> None:
    """There is no connected process that would report."""


class Metrics:
    """All metrics of a process by name; instances of one name share their values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, _Values] = {}
        self.changed = False
        """Since the last report."""
        self.on_change: Callable[[], None] = _nobody
        """Called at the first change after a report."""
        self._due_s = 0.0

    def record(
        self,
        kind: str,
        name: str,
        description: str,
        boundaries: Sequence[float],
        value: float,
        tags: Tags,
    ) -> None:
        """Takes one value: a counter adds it, a gauge keeps it, a histogram counts it in its bucket."""
        with self._lock:
            known, numbers = self._numbers(kind, name, description, boundaries, tags)
            if kind == "counter":
                numbers[0] += value
            elif kind == "gauge":
                numbers[0] = value
            else:
                numbers[bisect_left(known, value)] += 1
                numbers[-1] += value
            told, self.changed = self.changed, True
        if not told:
            self.on_change()

    def count_all(
        self, name: str, description: str, boundaries: Sequence[float], values: Sequence[float], tags: Tags
    ) -> None:
        """Counts values in the buckets of a histogram; see `record`."""
        with self._lock:
            known, numbers = self._numbers("histogram", name, description, boundaries, tags)
            for value in values:
                numbers[bisect_left(known, value)] += 1
                numbers[-1] += value
            told, self.changed = self.changed, True
        if not told:
            self.on_change()

    def _numbers(
        self, kind: str, name: str, description: str, boundaries: Sequence[float], tags: Tags
    ) -> tuple[Sequence[float], list[float]]:
        """Of a metric: its boundaries, which are those of its first value, and its numbers with these tags."""
        values = self._by_name.get(name)
        if values is None:
            values = self._by_name[name] = _Values(kind, name, description, boundaries)
        numbers = values.series.get(tags)
        if numbers is None:
            # A histogram: counts per bucket (the last one is above all boundaries), then the sum.
            size = 1 if kind != "histogram" else len(values.boundaries) + 2
            numbers = values.series[tags] = [0.0] * size
        return values.boundaries, numbers

    def remove(self, tag: tuple[str, str]) -> None:
        """Removes all values that have a tag."""
        with self._lock:
            for values in self._by_name.values():
                for tags in [tags for tags in values.series if tag in tags]:
                    del values.series[tags]
            told, self.changed = self.changed, True
        if not told:
            self.on_change()

    def tick(self, agent: Agent, now: float) -> None:
        """Reports, if there is news and it is time."""
        if self.changed and now >= self._due_s:
            self._due_s = now + INTERVAL_S
            agent.send(self.report())

    def end(self) -> None:
        """This process reports no more."""
        self.on_change = _nobody

    def report(self) -> MetricsReport:
        """All values as they are."""
        with self._lock:
            self.changed = False
            return MetricsReport(
                [
                    Metric(
                        values.kind,
                        values.name,
                        values.description,
                        values.boundaries,
                        [Series(list(tags), list(numbers)) for tags, numbers in values.series.items()],
                    )
                    for values in self._by_name.values()
                ],
                time.time(),
            )


metrics = Metrics()
"""The ones of this process."""
