"""Which files are read by the same task."""

from __future__ import annotations

import random

from runtime.data.io.grouping import BYTES_PER_TASK, OPEN_COST_BYTES, group


def test_many_small_files_become_the_wanted_number_of_tasks():
    groups = group([1_000] * 2_000, 4)
    assert [len(indices) for indices in groups] == [500] * 4


def test_without_a_wanted_number_bytes_decide():
    assert len(group([1_000] * 2_000, -1)) == -(-2_000 * (1_000 + OPEN_COST_BYTES) // BYTES_PER_TASK)
    assert len(group([BYTES_PER_TASK] * 10, -1)) == 10


def test_a_large_file_gets_a_task_of_its_own():
    assert group([10, 10, 10**9, 10, 10], 3) == [range(2), range(2, 3), range(3, 5)]


def test_groups_are_consecutive_none_is_empty_and_no_task_is_wasted():
    rng = random.Random(5)
    for _ in range(300):
        sizes = [rng.choice([0, 1, 10**4, 10**8]) for _ in range(rng.randrange(40))]
        tasks = rng.choice([-1, 1, 2, 7, 100])
        groups = group(sizes, tasks)
        assert [index for indices in groups for index in indices] == list(range(len(sizes)))
        assert all(groups)
        if tasks > 0:
            assert len(groups) == min(tasks, len(sizes))
