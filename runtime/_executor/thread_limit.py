"""How many threads numerical libraries start in a worker: as many as its task has CPUs, unless the user says it.

Libraries read the variable when they are imported. Those that were imported before the first lease (torch, if it is
preloaded) are told by a function of theirs, on the thread that runs the next call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from runtime._core.resources import UNIT
from runtime._system import settings

VARIABLE = settings.OMP_THREADS.name
_SETTERS = {"torch": "set_num_threads"}
"""Functions of libraries that take the number of threads."""
_is_ours = False
_told = 1
_early: list[str] = []
pending = 0
"""The number of threads to `apply` before the next call; 0: there is nothing to do."""


def begin() -> None:
    """One thread from now on, for the libraries that the zygote imports: a fork copies no threads."""
    global _is_ours
    if VARIABLE not in os.environ:
        _is_ours = True
        os.environ[VARIABLE] = "1"


def preloaded(modules: Sequence[str]) -> None:
    """These were imported before the first lease; called once, if there are any."""
    if modules:
        _early.extend(name for name in _SETTERS if name in sys.modules)


def follow_lease(resources: Mapping[str, int]) -> None:
    """As many threads as the lease has CPUs, at least one, for libraries that are imported from now on."""
    global pending
    if _is_ours:
        amounts = (amount for name, amount in resources.items() if name.partition("_group_")[0] == "CPU")
        count = max(1, max(amounts, default=0) // UNIT)
        os.environ[VARIABLE] = str(count)
        pending = count if _early and count != _told else 0


def apply() -> None:
    """Tells the libraries that were imported early."""
    global pending, _told
    _told, pending = pending, 0
    for name in _early:
        getattr(sys.modules[name], _SETTERS[name])(_told)
