"""Sampling with all environment runners of a group."""

from __future__ import annotations

import time
from typing import Any

from runtime.rllib.env.env_runner_group import EnvRunnerGroup


def synchronous_parallel_sample(
    *,
    worker_set: EnvRunnerGroup,
    max_agent_steps: int | None = None,
    max_env_steps: int | None = None,
    concat: bool = True,
    sample_timeout_s: float | None = None,
    random_actions: bool = False,
    _uses_new_env_runners: bool = True,
    _return_metrics: bool = False,
) -> Any:
    """Has all runners sample until there is enough; gives episodes. `EnvRunnerGroup.collect` gives arrays instead, and
    does not wait for slow runners.

    Args:
        worker_set: the runners.
        max_agent_steps, max_env_steps: sample until there are so many; by default one round.
        concat: whether to give one list of episodes instead of one per runner.
        sample_timeout_s: seconds after which to return what there is.
        random_actions: actions of the action space instead of the module's.

    Returns:
        The episodes; with `_return_metrics` a pair of them and of the runners' metrics.
    """
    worker_set.wait_for_one()
    deadline = None if sample_timeout_s is None else time.monotonic() + sample_timeout_s
    has_remote = worker_set.num_remote_env_runners() > 0
    lists: list[list[Any]] = []
    metrics: list[Any] = []
    steps = {"env": 0, "agent": 0}

    def is_enough() -> bool:
        if max_agent_steps is None and max_env_steps is None:
            return bool(lists)
        return (max_agent_steps is not None and steps["agent"] >= max_agent_steps) or (
            max_env_steps is not None and steps["env"] >= max_env_steps
        )

    while not is_enough():
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if left == 0:
            break
        for episodes, of_runner in worker_set.foreach_env_runner(
            lambda runner: (runner.sample(random_actions=random_actions), runner.get_metrics()),
            local_env_runner=not has_remote,
            timeout_seconds=left,
        ):
            lists.append(episodes)
            metrics.append(of_runner)
            steps["env"] += sum(episode.env_steps() for episode in episodes)
            steps["agent"] += sum(episode.agent_steps() for episode in episodes)
    samples: Any = [episode for episodes in lists for episode in episodes] if concat else lists
    return (samples, metrics) if _return_metrics else samples
