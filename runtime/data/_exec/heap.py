"""The heap of a worker between batches.

The GNU C library returns the memory of large arrays to the system when they are freed. Each new array then costs a page
fault for every 4 KiB, which takes as long as numpy's work on the array. `scripts/bench/data.py` measures the effect
(tensors); `DataContext.kept_heap_bytes = 0` switches it off.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
LARGEST_BYTES = 32 << 20
"""Larger arrays bypass the heap: mallopt allows no more."""


def keep(size_bytes: int) -> bool:
    """Makes this process keep so many freed bytes for its next arrays.

    Returns:
        Whether it does: not with other C libraries than GNU's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_BYTES) and mallopt(M_TRIM_THRESHOLD, size_bytes))
