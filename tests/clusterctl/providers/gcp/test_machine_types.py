"""What machines bring and cost, and what `check` says of them."""

from __future__ import annotations

from autoscaler.provider import NodeType
from clusterctl.providers.gcp import checks, machine_types
from clusterctl.providers.gcp.machine_types import Hardware

LISTED = [
    {"name": "g2-standard-4", "zone": "https://x/zones/us-west1-b", "guestCpus": 4, "memoryMb": 16384,
     "accelerators": [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]},
    {"name": "g2-standard-4", "zone": "https://x/zones/us-west1-a", "guestCpus": 4, "memoryMb": 16384},
]  # fmt: skip
CPU_ONLY = {zone: Hardware("e2-standard-2", 2, 8192, {}) for zone in ("us-west1-a", "us-west1-b")}


def test_built_in_and_added_accelerators_count() -> None:
    config = {"guestAccelerators": [{"acceleratorType": "nvidia-l4", "acceleratorCount": 2}]}
    there = machine_types.hardware(LISTED, config)
    assert there["us-west1-b"].resources()["GPU"] == 3
    assert there["us-west1-b"].resources()["accelerator_type:L4"] == 1
    assert there["us-west1-a"].accelerators == {"nvidia-l4": 2}


def test_zones_and_types_that_are_not_there() -> None:
    (problem,) = checks.zones(
        NodeType("w", zones=("europe-west4-a",)), CPU_ONLY, ["europe-west4-a"], "us-west1"
    )
    assert "is not in us-west1" in problem.what
    config = {"machineType": "e2-standard-2"}
    (problem,) = checks.zones(NodeType("w", node_config=config), CPU_ONLY, ["us-west1-c"], "us-west1")
    assert "there is no machine type e2-standard-2 in us-west1-c" in problem.what
    assert "us-west1-a, us-west1-b has it" in problem.advice


def test_quotas() -> None:
    region = {
        "quotas": [{"metric": "CPUS", "limit": 8.0, "usage": 2.0}, {"metric": "NVIDIA_T4_GPUS", "limit": 0.0}]
    }
    hardware = Hardware("n1-standard-4", 4, 15360, {"nvidia-tesla-t4": 1})
    anywhere = {"CPUS_ALL_REGIONS": 8.0, "GPUS_ALL_REGIONS": 2.0}
    needed = {"CPUS": 8.0, "INSTANCES": 2.0, "NVIDIA_T4_GPUS": 2.0}
    assert checks.needs(hardware, 2, False) == needed | anywhere
    assert "PREEMPTIBLE_NVIDIA_T4_GPUS" in checks.needs(hardware, 1, True)
    found = checks.quotas(region, {"CPUS": 4.0, "NVIDIA_T4_GPUS": 1.0}, {"CPUS": 12.0}, "us-west1")
    assert [(problem.what, problem.fatal) for problem in found] == [
        ("all workers together need 12 CPUS in us-west1, 6 are left", False),
        ("1 NVIDIA_T4_GPUS are needed in us-west1, 0 are left", True),
    ]
