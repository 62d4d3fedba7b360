"""A train batch of fresh experience, for algorithms that learn from each sample once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._core.rollout import Rollout
from .._core.types import ALL_MODULES, Config, ModuleID
from ..core.learner.experience import merged
from ..utils.metrics import DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY, LEARNER_RESULTS


@dataclasses.dataclass(slots=True)
class TrainBatch:
    """What the runners collected.

    rollouts: experience by module.
    episodes: the same as episodes, if connectors or callbacks need these; else None.
    metrics: what each runner's metrics logger gave.
    env_steps: of all environments.
    weights_seqs: number of the weights that each runner had.
    """

    rollouts: dict[ModuleID, Rollout]
    episodes: list[Any] | None
    metrics: list[dict[str, Any]]
    env_steps: int
    weights_seqs: Sequence[int] = ()

    def data(self, config: Config) -> dict[str, Any]:
        """The keyword of a learner's `update` that takes it: episodes only for connectors, since rows are faster."""
        if self.episodes is None or config.learner_connector is None:
            return {"rollouts": self.rollouts}
        return {"episodes": self.episodes}


def collected_rollouts(env_runner_group: Any, config: Config) -> TrainBatch:
    """Samples until there is a train batch, or until the runners give nothing within the timeout.

    Args:
        env_runner_group: the runners.
        config: has the size ("total_train_batch_size" steps, counted by "count_steps_by"), the "batch_mode" and the
            timeout of one round ("sample_timeout_s").
    """
    parts: list[Any] = []
    done = 0
    while done < config.total_train_batch_size:
        amount: dict[str, int] = {}
        if config.batch_mode != "complete_episodes":  # else one episode of each environment
            amount["env_steps"] = _env_steps(config, config.total_train_batch_size - done, parts)
        collected = env_runner_group.collect(**amount, timeout_s=config.sample_timeout_s)
        fresh = [each for each in collected if each.env_steps]
        if not fresh:
            break
        parts += fresh
        done += sum(getattr(each, config.count_steps_by) for each in fresh)
    return train_batch(parts)


def train_batch(parts: Sequence[Any]) -> TrainBatch:
    """One batch of what `collect` of runners gave."""
    episodes = None
    if parts and all(each.episodes is not None for each in parts):
        episodes = [episode for each in parts for episode in each.episodes]
    return TrainBatch(
        merged(each.rollouts for each in parts),
        episodes,
        [each.metrics for each in parts],
        sum(each.env_steps for each in parts),
        [each.weights_seq for each in parts],
    )


def log_updates_ahead(metrics: Any, results: Iterable[Mapping[ModuleID, Any]], updates: float) -> None:
    """Logs how many updates the learners were ahead of the policy that had sampled a batch.

    Args:
        metrics: the algorithm's MetricsLogger.
        results: of the learners; says which modules were updated.
        updates: 1 if the policy was as new as the learners' before the update.
    """
    for module_id in {module_id for result in results for module_id in result} - {ALL_MODULES}:
        metrics.log_value(
            (LEARNER_RESULTS, module_id, DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY), updates, window=1
        )


def _env_steps(config: Config, missing: int, parts: list[Any]) -> int:
    """Env steps that give the missing ones, by the number of agents that stepped so far."""
    if config.count_steps_by == "env_steps":
        return missing
    if not parts:
        return 1  # how many agents step at a time is not known yet
    agents = sum(each.agent_steps for each in parts) / sum(each.env_steps for each in parts)
    return max(1, round(missing / max(1.0, agents)))
