"""Architectures of the clouds' machine types."""

from __future__ import annotations

import pytest

from clusterctl.artefacts.architectures import MachineTypes
from clusterctl.providers import registry

ARM64 = {
    "aws": (
        *("a1.large", "c6g.large", "c6gn.medium", "c7g.xlarge", "c7gd.metal", "g5g.xlarge", "hpc7g.4xlarge"),
        *("i4g.large", "i8ge.large", "im4gn.large", "is4gen.large", "m6g.large", "m7g.large", "m8gb.large"),
        *("r7gd.large", "r8g.large", "t4g.micro", "x2gd.medium", "p6e-gb200.36xlarge", "mac2.metal"),
        *("mac2-m2pro.metal", "mac-m4.metal"),
    ),
    "gcp": ("t2a-standard-4", "c4a-highmem-8", "n4a-standard-2", "a4x-highgpu-4g"),
}
X86_64 = {
    "aws": (
        *(
            "c5.large",
            "c7i-flex.large",
            "c6in.large",
            "g4dn.xlarge",
            "g4ad.xlarge",
            "g6.xlarge",
            "g6e.xlarge",
        ),
        *(
            "gr6.4xlarge",
            "i4i.large",
            "m5.large",
            "m7a.large",
            "mac1.metal",
            "p4de.24xlarge",
            "p5en.48xlarge",
        ),
        *("p6-b200.48xlarge", "r7iz.large", "t3.micro", "trn1n.32xlarge", "u-6tb1.metal", "x2iedn.large"),
    ),
    "gcp": (
        *("a2-highgpu-1g", "a3-megagpu-8g", "a4-highgpu-8g", "c3d-standard-4", "c4d-standard-8", "e2-medium"),
        *("g2-standard-4", "n1-standard-2", "n2d-standard-2", "n4-standard-2", "t2d-standard-1"),
    ),
}


def of(platform: str) -> MachineTypes:
    found = registry.entry(platform).machine_types
    assert found is not None
    return found


@pytest.mark.parametrize("platform", ["aws", "gcp"])
def test_families(platform: str) -> None:
    assert [name for name in ARM64[platform] if of(platform).architecture(name) != "arm64"] == []
    assert [name for name in X86_64[platform] if of(platform).architecture(name) != "x86_64"] == []


def test_the_machine_type_of_a_node_type() -> None:
    assert of("aws").named({"InstanceType": "m7g.large"}) == "m7g.large"
    assert of("gcp").named({"machineType": "zones/z/machineTypes/t2a-standard-1"}) == "t2a-standard-1"
    assert of("aws").named({}) == of("gcp").named({"InstanceType": "m7g.large"}) == ""
