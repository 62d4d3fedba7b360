"""What a run's configuration refuses, and what it comes to."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.train import ScalingConfig


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"placement_strategy": "NEAR"}, "PACK, SPREAD"),
        ({"num_workers": 3, "label_selector": [{"zone": "a"}] * 2}, "num_workers=3"),
        ({"num_workers": (1, 2), "label_selector": [{"zone": "a"}] * 2}, "num_workers"),
        ({"num_workers": (2, 1)}, "least <= most"),
        ({"num_workers": -1}, "negative"),
        ({"resources_per_worker": {"GPU": 1}}, "use_gpu"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, "use_gpu"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScalingConfig(**wrong)


def test_the_bundle_of_a_worker() -> None:
    assert ScalingConfig().bundle == {"CPU": 1.0}
    assert ScalingConfig(use_gpu=True).bundle == {"CPU": 1.0, "GPU": 1.0}
    own = {"CPU": 0, "memory": 1 << 20, "licence": 1}
    assert ScalingConfig(resources_per_worker=own).bundle == {"memory": float(1 << 20), "licence": 1.0}
    assert ScalingConfig(accelerator_type="A100").bundle == {"CPU": 1.0, "accelerator_type:A100": 0.001}
    assert ScalingConfig(num_workers=(1, 3), trainer_resources={"CPU": 1}).total_resources == {"CPU": 4.0}
