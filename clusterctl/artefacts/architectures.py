"""CPU architectures, and how the names of a cloud's machine types tell them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ARM64 = "arm64"
X86_64 = "x86_64"
MACHINES = {X86_64: "x86_64", ARM64: "aarch64"}
"""The kernel's name of each."""


@dataclass(frozen=True, slots=True)
class MachineTypes:
    """How a cloud names its machine types.

    Attributes:
        key: of `node_config`; it names the machine type.
        arm64: the names of those with such a CPU. Only families that are not x86_64 are listed, so that new families of
            x86_64 need no change.
    """

    key: str
    arm64: re.Pattern[str]

    def named(self, node_config: Mapping[str, Any]) -> str:
        """The machine type that a node type names; "": none."""
        return str(node_config.get(self.key) or "").rpartition("/")[2]

    def architecture(self, machine_type: str) -> str:
        """The architecture of a machine type."""
        return ARM64 if self.arm64.fullmatch(machine_type) else X86_64
