"""IMPALA's loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from ...._core.rollout import Rollout
from ...._core.types import Config, ModuleID
from ...._core.vtrace import vtrace
from ....core.columns import Columns
from ....core.learner.learner import ENTROPY_KEY, VF_LOSS_KEY
from ....core.learner.torch.batches import as_tensor, through_sequences, with_final_rows
from ....core.learner.torch.losses import mean
from ....core.learner.torch.torch_learner import TorchLearner
from ..impala_learner import IMPALALearner

_NOT_NEEDED = frozenset({Columns.STATE_OUT, Columns.VF_PREDS})


@dataclasses.dataclass(slots=True)
class Targets:
    """What V-trace gives for the rows of a batch, all float [rows] and without gradients."""

    values: torch.Tensor
    advantages: torch.Tensor


class IMPALATorchLearner(IMPALALearner, TorchLearner):
    """The policy gradient with V-trace's advantages, and values that fit V-trace's targets.

    A batch has one row more per segment, for the final observation: it is masked, and its value is that which follows
    the segment's last row. One forward pass gives all values.
    """

    def batch_from_rollout(self, module_id: ModuleID, rollout: Rollout) -> dict[str, Any]:
        """Rows, or sequences of a recurrent module, with "terminateds" and "loss_mask"."""
        module = self.module[module_id].unwrapped()
        longer, is_own = with_final_rows(rollout)
        terminateds = np.zeros(len(is_own), bool)
        terminateds[np.flatnonzero(~is_own) - 1] = rollout.segments.terminated
        longer.columns = {name: column for name, column in longer.columns.items() if name not in _NOT_NEEDED}
        if module.is_stateful():
            sequences = self.sequences_of(module, longer)
            _, state_in = through_sequences(module, longer, sequences, self._device, has_values=False)
            return self.sequence_batch(
                longer, is_own, sequences, state_in, **{Columns.TERMINATEDS: terminateds}
            )
        batch = self._tensors(longer.columns)
        batch[Columns.TERMINATEDS] = as_tensor(terminateds, self._device)
        batch[Columns.LOSS_MASK] = as_tensor(is_own, self._device)
        return batch

    def groups_of(self, module_id: ModuleID, columns: dict[str, Any]) -> np.ndarray | None:
        """The rows, or sequences, of each segment."""
        mask = columns[Columns.LOSS_MASK].cpu().numpy()
        ends = np.flatnonzero(~mask if mask.ndim == 1 else ~mask.all(axis=1))
        return np.diff(ends, prepend=-1)

    def targets(
        self, config: Config, batch: dict[str, Any], logp: torch.Tensor, values: torch.Tensor
    ) -> Targets:
        """V-trace of the batch.

        Args:
            config: of the module.
            batch: its rows or sequences.
            logp: log-probabilities of the actions under the target policy.
            values: of all rows.
        """
        with torch.no_grad():
            # Sequences of a segment follow one another, so that flat they are rows again, with padding at the end.
            mask = batch[Columns.LOSS_MASK].flatten()
            following = values.detach().flatten().roll(-1)
            flat_values = values.detach().flatten()
            log_rhos = torch.where(mask, (logp.detach() - batch[Columns.ACTION_LOGP]).flatten(), 0)
            rewards = batch[Columns.REWARDS].flatten()
            discounts = config.gamma * (mask & ~batch[Columns.TERMINATEDS].flatten()).to(rewards.dtype)
            is_last = ~(mask & mask.roll(-1))
            targets, advantages = vtrace(
                log_rhos,
                rewards,
                flat_values,
                following,
                discounts,
                is_last,
                longest=len(rewards),
                clip_rho=config.vtrace_clip_rho_threshold,
                clip_pg_rho=config.vtrace_clip_pg_rho_threshold,
            )
            return Targets(targets.view_as(values), advantages.view_as(values))

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The loss of one minibatch."""
        module = self.module[module_id].unwrapped()
        mask = batch[Columns.LOSS_MASK]
        current = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        logp = current.logp(batch[Columns.ACTIONS])
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        targets = self.targets(config, batch, logp, values)

        pi_loss = -mean(logp * targets.advantages, mask)
        vf_loss = 0.5 * mean((values - targets.values).square(), mask)
        entropy = mean(current.entropy(), mask)
        entropy_coeff = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        loss = pi_loss + config.vf_loss_coeff * vf_loss - entropy_coeff * entropy
        if self.logs_losses:
            rows = mask.sum()
            self.metrics.log_dict(
                {
                    "pi_loss": (pi_loss * rows).detach(),
                    "mean_pi_loss": pi_loss.detach(),
                    VF_LOSS_KEY: (vf_loss * rows).detach(),
                    "mean_vf_loss": vf_loss.detach(),
                    ENTROPY_KEY: entropy.detach(),
                },
                key=module_id,
                window=1,
            )
        return loss
