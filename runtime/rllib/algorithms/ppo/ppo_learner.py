"""What PPO's learners share: coefficients that change in the course of training."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Any

from ..._core.types import Config, ModuleID
from ...core.learner.learner import Learner
from ...core.rl_module.apis import ValueFunctionAPI
from ...utils.lambda_defaultdict import LambdaDefaultDict
from ...utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from ...utils.schedules.scheduler import Scheduler
from .results import LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY, LEARNER_RESULTS_CURR_KL_COEFF_KEY

log = logging.getLogger(__name__)

_KL_COEFFS = "curr_kl_coeffs_per_module"


class PPOLearner(Learner):
    """Holds each module's entropy coefficient, which follows a schedule, and KL coefficient, which follows a target."""

    def build(self) -> None:
        """Builds the learner; coefficients are those of the config."""
        self.entropy_coeff_schedulers_per_module = LambdaDefaultDict(
            lambda module_id: Scheduler(self.config_for_module(module_id).entropy_coeff)
        )
        self.curr_kl_coeffs_per_module = LambdaDefaultDict(
            lambda module_id: float(self.config_for_module(module_id).kl_coeff)
        )
        self._latest_kl: dict[ModuleID, Any] = {}  # mean divergence of the latest reported minibatch
        super().build()
        if self._learner_connector is not None and self.config.add_default_connectors_to_learner_pipeline:
            # The value network sees the observation after each episode's end, in a row of its own.
            from ...connectors.learner import AddOneTsToEpisodesAndTruncate, GeneralAdvantageEstimation

            self._learner_connector.prepend(AddOneTsToEpisodesAndTruncate())
            self._learner_connector.append(
                GeneralAdvantageEstimation(gamma=self.config.gamma, lambda_=self.config.lambda_)
            )

    def remove_module(self, module_id: ModuleID, **kwargs: Any) -> Any:
        """Removes a module and its coefficients."""
        spec = super().remove_module(module_id, **kwargs)
        for each in (
            self.entropy_coeff_schedulers_per_module,
            self.curr_kl_coeffs_per_module,
            self._latest_kl,
        ):
            each.pop(module_id, None)
        return spec

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves the entropy coefficients along their schedules, and logs them."""
        super().before_gradient_based_update(timesteps=timesteps)
        now = timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0)
        for module_id in self._module_optimizers:
            if module_id in self.module:
                coeff = self.entropy_coeff_schedulers_per_module[module_id].update(timestep=now)
                self.metrics.log_value((module_id, LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY), coeff, window=1)

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves the KL coefficients and logs them."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id in self._module_optimizers:
            if module_id not in self.module:
                continue
            config = self.config_for_module(module_id)
            if config.use_kl_loss and module_id in self._latest_kl:
                kl_loss = float(self._latest_kl.pop(module_id))
                self._update_module_kl_coeff(module_id=module_id, config=config, kl_loss=kl_loss)

    def _update_module_kl_coeff(self, *, module_id: ModuleID, config: Config, kl_loss: float) -> None:
        """Changes the KL coefficient by the mean divergence of the latest minibatch."""
        coeff = self.curr_kl_coeffs_per_module[module_id]
        if not math.isfinite(kl_loss):
            log.warning(
                "The KL divergence of module %s is %s: an action of the batch has almost no probability. Set "
                "kl_coeff=0.0 or a higher entropy_coeff if this goes on",
                module_id,
                kl_loss,
            )
        if kl_loss > 2.0 * config.kl_target:
            coeff *= 1.5
        elif kl_loss < 0.5 * config.kl_target:
            coeff *= 0.5
        self.curr_kl_coeffs_per_module[module_id] = coeff
        self.metrics.log_value((module_id, LEARNER_RESULTS_CURR_KL_COEFF_KEY), coeff, window=1)

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The learner's state with the KL coefficients."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        return {**state, _KL_COEFFS: dict(self.curr_kl_coeffs_per_module)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        self.curr_kl_coeffs_per_module.update(state.get(_KL_COEFFS, {}))

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """A module needs a value function."""
        return [ValueFunctionAPI]
