"""What the learners of IMPALA and APPO share."""

from __future__ import annotations

from typing import Any

from ..._core.types import ModuleID
from ...core.learner.learner import Learner
from ...core.rl_module.apis import ValueFunctionAPI
from ...utils.lambda_defaultdict import LambdaDefaultDict
from ...utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from ...utils.schedules.scheduler import Scheduler
from ..ppo.results import LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY


class IMPALALearner(Learner):
    """Holds each module's entropy coefficient, which follows a schedule."""

    def build(self) -> None:
        """Builds the learner."""
        self.entropy_coeff_schedulers_per_module = LambdaDefaultDict(
            lambda module_id: Scheduler(self.config_for_module(module_id).entropy_coeff)
        )
        super().build()
        if self._learner_connector is not None and self.config.add_default_connectors_to_learner_pipeline:
            # The value network sees the observation after each episode's end, in a row of its own.
            from ...connectors.learner import AddOneTsToEpisodesAndTruncate

            self._learner_connector.prepend(AddOneTsToEpisodesAndTruncate())

    def remove_module(self, module_id: ModuleID, **kwargs: Any) -> Any:
        """Removes a module and its coefficient."""
        spec = super().remove_module(module_id, **kwargs)
        self.entropy_coeff_schedulers_per_module.pop(module_id, None)
        return spec

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves the coefficients along their schedules, and logs them."""
        super().before_gradient_based_update(timesteps=timesteps)
        now = timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0)
        for module_id in self._module_optimizers:
            if module_id in self.module:
                coeff = self.entropy_coeff_schedulers_per_module[module_id].update(timestep=now)
                self.metrics.log_value((module_id, LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY), coeff, window=1)

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """A module needs a value function."""
        return [ValueFunctionAPI]
