"""Metrics of running data sets, as Prometheus reads them."""

from __future__ import annotations

import re
import time
import urllib.request
from typing import Any

import pytest

from runtime.data.read_api import range as numbers_below
from tests.polling import eventually
from tests.under_test import ray


def metrics_of(dataset: str) -> dict[str, dict[str, float]]:
    """The values by metric and operator."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=60) as reply:
        text = reply.read().decode()
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in re.findall(r"^(ray_data_\w+){(.*)} (\S+)$", text, re.MULTILINE):
        tags = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if tags["dataset"].startswith(dataset):
            found.setdefault(name, {})[tags["operator"]] = float(value)
    return found


@pytest.mark.usefixtures("session")
def test_metrics_are_there_while_a_data_set_runs() -> None:
    def slow(batch: Any) -> Any:
        time.sleep(0.02)
        return batch

    data = numbers_below(4000, override_num_blocks=400).map_batches(slow)
    data.set_name("watched")
    seen: dict[str, dict[str, float]] = {}
    batches = iter(data.iter_batches(batch_size=10))

    def shown() -> bool:
        nonlocal seen
        next(batches)
        seen = metrics_of("watched")
        made = seen.get("ray_data_output_rows", {}).get("ReadRange->map_batches(slow)_0", 0)
        return made > 0 and "ray_data_spilled_bytes" in seen  # which is set after the others

    assert eventually(shown)
    assert {
        "ray_data_output_bytes",
        "ray_data_current_bytes",
        "ray_data_num_tasks_running",
        "ray_data_num_tasks_finished",
        "ray_data_num_tasks_failed",
    } <= seen.keys()
    assert seen["ray_data_num_tasks_failed"] == {"ReadRange->map_batches(slow)_0": 0.0}
    batches.close()  # type: ignore[attr-defined]
    assert eventually(lambda: not metrics_of("watched"))
