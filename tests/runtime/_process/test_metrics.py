"""The metrics of a process: what its agent hears, and when."""

from __future__ import annotations

import pytest

from runtime._process.metrics import INTERVAL_S, Metrics
from runtime._wire.messages.node import MetricsReport


class Agent:
    def __init__(self) -> None:
        self.reports: list[MetricsReport] = []

    def send(self, message: MetricsReport) -> None:
        self.reports.append(message)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def values(report: MetricsReport) -> dict[str, list[tuple[list[tuple[str, str]], list[float]]]]:
    return {
        metric.name: [(series.tags, series.numbers) for series in metric.series] for metric in report.metrics
    }


def test_counters_add_and_gauges_keep(metrics: Metrics) -> None:
    for value in (1.0, 2.0):
        metrics.record("counter", "c", "", (), value, (("a", "1"),))
        metrics.record("gauge", "g", "", (), value, ())
    metrics.record("counter", "c", "", (), 5.0, (("a", "2"),))
    assert values(metrics.report()) == {
        "c": [([("a", "1")], [3.0]), ([("a", "2")], [5.0])],
        "g": [([], [2.0])],
    }


def test_histograms_count_by_bucket(metrics: Metrics) -> None:
    for value in (0.5, 1.0, 5.0, 50.0):
        metrics.record("histogram", "h", "", (1.0, 10.0), value, ())
    assert values(metrics.report()) == {"h": [([], [2.0, 1.0, 1.0, 56.5])]}


def test_many_values_count_as_one_after_the_other(metrics: Metrics) -> None:
    values = [0.5, 1.0, 5.0, 50.0, 5.0]
    for value in values:
        metrics.record("histogram", "one", "", (1.0, 10.0), value, ())
    metrics.count_all("all", "", (1.0, 10.0), values[:3], ())
    metrics.count_all("all", "", (1.0, 10.0), values[3:], ())
    one, every = metrics.report().metrics
    assert one.series == every.series


def test_a_change_is_told_once_and_reported_now_and_then(metrics: Metrics) -> None:
    told: list[None] = []
    metrics.on_change = lambda: told.append(None)
    agent = Agent()
    metrics.tick(agent, 100.0)
    assert agent.reports == []  # there is no news
    metrics.record("gauge", "g", "", (), 1.0, ())
    metrics.record("gauge", "g", "", (), 2.0, ())
    assert len(told) == 1
    metrics.tick(agent, 100.0)
    metrics.tick(agent, 200.0)
    assert len(agent.reports) == 1
    metrics.record("gauge", "g", "", (), 3.0, ())
    assert len(told) == 2
    metrics.tick(agent, 100.0 + INTERVAL_S / 2)  # too soon
    assert len(agent.reports) == 1
    metrics.tick(agent, 100.0 + INTERVAL_S)
    assert len(agent.reports) == 2
    metrics.end()
    metrics.record("gauge", "g", "", (), 4.0, ())
    assert len(told) == 2
