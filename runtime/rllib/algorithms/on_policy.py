"""A train batch of fresh experience, for algorithms that learn from each sample once."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._core.rollout import Rollout
from .._core.types import ModuleID
from ..core.learner.experience import merged


@dataclasses.dataclass(slots=True)
class TrainBatch:
    """What the runners collected.

    rollouts: experience by module.
    episodes: the same as episodes, if connectors or callbacks need these; else None.
    metrics: what each runner's metrics logger gave.
    env_steps: of all environments.
    """

    rollouts: dict[ModuleID, Rollout]
    episodes: list[Any] | None
    metrics: list[dict[str, Any]]
    env_steps: int

    def data(self) -> dict[str, Any]:
        """The keyword of a learner's `update` that takes it."""
        return {"rollouts": self.rollouts} if self.episodes is None else {"episodes": self.episodes}


def collected_rollouts(
    env_runner_group: Any, steps: int, *, count_steps_by: str = "env_steps", timeout_s: float | None = None
) -> TrainBatch:
    """Samples until there are enough steps, or until the runners give none within the timeout.

    Args:
        env_runner_group: the runners.
        steps: how many, at least.
        count_steps_by: "env_steps" or "agent_steps".
        timeout_s: of one round of sampling.
    """
    parts: list[Any] = []
    done = 0
    while done < steps:
        env_steps = steps - done
        if count_steps_by == "agent_steps" and parts:
            per_env_step = max(
                1.0, sum(c.agent_steps for c in parts) / max(1, sum(c.env_steps for c in parts))
            )
            env_steps = max(1, round(env_steps / per_env_step))
        elif count_steps_by == "agent_steps":
            env_steps = 1  # how many agents step at a time is not known yet
        fresh = [
            each
            for each in env_runner_group.collect(env_steps=env_steps, timeout_s=timeout_s)
            if each.env_steps
        ]
        if not fresh:
            break
        parts += fresh
        done += sum(getattr(each, count_steps_by) for each in fresh)
    episodes = None
    if parts and all(each.episodes is not None for each in parts):
        episodes = [episode for each in parts for episode in each.episodes]
    return TrainBatch(
        merged(each.rollouts for each in parts),
        episodes,
        [each.metrics for each in parts],
        sum(each.env_steps for each in parts),
    )
