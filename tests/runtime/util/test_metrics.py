"""`util.metrics`: validated as in Ray, and served by the node."""

from __future__ import annotations

import importlib
import pickle
import urllib.error
import urllib.request
import warnings
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, ray

metrics: Any = importlib.import_module(f"{NAME}.util.metrics")


def test_counters() -> None:
    counter = metrics.Counter("counter", description="what", tag_keys=("a", "b"))
    assert counter.info == {
        "name": "counter",
        "description": "what",
        "tag_keys": ("a", "b"),
        "default_tags": {},
    }
    assert counter.set_default_tags({"a": "1"}) is counter
    assert counter.info["default_tags"] == {"a": "1"}
    counter.inc(1, tags={"b": "2"})
    with pytest.raises(ValueError, match=r"Missing value for tag key\(s\): b"):
        counter.inc()
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="must be >0"):
            counter.inc(wrong, tags={"b": "2"})
    with pytest.raises(TypeError, match="int or float"):
        counter.inc("1", tags={"b": "2"})
    with pytest.raises(TypeError, match="Tag values must be str"):
        counter.inc(1, tags={"b": 2})
    with pytest.raises(ValueError, match="Unrecognized tag key c"):
        counter.set_default_tags({"c": "1"})
    with pytest.raises(TypeError, match="Tag values"):
        counter.set_default_tags({"a": 1})


def test_names_and_keys() -> None:
    with pytest.raises(ValueError, match="Empty name"):
        metrics.Counter("")
    with pytest.raises(TypeError, match="tag_keys should be a tuple"):
        metrics.Counter("name", tag_keys="a")
    with pytest.raises(TypeError, match="Tag keys must be str"):
        metrics.Counter("name", tag_keys=(1,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics.Gauge("no-such-name").set(1)
    assert "Invalid metric name" in str(caught[0].message)


def test_gauges_and_histograms() -> None:
    gauge = metrics.Gauge("gauge")
    gauge.set(1)
    gauge.set(-2.5)
    with pytest.raises(TypeError, match="int or float"):
        gauge.set("1")
    with pytest.raises(ValueError, match="boundaries argument should be provided"):
        metrics.Histogram("histogram")
    with pytest.raises(ValueError, match="Invalid `boundaries`"):
        metrics.Histogram("histogram", boundaries=[-1.0])
    histogram = metrics.Histogram("histogram", boundaries=[1.0, 2.0], tag_keys=("a",))
    histogram.observe(1.5, tags={"a": "x"})
    assert histogram.info["boundaries"] == [1.0, 2.0]
    assert pickle.loads(pickle.dumps(histogram)).info == histogram.info


@pytest.mark.skipif(not OWN, reason="Ray exports minutes later and needs its dashboard")
@pytest.mark.usefixtures("session")
def test_values_are_served_by_the_node() -> None:
    @ray.remote(num_cpus=0)
    class Worker:
        def __init__(self) -> None:
            self.calls = metrics.Counter("calls", "calls of the worker", tag_keys=("who",))
            self.size = metrics.Gauge("size")
            self.times = metrics.Histogram("times", boundaries=[1, 10])

        def work(self, value: float) -> None:
            self.calls.inc(tags={"who": 'the "one"'})
            self.size.set(value)
            self.times.observe(value)

    worker = Worker.remote()
    ray.get([worker.work.remote(value) for value in (0.5, 5, 50)])
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"

    def lines(name: str) -> list[str]:
        with urllib.request.urlopen(url, timeout=60) as reply:
            text = reply.read().decode()
        return [line for line in text.splitlines() if line.startswith(name)]

    who = 'who="the \\"one\\""'
    assert eventually(lambda: any(who in one and one.endswith(" 3.0") for one in lines("ray_calls_total")))
    assert eventually(lambda: [one.rpartition(" ")[2] for one in lines("ray_size{")] == ["50.0"])
    buckets = ["1.0", "2.0", "3.0"]
    assert eventually(lambda: [one.rpartition(" ")[2] for one in lines("ray_times_bucket")] == buckets)
    assert eventually(lambda: [one.rpartition(" ")[2] for one in lines("ray_times_sum")] == ["55.5"])
    assert any('Name="CPU"' in line for line in lines("ray_resources"))
    ray.kill(worker)
    assert eventually(lambda: lines("ray_size{") == [])
    assert lines("ray_calls_total")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url + "/other", timeout=60)
