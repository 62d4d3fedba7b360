"""How many threads numerical libraries start in a worker: as many as its task has CPUs, unless the user says it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from runtime._core.resources import UNIT
from runtime._system import settings

VARIABLE = settings.OMP_THREADS.name
_is_ours = False


def begin() -> None:
    """One thread from now on, for the libraries that the zygote imports: a fork copies no threads."""
    global _is_ours
    if VARIABLE not in os.environ:
        _is_ours = True
        os.environ[VARIABLE] = "1"


def follow_lease(resources: Mapping[str, int]) -> None:
    """As many threads as the lease has CPUs, at least one, for libraries that are imported from now on."""
    if _is_ours:
        amounts = (amount for name, amount in resources.items() if name.partition("_group_")[0] == "CPU")
        cpus = max(amounts, default=0)
        os.environ[VARIABLE] = str(max(1, cpus // UNIT))
