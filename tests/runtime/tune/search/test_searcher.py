import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from runtime.tune.search import BasicVariantGenerator, SearchAlgorithm, Searcher, create_searcher


class Points(Searcher):
    def __init__(self):
        super().__init__()
        self.points = []

    def add_evaluated_point(self, parameters, value, error=False, pruned=False, intermediate_values=None):
        self.points.append((parameters["x"], value, error, pruned))


def trial(x, status, **last_result):
    return SimpleNamespace(config={"x": x}, status=status, last_result=last_result)


@pytest.mark.parametrize(
    ("metric", "mode"),
    [("a", "least"), (["a"], ["min", "max"]), (["a"], "min"), ("a", ["min"]), (["a"], ["least"])],
)
def test_wrong_modes_are_refused(metric, mode):
    with pytest.raises(ValueError, match="mode"):
        Searcher(metric, mode)


def test_observed_metrics_are_possible_in_lists():
    assert Searcher(["a", "b"], ["min", "obs"]).mode == ["min", "obs"]


def test_results_of_earlier_trials_are_added(caplog):
    searcher = Points()
    searcher.add_evaluated_trials(
        [
            trial(1, "TERMINATED", loss=3, done=True),
            trial(2, "TERMINATED", loss=4),
            trial(3, "ERROR", loss=5),
            trial(4, "TERMINATED", done=True),
        ],
        "loss",
    )
    assert searcher.points == [(1, 3, False, False), (2, 4, False, True), (3, 5, True, False)]
    searcher.add_evaluated_trials(trial(5, "TERMINATED", loss=1, done=True), "loss")
    searcher.add_evaluated_trials(SimpleNamespace(trials=[trial(6, "TERMINATED", loss=1, done=True)]), "loss")
    assert [x for x, *_ in searcher.points[3:]] == [5, 6]
    with caplog.at_level(logging.WARNING):
        searcher.add_evaluated_trials([trial(7, "TERMINATED", done=True)], "lost")
    assert "'lost': is the name right?" in caplog.text
    with pytest.raises(TypeError, match="Expected a trial"):
        searcher.add_evaluated_trials(5, "loss")


def test_what_a_searcher_does_not_define_is_named():
    searcher = Searcher()
    for call in (
        lambda: searcher.suggest("a"),
        lambda: searcher.on_trial_complete("a"),
        lambda: searcher.add_evaluated_point({}, 1),
        lambda: searcher.add_evaluated_trials([], "loss"),
        lambda: searcher.save("path"),
    ):
        with pytest.raises(NotImplementedError, match="Searcher"):
            call()


def test_state_is_written_to_a_directory_and_read_from_it(tmp_path):
    searcher = BasicVariantGenerator(random_state=1)
    with pytest.raises(FileNotFoundError, match="No state of a searcher"):
        searcher.restore_from_dir(str(tmp_path))
    searcher.save_to_dir(str(tmp_path), "session")
    assert [path.name for path in tmp_path.iterdir()] == ["searcher-state-session.pkl"]
    other = BasicVariantGenerator(random_state=2)
    other.restore_from_dir(str(tmp_path))
    assert other.seed == 1


def test_searchers_are_created_by_name():
    searcher = create_searcher("Random", max_concurrent=3, metric="left out")
    assert isinstance(searcher, BasicVariantGenerator)
    assert searcher.max_concurrent == 3
    with pytest.raises(ValueError, match="no search algorithm 'best'"):
        create_searcher("best")


def test_every_search_algorithm_is_a_searcher():
    assert SearchAlgorithm is Searcher


def test_importing_the_search_loads_no_library():
    code = (
        "import sys, runtime.tune.search as s, runtime.tune.search.sample, runtime.tune.search.variant_generator\n"
        "from runtime.tune.search.optuna import OptunaSearch\n"
        "s.BasicVariantGenerator, s.ConcurrencyLimiter, s.Repeater, s.SearchGenerator\n"
        "print([name for name in ('numpy', 'pandas', 'torch', 'optuna', 'hyperopt', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
