"""A limit on how many trials of a searcher run at once."""

from __future__ import annotations

from typing import Any

from runtime.tune.search.searcher import Searcher
from runtime.tune.search.wrapper import SearcherWrapper


class ConcurrencyLimiter(SearcherWrapper):
    """Asks another searcher only while fewer than `max_concurrent` of its trials run.

    A searcher that limits them itself gets the number and does so.

    Args:
        searcher: The searcher to ask.
        max_concurrent: How many trials may run at once, at least 1.
        batch: Whether the searcher learns results only once all trials of a batch have completed; new ones start then.

    Raises:
        TypeError: `searcher` is no Searcher.
        ValueError: `max_concurrent` is no positive integer.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"ConcurrencyLimiter needs a Searcher, got {searcher!r}")
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"`max_concurrent` must be a positive integer, got {max_concurrent!r}")
        super().__init__(searcher)
        self.max_concurrent = max_concurrent
        self.batch = batch
        self.live_trials: set[str] = set()
        self.cached_results: dict[str, tuple[dict[str, Any] | None, bool]] = {}
        self._limits = not searcher.set_max_concurrency(max_concurrent)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        self._limits = not self.searcher.set_max_concurrency(max_concurrent)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._limits and len(self.live_trials) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self.live_trials.add(trial_id)
        return suggestion

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        self.searcher.replay(trial_id, config)
        self.live_trials.add(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if trial_id not in self.live_trials:
            return
        if not self.batch or not self._limits:
            self.live_trials.remove(trial_id)
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        self.cached_results[trial_id] = (result, error)
        if len(self.cached_results) < len(self.live_trials):
            return
        for done_id, (done_result, done_error) in self.cached_results.items():
            self.searcher.on_trial_complete(done_id, result=done_result, error=done_error)
        self.live_trials.clear()
        self.cached_results.clear()

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, Any]:
        """Returns which trials run, and the results of a batch that has not completed."""
        return {"live_trials": set(self.live_trials), "cached_results": dict(self.cached_results)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.live_trials = set(state["live_trials"])
        self.cached_results = dict(state["cached_results"])

    def on_pause(self, trial_id: str) -> None:
        """Passes on that a trial is paused, for TuneBOHB."""
        if hasattr(self.searcher, "on_pause"):
            self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Passes on that a paused trial runs again, for TuneBOHB."""
        if hasattr(self.searcher, "on_unpause"):
            self.searcher.on_unpause(trial_id)
