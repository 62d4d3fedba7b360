"""HyperBand in the order that BOHB's searcher learns from."""

from __future__ import annotations

from typing import Any

from ._controller import Controller
from .hyperband import HyperBandScheduler
from .trial_scheduler import TrialScheduler


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand for the searcher of BOHB (Falkner et al. 2018, https://arxiv.org/abs/1807.01774).

    Two things differ from HyperBand: a band starts with its largest bracket, so that the searcher sees many short
    trials first; and the searcher is told the budget of each result (`hyperband_info`) and, if it has `on_pause` and
    `on_unpause`, which trials pause. Arguments as of `HyperBandScheduler`.
    """

    def _kind(self, index: int) -> int:
        return self._kinds - 1 - index

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """As HyperBand. A result at a rung carries `hyperband_info = {"budget": time of the rung}`."""
        bracket = self._bracket_of.get(trial.trial_id)
        milestone = bracket.milestone if bracket is not None else None
        decision = super().on_trial_result(controller, trial, result)
        time = result.get(self._time_attr)
        reached = milestone is not None and time is not None and time >= milestone
        result["hyperband_info"] = {"budget": milestone} if reached else {}
        if decision == TrialScheduler.PAUSE:
            self._notify(controller, "on_pause", trial)
        return decision

    def _promote(self, controller: Controller, trial: Any) -> None:
        super()._promote(controller, trial)
        self._notify(controller, "on_unpause", trial)

    @staticmethod
    def _notify(controller: Controller, method: str, trial: Any) -> None:
        notify = getattr(controller.search_alg, method, None)
        if notify is not None:
            notify(trial.trial_id)
