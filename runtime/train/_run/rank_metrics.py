"""Metrics of the ranks for Prometheus, with Ray's names where Ray has them. They go with the worker's process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from runtime.util.metrics import Gauge

_KEYS = ("ray_train_run_name", "ray_train_worker_world_rank")


class RankMetrics:
    """Those of one process. A process may be different ranks, one after another.

    Args:
        name: of the run.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._totals: defaultdict[tuple[Gauge, int], float] = defaultdict(float)
        self._blocked = Gauge(
            "train_report_total_blocked_time_s", "seconds in which report() did not return", _KEYS
        )
        self._reports = Gauge("train_report_total", "reports of this process", _KEYS)
        self._seconds = Gauge(
            "train_checkpoint_transfer_total_time_s",
            "seconds in which files of checkpoints were uploaded",
            _KEYS,
        )
        self._bytes = Gauge(
            "train_checkpoint_transfer_total_bytes", "bytes of checkpoints that were uploaded", _KEYS
        )

    @contextmanager
    def report(self, rank: int) -> Iterator[None]:
        """Counts a report, whose call is the block."""
        start_s = perf_counter()
        try:
            yield
        finally:
            self._add(self._blocked, rank, perf_counter() - start_s)
            self._add(self._reports, rank, 1)

    def uploaded(self, rank: int, seconds: float, size_bytes: int) -> None:
        """Counts an upload that has ended."""
        self._add(self._seconds, rank, seconds)
        self._add(self._bytes, rank, size_bytes)

    def _add(self, gauge: Gauge, rank: int, value: float) -> None:
        self._totals[gauge, rank] += value
        gauge.set(self._totals[gauge, rank], {_KEYS[0]: self._name, _KEYS[1]: str(rank)})
