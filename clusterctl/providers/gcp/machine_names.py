"""The names of machine types. Pure."""

from __future__ import annotations

import re

from clusterctl.artefacts.architectures import MachineTypes

# Ampere (t2a), Axion (c4a, n4a), and Grace beside GPUs (a4x).
MACHINE_TYPES = MachineTypes("machineType", arm64=re.compile(r"(?:t2a|c4a|n4a|a4x)-.+"))
