"""APPO's loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...._core.types import Config, ModuleID
from ....core.columns import Columns
from ....core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY, Batch
from ....core.learner.torch.losses import mean
from ....core.rl_module.apis.target_network_api import TARGET_NETWORK_ACTION_DIST_INPUTS
from ...impala.torch.impala_torch_learner import IMPALATorchLearner
from ..appo_learner import APPOLearner
from ..results import (
    LEARNER_RESULTS_CURR_KL_COEFF_KEY,
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_MEAN_IS_KEY,
    LEARNER_RESULTS_VAR_IS_KEY,
)


class APPOTorchLearner(APPOLearner, IMPALATorchLearner):
    """PPO's clipped surrogate with V-trace's advantages.

    V-trace's target policy and the ratio's denominator are the target network's, which changes seldom, so that batches
    of older policies can be used several times.
    """

    def _minibatches(
        self,
        batch: Batch,
        num_total_minibatches: int,
        num_epochs: int,
        minibatch_size: int | None,
        shuffle: bool,
    ) -> Iterator[Batch]:
        """Minibatches of kept batches, chosen at random: for each that comes, as many uses as one may have."""
        for module_id, columns in batch.items():
            rows = int(self._steps_in(columns)) * num_epochs
            self._trained[module_id] = self._trained.get(module_id, 0) + rows
        batches = [batch]
        if self._buffer is not None:
            self._buffer.add(batch)
            # While the buffer fills, each batch that comes makes for one use only: without a reserve, all uses of a
            # batch would follow one another, and the updates would fit it rather than the policy's experience.
            uses = self._buffer.iterations_per_batch if self._buffer.is_full else 1
            batches = [each for each in (self._buffer.sample() for _ in range(uses)) if each is not None]
        for each in batches:
            yield from super()._minibatches(each, num_total_minibatches, num_epochs, minibatch_size, shuffle)

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The loss of one minibatch."""
        module = self.module[module_id].unwrapped()
        mask = batch[Columns.LOSS_MASK]
        dist_cls = module.get_train_action_dist_cls()
        current = dist_cls.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        old = dist_cls.from_logits(module.forward_target(batch)[TARGET_NETWORK_ACTION_DIST_INPUTS])
        actions, behavior_logp = batch[Columns.ACTIONS], batch[Columns.ACTION_LOGP]
        logp, old_logp = current.logp(actions), old.logp(actions)
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        targets = self.targets(config, batch, old_logp, values)

        behavior_ratio = torch.exp(behavior_logp - old_logp).clamp(max=config.target_worker_clipping)
        # Masked rows have actions that nobody took: an overflow there would make the gradients of all rows NaN.
        ratio = behavior_ratio * torch.exp(torch.where(mask, logp - behavior_logp, 0))
        clipped = ratio.clamp(1 - config.clip_param, 1 + config.clip_param)
        gain = mean(torch.minimum(ratio * targets.advantages, clipped * targets.advantages), mask)
        vf_loss = 0.5 * mean((values - targets.values).square(), mask)
        entropy = mean(current.entropy(), mask)
        entropy_coeff = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        loss = config.vf_loss_coeff * vf_loss - gain - entropy_coeff * entropy
        kl = loss.new_zeros(())
        if config.use_kl_loss:
            kl = mean(old.kl(current), mask)
            loss = loss + self.curr_kl_coeffs_per_module[module_id] * kl

        if self.logs_losses:
            self._latest_kl[module_id] = kl.detach()
            average = mean(behavior_ratio, mask)
            report = {
                POLICY_LOSS_KEY: -gain,
                VF_LOSS_KEY: vf_loss,
                ENTROPY_KEY: entropy,
                LEARNER_RESULTS_KL_KEY: kl,
                LEARNER_RESULTS_MEAN_IS_KEY: average,
                LEARNER_RESULTS_VAR_IS_KEY: mean((behavior_ratio - average).square(), mask),
            }
            self.metrics.log_dict(
                {name: each.detach() for name, each in report.items()}, key=module_id, window=1
            )
            self.metrics.log_value(
                (module_id, LEARNER_RESULTS_CURR_KL_COEFF_KEY),
                self.curr_kl_coeffs_per_module[module_id],
                window=1,
            )
        return loss
