"""Which files, or parts of files, are read by the same task. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.data.io.paths import File

OPEN_COST_BYTES = 64 * 1024
"""What opening a file costs, in bytes that could be read meanwhile."""

BYTES_PER_TASK = 32 * 1024 * 1024
"""How much one task reads where nobody says how many tasks there should be."""


def split(
    files: Sequence[File], tasks: int, least_bytes: int, may_split: Callable[[File], bool]
) -> list[File]:
    """Files, of which large ones are cut into parts, so that tasks can share them evenly.

    Args:
        files: In the order in which they are read.
        tasks: How many tasks are wanted; -1 for a number that follows from the bytes.
        least_bytes: Parts are no smaller.
        may_split: Whether a file may be cut; only large ones are asked for.
    """
    total = sum(file.size_bytes for file in files)
    wanted = max(least_bytes, BYTES_PER_TASK if tasks < 1 else total // tasks, 1)
    found: list[File] = []
    for file in files:
        parts = file.size_bytes // wanted
        if parts < 2 or not may_split(file):
            found.append(file)
            continue
        for part in range(parts):
            start, end = file.size_bytes * part // parts, file.size_bytes * (part + 1) // parts
            found.append(File(file.path, end - start, start, is_whole=False))
    return found


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
