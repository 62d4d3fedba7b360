"""Figures of operators."""

from __future__ import annotations

from runtime.data._exec.figures import Figures, Spread


def test_a_spread_knows_the_least_the_largest_and_the_mean() -> None:
    spread = Spread()
    assert spread.mean == 0.0
    for value in (3.0, 1.0, 5.0):
        spread.add(value)
    assert (spread.least, spread.most, spread.mean, spread.count) == (1.0, 5.0, 3.0, 3)


def test_blocks_are_counted_with_what_their_tasks_say() -> None:
    figures = Figures()
    figures.add(10, 80, {"task_s": 0.5, "cpu_s": 0.25, "paused_s": 1.0})
    figures.add(20, 160, {})
    assert (figures.rows.total, figures.size_bytes.most) == (30, 160)
    assert (figures.wall_s.total, figures.cpu_s.total, figures.paused_s) == (0.5, 0.25, 1.0)
