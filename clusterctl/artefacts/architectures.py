"""Which CPU architecture the machines of a node type have, by the names of the clouds' machine types. Pure.

Only families that are not x86_64 are listed, so that new families of x86_64 need no change here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ARM64 = "arm64"
X86_64 = "x86_64"
_SETTINGS = {"aws": "InstanceType", "gcp": "machineType"}
"""The key of `node_config` that names the machine type."""
_ARM64 = {
    # Graviton: a "g" among the letters after the generation (m7g, c6gn, im4gn, is4gen, x2gd), and the first one, a1.
    # Grace beside GPUs (p6e-gb200), and Apple's (mac2, mac-m4).
    "aws": re.compile(r"(?:a1|[a-z]+\d+[a-z]*g[a-z]*|p\d+[a-z]*-gb\d+|mac2|mac2?-m\d\w*)\..+"),
    # Ampere (t2a), Axion (c4a, n4a), and Grace beside GPUs (a4x).
    "gcp": re.compile(r"(?:t2a|c4a|n4a|a4x)-.+"),
}
MACHINES = {X86_64: "x86_64", ARM64: "aarch64"}
"""The kernel's name of each."""


def machine_type(platform: str, node_config: Mapping[str, Any]) -> str:
    """The machine type that a node type names; "": none, or the platform has no such names.

    Args:
        platform: `type` of the provider.
        node_config: the node type's.
    """
    return str(node_config.get(_SETTINGS.get(platform, "")) or "").rpartition("/")[2]


def architecture(platform: str, machine_type: str) -> str:
    """The architecture of a machine type of "aws" or "gcp"."""
    return ARM64 if _ARM64[platform].fullmatch(machine_type) else X86_64
