"""Policies of autoscaling: how many replicas a load asks for."""

from __future__ import annotations

from typing import Any

from runtime.serve.config import AutoscalingContext

__all__ = ["default_autoscaling_policy", "replica_queue_length_autoscaling_policy"]


def replica_queue_length_autoscaling_policy(ctx: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """As many replicas as keep `target_ongoing_requests` on each. Bounds, factors and delays come afterwards."""
    return ctx.total_num_requests / ctx.config.get_target_ongoing_requests(), {}


default_autoscaling_policy = replica_queue_length_autoscaling_policy
