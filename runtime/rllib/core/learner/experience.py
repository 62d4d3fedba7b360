"""Rollouts from what other parts give: episodes, and what runners collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._core.rollout import Rollout, concatenate
from ..._core.types import DEFAULT_MODULE_ID, ModuleID
from ...env.multi_agent_episode import MultiAgentEpisode, completed
from ...env.single_agent_episode import to_rollout


def rollouts_of(episodes: Sequence[Any]) -> dict[ModuleID, Rollout]:
    """The rows of the episodes by module; those of a multi-agent episode belong to its agents' modules."""
    multi = [episode for episode in episodes if isinstance(episode, MultiAgentEpisode)]
    by_module: dict[ModuleID, list[Any]] = completed(multi)
    for episode in episodes:
        if not isinstance(episode, MultiAgentEpisode) and len(episode):
            by_module.setdefault(episode.module_id or DEFAULT_MODULE_ID, []).append(episode)
    return {module_id: to_rollout(each) for module_id, each in by_module.items()}


def merged(parts: Iterable[Mapping[ModuleID, Rollout]]) -> dict[ModuleID, Rollout]:
    """Module id -> one rollout of the segments of all parts."""
    by_module: dict[ModuleID, list[Rollout]] = {}
    for part in parts:
        for module_id, rollout in part.items():
            if rollout.rows:
                by_module.setdefault(module_id, []).append(rollout)
    return {module_id: concatenate(each) for module_id, each in by_module.items()}
