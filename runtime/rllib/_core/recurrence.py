"""The linear recurrence under advantages, returns and V-trace, for all segments at once."""

from __future__ import annotations

from typing import Any


def reverse_recurrence(values: Any, coefficients: Any, longest: int) -> Any:
    """x of `x[i] = values[i] + coefficients[i] * x[i + 1]`, in about log2(longest) vector operations.

    Each pass doubles the stretch that a row has summed, so no loop over time steps is needed. A coefficient of 0 ends a
    segment: segments of any lengths may follow one another.

    Args:
        values: float array or tensor [rows].
        coefficients: of the same kind and shape; 0 at the last row of each segment.
        longest: rows of the longest segment.
    """
    total = values * 1  # a copy, of an array and of a tensor
    # A row's factor is the product of the coefficients of its stretch. Near the end, stretches are cut off at the last
    # row, whose coefficient is 0: those rows are complete and need no factor any more.
    factor = coefficients
    reach = 1
    while reach < longest:
        total[:-reach] += factor[: len(total) - reach] * total[reach:]
        factor = factor[:-reach] * factor[reach:]
        reach *= 2
    return total
