"""Which files, or parts of files, are read by the same task. Pure."""

from __future__ import annotations

from collections.abc import Sequence

OPEN_COST_BYTES = 64 * 1024
"""What opening a file costs, in bytes that could be read meanwhile."""

BYTES_PER_TASK = 32 * 1024 * 1024
"""How much one task reads where nobody says how many tasks there should be."""


def group(sizes: Sequence[int], tasks: int) -> list[range]:
    """Splits units into at most `tasks` consecutive groups of about the same cost; none is empty.

    Args:
        sizes: Bytes of each unit, in the order in which units are read.
        tasks: How many groups are wanted; -1 for a number that follows from the bytes.
    """
    costs = [size + OPEN_COST_BYTES for size in sizes]
    total = sum(costs)
    if tasks < 1:
        tasks = -(-total // BYTES_PER_TASK)
    tasks = min(tasks, len(costs))
    groups: list[range] = []
    start, cost_so_far = 0, 0
    for index, cost in enumerate(costs):
        # The unit goes to the group in which its middle lies, unless later groups would then stay empty.
        belongs = (2 * cost_so_far + cost) * tasks // (2 * total)
        must_cut = len(costs) - index == tasks - len(groups) - 1
        if index > start and (belongs > len(groups) or must_cut) and len(groups) < tasks - 1:
            groups.append(range(start, index))
            start = index
        cost_so_far += cost
    if costs:
        groups.append(range(start, len(costs)))
    return groups
