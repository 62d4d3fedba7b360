"""Epsilon-greedy actions."""

from __future__ import annotations

import pytest
import torch

from runtime.rllib.utils.exploration.epsilon_greedy import EpsilonGreedy


def test_the_share_of_random_actions_follows_the_schedule() -> None:
    torch.manual_seed(1)
    exploration = EpsilonGreedy([(0, 1.0), (100, 0.5), (200, 0.0)])
    values = torch.tensor([0.0, 0.0, 5.0]).expand(4000, 3)
    for timestep, epsilon in ((0, 1.0), (50, 0.75), (150, 0.25), (1000, 0.0)):
        actions = exploration.actions(values, timestep)
        assert exploration.epsilon(timestep) == epsilon
        greedy = (actions == 2).float().mean().item()
        assert greedy == pytest.approx(1 - epsilon * 2 / 3, abs=0.03)


def test_forbidden_actions_are_never_drawn() -> None:
    values = torch.tensor([[[-1.0, -torch.inf, -3.0], [-torch.inf, -torch.inf, 0.0]]]).expand(500, 2, 3)
    actions = EpsilonGreedy(1.0).actions(values, 0)
    assert actions.shape == (500, 2)
    assert set(actions[:, 0].tolist()) == {0, 2}
    assert set(actions[:, 1].tolist()) == {2}


def test_a_schedule_must_begin_at_0() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        EpsilonGreedy([(5, 1.0), (10, 0.1)])
