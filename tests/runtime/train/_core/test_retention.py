"""Which checkpoints are kept."""

from __future__ import annotations

import random
from typing import Any

import pytest

from runtime.train._core.retention import best, lookup, to_delete


def runs(*values: Any) -> list[tuple[str, dict[str, Any]]]:
    """Checkpoints a, b, ... with the metric m; None: without it."""
    return [
        ("abcdefghij"[index], {} if value is None else {"m": value}) for index, value in enumerate(values)
    ]


NAN = float("nan")


class TestDeletion:
    @pytest.mark.parametrize(
        ("count", "deleted"), [(None, ""), (1, "abc"), (2, "ab"), (3, "a"), (4, ""), (9, "")]
    )
    def test_without_a_metric_the_latest_are_kept(self, count: int | None, deleted: str) -> None:
        assert to_delete(runs(1, 2, 3, 4), count, None, "max") == list(deleted)

    @pytest.mark.parametrize(
        ("values", "count", "order", "deleted"),
        [
            ((3, 1, 2), 2, "max", "b"),
            ((3, 1, 2), 1, "max", "b"),  # the latest goes on being there
            ((3, 1, 2, 4), 1, "max", "abc"),
            ((1, 3, 2), 1, "min", "b"),
            ((1, 3, 2, 4), 2, "min", "b"),
            ((2, 2, 2), 1, "max", "ab"),
            ((2, 2, 1), 1, "max", "a"),
            ((NAN, 1, 2), 2, "max", "a"),
            ((NAN, 1, 2), 2, "min", "a"),
            ((None, 1, 2), 2, "min", "a"),
            ((1, NAN, None), 1, "max", "b"),
            ((float("-inf"), None, 0), 2, "max", "b"),
            ((True, False, 0.5), 2, "max", "b"),
        ],
    )
    def test_with_one_the_best_and_the_latest(
        self, values: tuple[Any, ...], count: int, order: str, deleted: str
    ) -> None:
        assert to_delete(runs(*values), count, "m", order) == list(deleted)

    def test_of_none(self) -> None:
        assert to_delete([], 1, "m", "max") == []

    def test_protected_ones_stay(self) -> None:
        assert to_delete(runs(1, 2, 3, 4), 1, None, "max", {"b"}) == ["a", "c"]

    @pytest.mark.parametrize("value", ["good", b"1", [1], {"a": 1}])
    def test_a_metric_that_is_no_number_is_an_error(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"checkpoint_score_attribute is 'm'.*metrics of a"):
            to_delete(runs(value, 1), 1, "m", "max")

    def test_while_a_run_goes_on_the_best_are_never_lost(self) -> None:
        for seed in range(50):
            generator = random.Random(seed)
            count, order = generator.randint(1, 4), generator.choice(("max", "min"))
            kept: list[tuple[str, dict[str, Any]]] = []
            values: list[float] = []
            for step in range(20):
                values.append(generator.choice((generator.random(), 0.5)))
                kept.append((str(step), {"m": values[-1]}))
                gone = to_delete(kept, count, "m", order)
                kept = [one for one in kept if one[0] not in gone]
                assert len(kept) <= count + 1
                assert kept[-1][0] == str(step)
                wanted = sorted(values, reverse=order == "max")[: min(count, len(values))]
                assert not set(wanted) - {metrics["m"] for _, metrics in kept}, seed


class TestBest:
    def test_is_last(self) -> None:
        assert best(runs(3, 1, 2), None, "m", "max") == ["b", "c", "a"]
        assert best(runs(3, 1, 2), 2, "m", "min") == ["c", "b"]
        assert best(runs(3, 1, 2), None, None, "max") == ["a", "b", "c"]

    def test_metrics_that_become_numbers_count(self) -> None:
        numpy = pytest.importorskip("numpy")
        assert best(runs(numpy.float32(2), numpy.int64(3)), 1, "m", "max") == ["b"]


def test_metrics_in_dicts() -> None:
    metrics = {"a": {"b": {"c": 1}}, "x/y": {"z": 2}, "a/b/d": 3, "n": None}
    assert lookup(metrics, "a/b/c") == 1
    assert lookup(metrics, "x/y/z") == 2
    assert lookup(metrics, "a/b/d") == 3
    assert [lookup(metrics, name) for name in ("n", "a/x", "x", "", "/")] == [None] * 5
