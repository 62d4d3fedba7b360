"""Whether a process reuses the memory of freed arrays, by its page faults."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from runtime.data._exec import heap

kept = heap.keep(int(sys.argv[1]))
batch = np.ones((16, 1 << 18), np.float32)
for _ in range(3):
    scaled = batch * 2
begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    scaled = batch * 2
    scaled = scaled + 1
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


def test_arrays_reuse_the_memory_of_freed_ones() -> None:
    command = [sys.executable, "-c", PROGRAM, str(64 << 20)]
    kept, faults = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if kept == "False":
        pytest.skip("the C library has no mallopt")
    assert int(faults) < 40 * (16 << 20) // 4096 // 10  # a tenth of the pages of these arrays
