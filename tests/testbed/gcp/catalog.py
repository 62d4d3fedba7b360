"""What the pretended platform has to sell. The names and sizes are the real ones."""

from __future__ import annotations

from dataclasses import dataclass

PROJECT = "a-project"
REGIONS = {
    "us-west1": ("us-west1-a", "us-west1-b", "us-west1-c"),
    "europe-west4": ("europe-west4-a", "europe-west4-b"),
}
ZONES = tuple(zone for zones in REGIONS.values() for zone in zones)


@dataclass(frozen=True)
class Kind:
    """A machine type. `gpus`: built in. `zones`: none: all."""

    cpus: int
    memory_mb: int
    gpus: tuple[str, int] = ("", 0)
    zones: tuple[str, ...] = ()


MACHINE_TYPES = {
    "e2-small": Kind(2, 2048),
    "e2-standard-2": Kind(2, 8192),
    "e2-standard-4": Kind(4, 16384),
    "n1-standard-2": Kind(2, 7680),
    "n1-standard-4": Kind(4, 15360),
    "g2-standard-4": Kind(4, 16384, ("nvidia-l4", 1), ("us-west1-a", "us-west1-b")),
    "c2-standard-4": Kind(4, 16384, zones=("us-west1-b",)),
}
ACCELERATORS = {"nvidia-tesla-t4": ("us-west1-a", "us-west1-b"), "nvidia-l4": ("us-west1-a", "us-west1-b")}
IMAGES = {
    ("debian-cloud", "debian-12"): "debian-12-bookworm-v20250415",
    ("debian-cloud", "debian-13"): "debian-13-trixie-v20250811",
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"): "ubuntu-2404-noble-amd64-v20250409",
    ("deeplearning-platform-release", "common-cpu"): "common-cpu-v20250325",
}
QUOTAS = {
    "CPUS": 72.0,
    "C2_CPUS": 0.0,
    "NVIDIA_T4_GPUS": 1.0,
    "PREEMPTIBLE_NVIDIA_T4_GPUS": 1.0,
    "INSTANCES": 500.0,
}
"""Of each region. What is not named is not limited."""
