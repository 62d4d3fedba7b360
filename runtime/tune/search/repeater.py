"""Every configuration tried several times, with the mean of their results."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

from runtime.tune.search.searcher import Searcher
from runtime.tune.search.wrapper import SearcherWrapper

logger = logging.getLogger(__name__)

TRIAL_INDEX = "__trial_index__"
"""The key in a configuration that tells which of the repeated trials it is, from 0."""


@dataclass(slots=True)
class _Group:
    """Trials of one configuration. Only the first is known to the wrapped searcher."""

    primary_id: str
    config: dict[str, Any]
    started: int = 0
    scores: list[float] = field(default_factory=list)
    failed: int = 0


class Repeater(SearcherWrapper):
    """Tries each configuration of another searcher several times and tells it the mean of the results.

    `num_samples` counts all trials: for 3 configurations with 5 trials each it is 15. What an incomplete last group
    finds is not told. Schedulers that stop trials early distort the means.

    Args:
        searcher: The searcher to ask.
        repeat: How many trials there are per configuration, at least 1.
        set_index: Whether configurations have the number of the trial within its group as TRIAL_INDEX, to derive
            seeds from.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        if not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"`repeat` must be a positive integer, got {repeat!r}")
        super().__init__(searcher)
        self.repeat = repeat
        self._set_index = set_index
        self._current: _Group | None = None
        self._group_of: dict[str, _Group] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._current is None or self._current.started == self.repeat:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            self._current = _Group(trial_id, config)
        return self._join(self._current, trial_id)

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        if self._current is None or self._current.started == self.repeat:
            shared = {key: value for key, value in config.items() if key != TRIAL_INDEX}
            self.searcher.replay(trial_id, shared)
            self._current = _Group(trial_id, shared)
        self._join(self._current, trial_id)

    def _join(self, group: _Group, trial_id: str) -> dict[str, Any]:
        self._group_of[trial_id] = group
        index = group.started
        group.started += 1
        return {**group.config, TRIAL_INDEX: index} if self._set_index else dict(group.config)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Takes a trial's result; the last of a group is followed by the group's mean, without failed trials."""
        group = self._group_of.pop(trial_id, None)
        if group is None:
            logger.warning("Trial %s completed, but it is not one of this Repeater", trial_id)
            return
        score = (result or {}).get(self.metric)
        if score is None or math.isnan(score):
            group.failed += 1
        else:
            group.scores.append(score)
        if len(group.scores) + group.failed < self.repeat:
            return
        if group.scores:
            mean = sum(group.scores) / len(group.scores)
            self.searcher.on_trial_complete(group.primary_id, result={self.metric: mean})
        else:
            self.searcher.on_trial_complete(group.primary_id, error=True)

    def get_state(self) -> dict[str, Any]:
        """Returns the groups that have not completed."""
        return {"current": self._current, "group_of": dict(self._group_of)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._current = state["current"]
        self._group_of = dict(state["group_of"])
