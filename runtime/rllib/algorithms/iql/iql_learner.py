"""Names of IQL's outputs and results."""

from __future__ import annotations

QF_TARGET_PREDS = "qf_target_preds"
VF_PREDS_NEXT = "vf_preds_next"
VF_LOSS = "value_loss"
