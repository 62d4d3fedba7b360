"""What the driver of experiments says of the cluster."""

from __future__ import annotations

from runtime.tune import PlacementGroupFactory
from runtime.tune._run.driver import too_large


def test_a_trial_that_no_cluster_of_this_size_holds() -> None:
    factory = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1, "GPU": 0.5}, {"CPU": 1}])
    text = too_large(factory, {"CPU": 2, "memory": 1e9})
    assert "needs 3 CPU, 0.5 GPU and all nodes together have 2, 0" in text
    assert "num_env_runners" in text
    assert "GPU" not in too_large(factory, {"CPU": 2, "GPU": 1}).split(":")[0]
    assert not too_large(factory, {"CPU": 3, "GPU": 1})
