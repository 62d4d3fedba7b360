"""Repeats the schedule of hyperparameters that population based training has found."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from ._controller import Controller
from ._explore import perturbed_tag
from .trial_scheduler import FIFOScheduler, TrialScheduler

logger = logging.getLogger(__name__)

CUT_LINE = json.dumps(["", "", 0, 0, {}, {}])
"""A line of a policy file that belongs to no trial: what comes before it was overwritten by what comes after it."""


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Trains one trial with the configs that a trial of population based training went through.

    The trial starts with the config of the first trial in the chain, and goes on with the next config, from its own
    checkpoint, once it reaches the training iteration at which that one was copied.

    Args:
        policy_file: `pbt_policy_<trial id>.txt` of a study with `log_config=True`.

    Raises:
        ValueError: the file does not exist or is not a policy file.
    """

    def __init__(self, policy_file: str) -> None:
        super().__init__()
        path = Path(policy_file).expanduser()
        if not path.exists():
            raise ValueError(f"policy_file {str(path)!r} does not exist.")
        self.policy_file = str(path)
        self.config, self._policy = _read_policy(path)
        self.current_config = self.config
        self.experiment_tag = f"replay_{path.name}"
        self._trial_id: str | None = None
        self._current_step = 0
        self._num_perturbations = 0

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Gives the trial the first config.

        Raises:
            ValueError: it is the second trial; or neither the file nor the trial has a config.
        """
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError(
                "PopulationBasedTrainingReplay trains one trial only: pass num_samples=1 to TuneConfig."
            )
        if self._trial_id is None and self._policy:
            if trial.config:
                logger.warning("The config of trial %s is replaced by the policy's", trial.trial_id)
            trial.config.clear()
            trial.config.update(self.config)
        elif not self._policy:
            if not trial.config:
                raise ValueError(
                    f"policy_file {self.policy_file!r} is empty, and the trial has no config either."
                )
            self.config = self.current_config = trial.config
        self._trial_id = trial.trial_id

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """NOOP after changing the config, else CONTINUE."""
        step = result.get("training_iteration")
        if step is None or self._num_perturbations == len(self._policy):
            return TrialScheduler.CONTINUE
        self._current_step = step
        change_at, config = self._policy[self._num_perturbations]
        if step < change_at:
            return TrialScheduler.CONTINUE
        logger.info("Trial %s goes on with %s at training iteration %s", trial.trial_id, config, step)
        self._num_perturbations += 1
        self.current_config = config
        controller.exploit(trial, trial, dict(config), perturbed_tag(self.experiment_tag, config, config))
        return TrialScheduler.NOOP

    def debug_string(self) -> str:
        """How far the schedule has got."""
        return (
            f"PopulationBasedTraining replay: Step {self._current_step}, perturb {self._num_perturbations} "
            f"of {len(self._policy)}"
        )


def _read_policy(path: Path) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """The first config, and the (training iteration, config) of each change."""
    rows: list[list[Any]] = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(text)
        except json.JSONDecodeError:
            row = None
        if not isinstance(row, list) or len(row) != 6:
            raise ValueError(
                f"policy_file {str(path)!r} is not a policy file of PBT: line {number} is {text[:80]!r}."
            )
        rows.append(row)
    first: dict[str, Any] = {}
    changes: list[tuple[int, dict[str, Any]]] = []
    donor: str | None = None
    # From the end: each exploit's donor is the trial of the exploit before it, or the chain starts there.
    for tag, donor_tag, _, donor_step, old_config, new_config in reversed(rows):
        if donor is not None and tag != donor:
            break
        donor, first = donor_tag, old_config
        changes.append((donor_step, new_config))
    return first, changes[::-1]
