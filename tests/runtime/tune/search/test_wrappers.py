import logging

import pytest

from runtime.tune.search import ConcurrencyLimiter, Repeater, Searcher, SearchGenerator
from runtime.tune.search.repeater import TRIAL_INDEX
from runtime.tune.search.sample import uniform


class Recording(Searcher):
    """Suggests 0, 1, 2 and so on for x, up to `end` of them, and keeps all it is told."""

    def __init__(self, end=100, own_limit=False):
        super().__init__("loss", "min")
        self.end, self.own_limit = end, own_limit
        self.asked, self.told, self.results, self.points = [], [], [], []

    def suggest(self, trial_id):
        if len(self.asked) == self.end:
            return self.FINISHED
        self.asked.append(trial_id)
        return {"x": len(self.asked) - 1}

    def on_trial_result(self, trial_id, result):
        self.results.append((trial_id, result))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((trial_id, result, error))

    def add_evaluated_point(self, parameters, value, error=False, pruned=False, intermediate_values=None):
        self.points.append((parameters, value, error, pruned))

    def set_max_concurrency(self, max_concurrent):
        self.max_concurrent = max_concurrent
        return self.own_limit

    def set_search_properties(self, metric, mode, config):
        self._metric, self._mode = metric, mode
        return True

    def save(self, checkpoint_path):
        with open(checkpoint_path, "w") as file:
            file.write(str(len(self.asked)))

    def restore(self, checkpoint_path):
        with open(checkpoint_path) as file:
            self.asked = ["restored"] * int(file.read())


def test_the_limiter_asks_again_once_a_trial_completes():
    inner = Recording()
    limiter = ConcurrencyLimiter(inner, max_concurrent=2)
    assert [limiter.suggest(name) for name in "abc"] == [{"x": 0}, {"x": 1}, None]
    limiter.on_trial_result("a", {"loss": 1})
    limiter.on_trial_complete("a", {"loss": 1})
    limiter.on_trial_complete("not one of mine")
    assert limiter.suggest("c") == {"x": 2}
    assert inner.results == [("a", {"loss": 1})]
    assert inner.told == [("a", {"loss": 1}, False)]


def test_a_batch_is_told_at_its_end():
    inner = Recording()
    limiter = ConcurrencyLimiter(inner, 2, batch=True)
    limiter.suggest("a"), limiter.suggest("b")
    limiter.on_trial_complete("b", {"loss": 2})
    assert inner.told == []
    assert limiter.suggest("c") is None
    limiter.on_trial_complete("a", error=True)
    assert inner.told == [("b", {"loss": 2}, False), ("a", None, True)]
    assert limiter.suggest("c") == {"x": 2}


def test_a_searcher_with_a_limit_of_its_own_uses_it():
    inner = Recording(own_limit=True)
    limiter = ConcurrencyLimiter(inner, 1)
    assert inner.max_concurrent == 1
    assert limiter.suggest("a") == {"x": 0}
    assert limiter.suggest("b") == {"x": 1}
    limiter.set_max_concurrency(3)
    assert inner.max_concurrent == 3
    limiter.on_trial_complete("a", {"loss": 1})
    assert inner.told == [("a", {"loss": 1}, False)]


def test_the_limiter_passes_on_the_end_properties_points_and_state(tmp_path):
    inner = Recording(end=1)
    limiter = ConcurrencyLimiter(inner, 5)
    assert limiter.set_search_properties("score", "max", {}, total_num_samples=3)
    assert (limiter.metric, limiter.mode) == ("score", "max")
    limiter.suggest("a")
    assert limiter.suggest("b") == Searcher.FINISHED
    limiter.add_evaluated_point({"x": 1}, 2.0)
    assert inner.points == [({"x": 1}, 2.0, False, False)]
    limiter.save(str(tmp_path / "state"))
    other = ConcurrencyLimiter(Recording(), 5)
    other.restore(str(tmp_path / "state"))
    other.set_state(limiter.get_state())
    assert other.searcher.asked == ["restored"]
    assert other.live_trials == {"a"}


def test_replayed_trials_count_for_the_limit():
    limiter = ConcurrencyLimiter(Recording(), 1)
    limiter.replay("a", {"x": 0})
    assert limiter.suggest("b") is None
    limiter.on_trial_complete("a")
    assert limiter.suggest("b") == {"x": 1}


def test_wrong_limits_are_refused():
    with pytest.raises(ValueError, match="max_concurrent"):
        ConcurrencyLimiter(Recording(), 0)
    with pytest.raises(TypeError, match="needs a Searcher"):
        ConcurrencyLimiter(object(), 1)


def test_repeated_trials_share_a_configuration_and_are_told_as_their_mean():
    inner = Recording()
    repeater = Repeater(inner, repeat=3)
    found = [repeater.suggest(name) for name in "abcd"]
    assert [(config["x"], config[TRIAL_INDEX]) for config in found] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert inner.asked == ["a", "d"]
    repeater.on_trial_complete("b", {"loss": 1})
    repeater.on_trial_complete("c", error=True)
    assert inner.told == []
    repeater.on_trial_complete("a", {"loss": 4})
    assert inner.told == [("a", {"loss": 2.5}, False)]


def test_a_group_without_any_result_has_failed():
    inner = Recording()
    repeater = Repeater(inner, repeat=2, set_index=False)
    assert repeater.suggest("a") == repeater.suggest("b") == {"x": 0}
    repeater.on_trial_complete("a", error=True)
    repeater.on_trial_complete("b", {"loss": float("nan")})
    assert inner.told == [("a", None, True)]


def test_a_replayed_repeater_goes_on_within_the_group():
    original, replayed = Repeater(Recording(), 2), Repeater(Recording(), 2)
    for name in "abc":
        replayed.replay(name, original.suggest(name))
    assert replayed.suggest("d") == original.suggest("d") == {"x": 1, TRIAL_INDEX: 1}
    assert replayed.searcher.asked == ["a", "c"]


def test_the_generator_completes_suggestions_with_fixed_values():
    generator = SearchGenerator(Recording())
    generator.configure({"x": None, "net": {"layers": [1, 2]}}, num_samples=2)
    first, second, end = (generator.suggest(name) for name in "abc")
    assert first == {"x": 0, "net": {"layers": [1, 2]}}
    assert end == Searcher.FINISHED
    assert first["net"]["layers"] is not second["net"]["layers"]
    assert (generator.tag_of("b"), generator.evaluated_params_of("b"), generator.total) == (
        "x=1",
        {"x": 1},
        2,
    )


def test_the_generator_counts_replayed_trials():
    generator = SearchGenerator(Recording())
    generator.configure({"y": 1}, num_samples=2)
    generator.replay("a", {"x": 0, "y": 1})
    assert generator.suggest("b") == {"x": 1, "y": 1}
    assert generator.suggest("c") == Searcher.FINISHED


def test_a_space_that_the_searcher_does_not_take_is_refused():
    class Fixed(Recording):
        def set_search_properties(self, metric, mode, config, **spec):
            return False

    generator = SearchGenerator(Fixed())
    assert not generator.set_search_properties("loss", "min", {"a": 1})
    with pytest.raises(ValueError, match=r"Fixed does not search param_space.*'a/b'"):
        generator.set_search_properties("loss", "min", {"a": {"b": uniform(0, 1)}})


def test_samples_that_do_not_fill_a_group_are_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        SearchGenerator(Repeater(Recording(), 5)).configure({}, 13)
    assert "not a multiple of the 5" in caplog.text
