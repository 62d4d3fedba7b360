"""The logger: keys, settings, cycles, merging, state."""

import math
import pickle

import pytest

from runtime.rllib.utils.metrics import EPISODE_RETURN_MEAN
from runtime.rllib.utils.metrics.metrics_logger import DEFAULT_STATS_CLS_LOOKUP, MetricsLogger
from runtime.rllib.utils.metrics.stats import MeanStats


@pytest.fixture
def logger():
    return MetricsLogger()


def runner(*returns):
    """What a runner sends after these episodes."""
    logger = MetricsLogger()
    for value in returns:
        logger.log_value(EPISODE_RETURN_MEAN, value, window=100)
        logger.log_value(("num_module_steps_sampled", "p0"), 10, reduce="sum")
        logger.log_value("num_env_steps_sampled_lifetime", 10, reduce="lifetime_sum", with_throughput=True)
    return pickle.loads(pickle.dumps(logger.reduce()))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1.01),
        ({"ema_coeff": 0.5}, 1.5),
        ({"window": 1}, 2.0),
        ({"reduce": "mean"}, 1.5),
        ({"reduce": "sum"}, 3.0),
    ],
)
def test_the_first_value_fixes_the_reduction(logger, settings, expected):
    logger.log_value("a", 1.0, **settings)
    logger.log_value("a", 2.0)
    assert logger.peek("a") == pytest.approx(expected)


@pytest.mark.parametrize("key", [("a", "b"), ["a", "b"], (("a",), "b")])
def test_keys_may_be_nested(logger, key):
    logger.log_value(key, 1.0, window=2)
    logger.log_value(key, 3.0)
    assert logger.peek() == {"a": {"b": 2.0}}
    assert logger.peek("a") == {"b": 2.0}
    assert logger.peek(key) == 2.0
    assert ("a", "b") in logger
    assert "b" not in logger


def test_peek_of_unknown_keys(logger):
    with pytest.raises(KeyError, match="zzz"):
        logger.peek("zzz")
    assert logger.peek("zzz", default=5) == 5


def test_dicts_are_logged_by_leaf(logger):
    for value in (1.0, 3.0):
        logger.log_dict({"a": value, "b": {"c": -value}}, key=("x", "y"))
    assert logger.peek() == {"x": {"y": {"a": 2.0, "b": {"c": -2.0}}}}
    with pytest.raises(TypeError, match="dict"):
        logger.log_dict([1.0])


def test_times_are_logged_in_seconds(logger, monkeypatch):
    ticks = iter([5.0, 7.5, 10.0, 10.5])
    monkeypatch.setattr("runtime.rllib.utils.metrics.stats.base.time.perf_counter", lambda: next(ticks))
    for _ in range(2):
        with logger.log_time("work", reduce="sum"):
            pass
    assert logger.peek("work") == 3.0


def test_metrics_of_runners_merge():
    root = MetricsLogger(root=True)
    root.aggregate([runner(10.0, 20.0), runner(45.0), runner()], key="env_runners")
    result = root.peek("env_runners")
    assert result[EPISODE_RETURN_MEAN] == 30.0
    assert result["num_module_steps_sampled"] == {"p0": 30}
    assert result["num_env_steps_sampled_lifetime"] == 30
    root.aggregate([runner(60.0)], key="env_runners")
    assert root.peek(("env_runners", EPISODE_RETURN_MEAN)) == 40.0
    assert root.peek(("env_runners", EPISODE_RETURN_MEAN), latest_merged_only=True) == 60.0


def test_compile_ends_the_cycle_of_everything_but_lifetime_sums():
    root = MetricsLogger(root=True)
    root.aggregate([runner(10.0, 20.0)], key=("a", "env_runners"))
    result = root.compile()["a"]["env_runners"]
    assert result[EPISODE_RETURN_MEAN] == 15.0
    rates = result["num_env_steps_sampled_lifetime_throughput"]
    assert set(rates) == {"throughput_since_last_reduce", "throughput_since_last_restore"}
    assert all(rate > 0 for rate in rates.values())
    assert (
        root.peek(("a", "env_runners", "num_env_steps_sampled_lifetime"), throughput=True).keys()
        == rates.keys()
    )
    after = root.compile()["a"]["env_runners"]
    assert math.isnan(after[EPISODE_RETURN_MEAN])
    assert after["num_module_steps_sampled"] == {"p0": 0}
    assert after["num_env_steps_sampled_lifetime"] == 20


def test_a_list_with_one_item_compiles_to_the_item(logger):
    logger.log_value("one", 1, reduce="item_series")
    logger.log_value("two", 1, reduce="item_series")
    logger.log_value("two", 2)
    assert logger.compile() == {"one": 1, "two": [1, 2]}


def test_metrics_pass_loggers_between_leaf_and_root():
    between = MetricsLogger()
    root = MetricsLogger(root=True)
    between.aggregate([runner(1.0), runner(3.0)])
    root.aggregate([between.reduce()])
    between.aggregate([runner(4.0)])
    root.aggregate([between.reduce()])
    assert root.peek(EPISODE_RETURN_MEAN) == 3.0
    assert root.peek("num_env_steps_sampled_lifetime") == 30


def test_values_of_results_can_be_read_without_a_logger():
    results = runner(1.0, 2.0)
    assert MetricsLogger.peek_results(results)["num_module_steps_sampled"] == {"p0": 20}
    assert MetricsLogger.peek_results([results["num_module_steps_sampled"], 7])[1] == 7


def test_what_is_logged_and_what_is_merged_have_different_keys():
    root = MetricsLogger(root=True)
    root.log_value(EPISODE_RETURN_MEAN, 1.0)
    with pytest.raises(ValueError, match="another key"):
        root.aggregate([runner(1.0)])
    with pytest.raises(TypeError, match="without compile=True"):
        root.aggregate([MetricsLogger.peek_results(runner(1.0))], key="b")
    with pytest.raises(ValueError, match="below"):
        root.log_value((EPISODE_RETURN_MEAN, "x"), 1.0)
    with pytest.raises(ValueError, match="below it"):
        root.aggregate([runner(1.0)], key=EPISODE_RETURN_MEAN)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reduce": "median"}, "no reduction 'median'"),
        ({"reduce": "mean", "ema_coeff": 0.1}, "ema_coeff= .* 'ema'"),
        ({"reduce": "ema", "window": 3}, "window="),
        ({"reduce": "mean", "percentiles": [5]}, "percentiles="),
        ({"reduce": "mean", "with_throughput": True}, "'sum' or 'lifetime_sum'"),
        ({"throughput_ema_coeff": 0.1}, "throughput_ema_coeff"),
    ],
)
def test_settings_that_do_not_fit(logger, settings, message):
    with pytest.raises(ValueError, match=message):
        logger.log_value("a", 1.0, **settings)
    assert "a" not in logger


def test_deprecated_way_to_a_lifetime_sum():
    root = MetricsLogger(root=True)
    with pytest.warns(DeprecationWarning, match="lifetime_sum"):
        root.log_value("a", 1, reduce="sum", clear_on_reduce=False)
    root.reduce()
    assert root.peek("a") == 1


def test_a_reduction_of_ones_own_by_name():
    class First(MeanStats):
        stats_cls_identifier = "first"

        def _np_reduce_fn(self, values):
            return values[0]

    lookup = {**DEFAULT_STATS_CLS_LOOKUP, "first": First}
    logger = MetricsLogger(stats_cls_lookup=lookup)
    for value in (5.0, 6.0):
        logger.log_value("a", value, reduce="first")
    root = MetricsLogger(root=True, stats_cls_lookup=lookup)
    root.aggregate([logger.reduce()])
    restored = MetricsLogger(root=True, stats_cls_lookup=lookup)
    restored.set_state(root.get_state())
    assert restored.peek("a") == 5.0
    with pytest.raises(ValueError, match="'first'"):
        MetricsLogger().set_state(root.get_state())


def test_state_goes_on_where_it_was():
    root = MetricsLogger(root=True)
    root.aggregate([runner(10.0)], key="env_runners")
    root.log_value("own", 2.0, window=3)
    restored = MetricsLogger(root=True)
    restored.log_value("forgotten", 1.0)
    restored.set_state(pickle.loads(pickle.dumps(root.get_state())))
    assert restored.peek() == root.peek()
    restored.log_value("own", 4.0)
    restored.aggregate([runner(20.0)], key="env_runners")
    assert restored.peek("own") == 3.0
    assert restored.peek(("env_runners", "num_env_steps_sampled_lifetime")) == 20


def test_values_can_be_replaced_and_forgotten(logger):
    logger.log_value("a", 1.0, window=5)
    logger.set_value("a", 7.0)
    logger.log_value("a", 9.0)
    assert logger.peek("a") == 8.0
    logger.set_value(("b", "c"), 3, reduce="sum")
    assert logger.peek("b") == {"c": 3}
    logger.delete("b", "c")
    assert "b" in logger
    assert ("b", "c") not in logger
    logger.log_value(("b", "c"), 1.0, reduce="max")
    assert logger.peek(("b", "c")) == 1.0
    with pytest.raises(KeyError):
        logger.delete("zzz")
    logger.delete("zzz", key_error=False)
    logger.reset()
    logger.log_value("a", 1.0)
    assert logger.peek() == {"a": 1.0}


def test_a_logger_travels(logger):
    logger.log_value("a", 1.0, window=5)
    copy = pickle.loads(pickle.dumps(logger))
    copy.log_value("a", 3.0)
    assert (copy.peek("a"), logger.peek("a")) == (2.0, 1.0)
