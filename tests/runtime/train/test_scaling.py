"""Where the workers of a run are, on a cluster of several nodes."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from runtime import train
from runtime.train._api.trainer import DataParallelTrainer
from tests.under_test import NAME, ray


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Any]:
    made = importlib.import_module(f"{NAME}.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0}
    )
    try:
        made.add_node(num_cpus=2, labels={"zone": "west"}, resources={"accelerator_type:A100": 1})
        made.add_node(num_cpus=2, labels={"zone": "east"}, resources={"licence": 2})
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def fit(folder: pathlib.Path, function: Any, **scaling: Any) -> Any:
    return DataParallelTrainer(
        function,
        scaling_config=train.ScalingConfig(**scaling),
        run_config=train.RunConfig(storage_path=str(folder)),
    ).fit()


def zone() -> str:
    labels: dict[str, str] = ray.get_runtime_context().get_node_labels()
    return labels["zone"]


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"label_selector": {"zone": "east"}}, "east"),
        ({"label_selector": [{"zone": "west"}]}, "west"),
        ({"accelerator_type": "A100"}, "west"),
        ({"resources_per_worker": {"licence": 2, "memory": 1 << 20}}, "east"),
    ],
)
def test_workers_are_where_they_are_wanted(
    cluster: Any, tmp_path: pathlib.Path, scaling: dict[str, Any], expected: str
) -> None:
    assert fit(tmp_path, zone, **scaling).return_value == expected
