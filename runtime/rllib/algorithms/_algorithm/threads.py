"""How many threads torch uses in the algorithm's own process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from runtime._system import settings


@contextlib.contextmanager
def threads_of(config: Any) -> Iterator[None]:
    """As many as the algorithm has CPUs (`num_cpus_for_main_process`), unless OMP_NUM_THREADS says it.

    Torch would take a thread for each core. That hardly helps the small networks that are trained on a CPU, and on a
    machine whose cores are busy, e.g. with environment runners, each operation waits until all threads have had a core.
    """
    if settings.OMP_THREADS.get():
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, int(config.num_cpus_for_main_process)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
