"""What a session leaves in its program when it has ended: nothing that grows with each one."""

from __future__ import annotations

import gc

import runtime as ray
from runtime._process.core_worker import Core


@ray.remote
def nothing() -> None:
    """No work."""


def sessions_in_memory() -> int:
    gc.collect()
    return sum(type(thing) is Core for thing in gc.get_objects())


def test_sessions_that_have_ended_are_forgotten() -> None:
    counts = []
    for _ in range(4):
        ray.init(num_cpus=1, log_to_driver=False)
        kept = [nothing.remote() for _ in range(20)]
        ray.get(kept)
        ray.shutdown()
        del kept  # after the end: nobody takes note any more
        counts.append(sessions_in_memory())
    assert counts[-1] <= counts[1]
