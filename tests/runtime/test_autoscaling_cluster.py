"""`cluster_utils.AutoscalingCluster`: workers come when work waits."""

from __future__ import annotations

import runtime as ray
from runtime.cluster_utils import AutoscalingCluster


def test_a_worker_comes_for_work() -> None:
    cluster = AutoscalingCluster(
        head_resources={"CPU": 0},
        worker_node_types={
            "cpu_node": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 1}
        },
        idle_timeout_minutes=1,
    )
    try:
        cluster.start()
        ray.init("auto")

        @ray.remote(num_cpus=2)
        def work() -> str:
            return "done"

        assert ray.cluster_resources().get("CPU", 0) == 0
        assert ray.get(work.remote(), timeout=60) == "done"
        assert ray.cluster_resources()["CPU"] == 2
    finally:
        ray.shutdown()
        cluster.shutdown()
