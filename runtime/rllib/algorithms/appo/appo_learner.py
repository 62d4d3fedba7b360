"""What APPO's learners share: target networks, the buffer, the KL coefficient."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..._core.types import Config, ModuleID
from ...core.learner.utils import update_target_network
from ...core.rl_module.apis import TargetNetworkAPI, ValueFunctionAPI
from ...utils.lambda_defaultdict import LambdaDefaultDict
from ...utils.metrics import LAST_TARGET_UPDATE_TS, NUM_TARGET_UPDATES
from ..impala.impala_learner import IMPALALearner
from .results import LEARNER_RESULTS_CURR_KL_COEFF_KEY
from .utils import CircularBuffer

_PROGRESS = "appo_progress"


class APPOLearner(IMPALALearner):
    """Moves target networks and KL coefficients, and keeps batches for further use."""

    def build(self) -> None:
        """Builds the learner with its target networks."""
        self.curr_kl_coeffs_per_module = LambdaDefaultDict(
            lambda module_id: float(self.config_for_module(module_id).kl_coeff)
        )
        self._latest_kl: dict[ModuleID, Any] = {}  # mean divergence of the latest reported minibatch
        self._trained: dict[ModuleID, int] = {}  # rows of batches that came, however often they were used
        self._last_target_update: dict[ModuleID, int] = {}  # rows then
        config = self.config
        self._buffer: CircularBuffer | None = None
        if config.use_circular_buffer:
            self._buffer = CircularBuffer(
                config.circular_buffer_num_batches, config.circular_buffer_iterations_per_batch, self._rng
            )
        super().build()

    def _make_module(self) -> Any:
        module = super()._make_module()
        for _, each in module.items():
            self._make_targets(each)
        return module

    def _make_targets(self, module: Any) -> None:
        if isinstance(module.unwrapped(), TargetNetworkAPI):
            module.unwrapped().make_target_networks()

    def add_module(self, *, module_id: ModuleID, **kwargs: Any) -> Any:
        """Adds a module with its target network."""
        spec = super().add_module(module_id=module_id, **kwargs)
        self._make_targets(self.module[module_id])
        return spec

    def remove_module(self, module_id: ModuleID, **kwargs: Any) -> Any:
        """Removes a module and what is known of it. Kept batches are forgotten: they may have its rows."""
        spec = super().remove_module(module_id, **kwargs)
        for each in (
            self.curr_kl_coeffs_per_module,
            self._latest_kl,
            self._trained,
            self._last_target_update,
        ):
            each.pop(module_id, None)
        if self._buffer is not None:
            self._buffer.clear()
        return spec

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves target networks whose time has come, and KL coefficients."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id, trained in self._trained.items():
            config = self.config_for_module(module_id)
            unit = config.circular_buffer_num_batches * config.circular_buffer_iterations_per_batch
            unit *= config.train_batch_size_per_learner
            last = self._last_target_update.setdefault(module_id, 0)
            module = self.module[module_id].unwrapped()
            is_time = trained - last >= config.target_network_update_freq * unit
            if is_time and isinstance(module, TargetNetworkAPI):
                for network, target in module.get_target_network_pairs():
                    update_target_network(main_net=network, target_net=target, tau=config.tau)
                self._last_target_update[module_id] = trained
                self.metrics.log_value((module_id, NUM_TARGET_UPDATES), 1, reduce="lifetime_sum")
            last = self._last_target_update[module_id]
            self.metrics.log_value((module_id, LAST_TARGET_UPDATE_TS), last, window=1)
            if config.use_kl_loss and module_id in self._latest_kl:
                kl_loss = float(self._latest_kl.pop(module_id))
                self._update_module_kl_coeff(module_id=module_id, config=config, kl_loss=kl_loss)

    def _update_module_kl_coeff(self, *, module_id: ModuleID, config: Config, kl_loss: float) -> None:
        """Changes the KL coefficient by the mean divergence of the latest minibatch."""
        coeff = self.curr_kl_coeffs_per_module[module_id]
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
        """The learner's state with KL coefficients and the times of target updates. Kept batches are not part of it."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        progress = (self.curr_kl_coeffs_per_module, self._trained, self._last_target_update)
        return {**state, _PROGRESS: [dict(each) for each in progress]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        if _PROGRESS in state:
            coeffs, self._trained, self._last_target_update = (dict(each) for each in state[_PROGRESS])
            self.curr_kl_coeffs_per_module.update(coeffs)

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """A module needs a target network and a value function."""
        return [TargetNetworkAPI, ValueFunctionAPI]
