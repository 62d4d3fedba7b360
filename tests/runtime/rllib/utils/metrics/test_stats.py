"""Reductions: what they give, how they merge, what they keep."""

import math
import pickle

import pytest

from runtime.rllib.utils.metrics.metrics_logger import DEFAULT_STATS_CLS_LOOKUP
from runtime.rllib.utils.metrics.stats import (
    EmaStats,
    ItemSeriesStats,
    ItemStats,
    LifetimeSumStats,
    MaxStats,
    MeanStats,
    MinStats,
    PercentilesStats,
    SeriesStats,
    SumStats,
    compute_percentiles,
)
from runtime.rllib.utils.metrics.stats.series import FOLD_AFTER

NAN = float("nan")


def filled(stats, *values):
    for value in values:
        stats.push(value)
    return stats


def merged(cls, *parts, **settings):
    root = cls(is_root=True, is_leaf=False, **settings)
    root.merge([part.reduce(compile=False) for part in parts])
    return root


@pytest.mark.parametrize(
    ("cls", "expected"), [(MeanStats, 2.5), (MinStats, 1.0), (MaxStats, 4.0), (SumStats, 10.0)]
)
def test_series_reduce_to_one_value_and_start_anew(cls, expected):
    stats = filled(cls(), 1.0, NAN, 2.0, 3.0, 4.0)
    assert stats.peek() == expected
    assert stats.peek(compile=False) == [expected]
    assert stats.reduce() == expected
    assert len(stats) == 0


@pytest.mark.parametrize(
    ("cls", "expected"), [(MeanStats, 3.5), (MinStats, 3.0), (MaxStats, 4.0), (SumStats, 7.0)]
)
def test_a_window_has_the_last_values(cls, expected):
    assert filled(cls(window=2), 9.0, 0.0, 3.0, 4.0).reduce() == expected


@pytest.mark.parametrize("cls", [MeanStats, MinStats, MaxStats, EmaStats])
def test_no_value_is_nan(cls):
    assert math.isnan(cls().reduce())
    assert math.isnan(filled(cls(), NAN).reduce())


def test_the_sum_of_nothing_is_zero():
    assert SumStats().reduce() == 0


def test_processes_count_once_each_in_a_merged_mean():
    root = merged(MeanStats, filled(MeanStats(), 1.0, 2.0, 3.0, 4.0, 5.0), filled(MeanStats(), 15.0))
    assert root.peek() == 9.0


def test_merged_sums_minima_and_maxima():
    assert merged(SumStats, filled(SumStats(), 1, 2), filled(SumStats(), 3)).reduce() == 6
    assert merged(MinStats, filled(MinStats(), 5.0, 2.0), filled(MinStats(), 3.0)).reduce() == 2.0
    assert (
        merged(MaxStats, filled(MaxStats(window=1), 5.0, 2.0), filled(MaxStats(window=1), 3.0)).reduce()
        == 3.0
    )


def test_only_the_last_merge_can_be_seen():
    root = MeanStats(is_root=True, is_leaf=False)
    assert math.isnan(root.peek(latest_merged_only=True))
    root.merge([filled(MeanStats(), 1.0)])
    root.merge([filled(MeanStats(), 3.0), filled(MeanStats(), 5.0)])
    assert root.peek() == 3.0
    assert root.peek(latest_merged_only=True) == 4.0
    with pytest.raises(ValueError, match="latest_merged_only"):
        MeanStats().peek(latest_merged_only=True)


@pytest.mark.parametrize("cls", [MeanStats, MinStats, MaxStats, SumStats])
def test_memory_is_bounded_without_a_window(cls):
    values = [float(i % 7) for i in range(3 * FOLD_AFTER)] + [NAN, 9.0]
    stats = filled(cls(), *values)
    assert len(stats) < FOLD_AFTER
    expected = {MeanStats: sum([*values[:-2], 9.0]) / (len(values) - 1), MinStats: 0.0, MaxStats: 9.0}
    expected[SumStats] = sum(values[:-2]) + 9.0
    assert stats.peek() == pytest.approx(expected[cls])
    assert cls.from_state(stats.get_state()).peek() == pytest.approx(expected[cls])
    assert stats.reduce() == pytest.approx(expected[cls])


def test_ema_weighs_new_values_and_goes_on_after_reduce():
    stats = filled(EmaStats(ema_coeff=0.1), 1.0, NAN, 2.0)
    assert stats.reduce() == pytest.approx(1.1)
    assert filled(stats, 2.0).reduce() == pytest.approx(1.19)


def test_merged_ema_is_the_mean_of_averages_since_the_last_reduce():
    leaf = filled(EmaStats(ema_coeff=0.5), 1.0)
    root = merged(EmaStats, leaf, filled(EmaStats(ema_coeff=0.5), 3.0), ema_coeff=0.5)
    assert root.reduce() == 2.0
    root.merge([filled(leaf, 5.0).reduce(compile=False)])
    assert root.reduce() == 3.0
    assert math.isnan(root.reduce())


def test_only_the_root_keeps_a_lifetime_sum():
    leaf = filled(LifetimeSumStats(), 1, NAN, 2)
    root = LifetimeSumStats(is_root=True, is_leaf=False)
    for _ in range(2):
        root.merge([leaf.reduce(compile=False)])
        filled(leaf, 10)
    assert root.reduce() == 13
    assert root.reduce() == 13
    assert root.peek(latest_merged_only=True) == 10
    root.merge([leaf.reduce(compile=False)])
    assert root.reduce() == 23


def test_throughput_is_growth_over_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("runtime.rllib.utils.metrics.stats.counts.time.perf_counter", lambda: now[0])
    total = LifetimeSumStats(with_throughput=True, is_root=True)
    cycle = SumStats(with_throughput=True, is_root=True)
    filled(total, 50), filled(cycle, 50)
    now[0] += 10
    assert cycle.throughputs == 5.0
    assert total.throughputs == {"throughput_since_last_reduce": 5.0, "throughput_since_last_restore": 5.0}
    total.reduce(), cycle.reduce()
    filled(total, 10), filled(cycle, 10)
    now[0] += 10
    assert cycle.throughputs == 1.0
    assert total.throughputs == {"throughput_since_last_reduce": 1.0, "throughput_since_last_restore": 3.0}
    restored = LifetimeSumStats.from_state(total.get_state())
    filled(restored, 20)
    now[0] += 10
    assert restored.throughputs == {"throughput_since_last_reduce": 2.0, "throughput_since_last_restore": 2.0}
    with pytest.raises(ValueError, match="with_throughput=True"):
        _ = SumStats().throughputs


def test_percentiles_are_those_of_all_processes_values():
    parts = [
        filled(PercentilesStats(percentiles=[0, 50, 100], window=3), *values)
        for values in ([9, 1, 2, 3], [5, 6])
    ]
    root = merged(PercentilesStats, *parts, percentiles=[0, 50, 100], window=3)
    assert root.peek(compile=False) == [1, 2, 3, 5, 6]
    assert root.reduce() == {0: 1, 50: 3, 100: 6}
    assert root.reduce() == {0: None, 50: None, 100: None}


def test_percentiles_are_interpolated():
    assert compute_percentiles([0.0, 10.0], [25, 100]) == {25: 2.5, 100: 10.0}


def test_percentiles_refuse_nan_and_other_settings():
    with pytest.raises(ValueError, match="NaN"):
        PercentilesStats().push(NAN)
    with pytest.raises(ValueError, match="0 to 100"):
        PercentilesStats(percentiles=[101])
    with pytest.raises(ValueError, match="same settings"):
        merged(PercentilesStats, PercentilesStats(percentiles=[1]), percentiles=[2])


def test_an_item_is_the_last_and_cannot_come_from_two_processes():
    leaf = filled(ItemStats(), "a", "b")
    assert merged(ItemStats, leaf).peek() == "b"
    assert leaf.peek() is None
    with pytest.raises(ValueError, match="2 processes"):
        merged(ItemStats, filled(ItemStats(), 1), filled(ItemStats(), 2))


def test_series_of_items_are_joined():
    root = merged(ItemSeriesStats, filled(ItemSeriesStats(window=2), 1, 2, 3), filled(ItemSeriesStats(), "x"))
    assert root.reduce() == [2, 3, "x"]
    assert math.isnan(root.peek())


@pytest.mark.parametrize("cls", DEFAULT_STATS_CLS_LOOKUP.values())
@pytest.mark.parametrize("is_leaf", [True, False])
def test_state_and_pickle_keep_everything(cls, is_leaf):
    stats = filled(cls(), 1.0, 4.0)
    if not is_leaf:
        stats = merged(cls, stats)
    for copy in (cls.from_state(stats.get_state()), pickle.loads(pickle.dumps(stats))):
        assert copy.is_leaf is is_leaf
        assert copy.peek() == stats.peek()
        assert copy.peek(compile=False) == stats.peek(compile=False)
    other = MeanStats if cls is not MeanStats else MaxStats
    with pytest.raises(ValueError, match="stats"):
        other().set_state(stats.get_state())


def test_stats_compare_and_compute_like_their_value():
    stats = filled(MeanStats(), 2.0)
    assert stats == 2
    assert stats < 3
    assert stats <= 2
    assert stats > 1
    assert stats >= 2
    assert stats != 3
    assert (stats + 1, stats - 1, stats * 3, float(stats), int(stats), f"{stats:.1f}") == (
        3,
        1,
        6,
        2.0,
        2,
        "2.0",
    )
    with pytest.raises(ValueError, match="single value"):
        float(filled(PercentilesStats(), 1.0))


def test_a_reduction_of_ones_own():
    class Product(SeriesStats):
        stats_cls_identifier = "product"

        def _np_reduce_fn(self, values):
            return math.prod(values)

    assert merged(Product, filled(Product(), 2.0, 3.0), filled(Product(), 4.0)).reduce() == 24.0


@pytest.mark.parametrize("shape", [(), (1,)])
def test_tensors_become_numbers_without_graphs(shape):
    torch = pytest.importorskip("torch")
    value = torch.full(shape, 3.0, requires_grad=True)
    for cls in (MeanStats, EmaStats, SumStats, MaxStats, LifetimeSumStats):
        result = filled(cls(), value * 1).reduce()
        assert type(result) is float
        assert result == 3.0


def test_tensors_that_are_items_become_arrays_of_their_shape():
    torch = pytest.importorskip("torch")
    assert filled(ItemStats(), torch.tensor(3.0, requires_grad=True)).reduce() == 3.0
    for shape in ((1,), (2,)):
        assert filled(ItemStats(), torch.ones(shape)).reduce().shape == shape
        assert [each.shape for each in filled(ItemSeriesStats(), torch.ones(shape)).reduce()] == [shape]
