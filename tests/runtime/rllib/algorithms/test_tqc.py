"""TQC: losses against plain loops, and a short training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib.algorithms.tqc import TQCConfig
from runtime.rllib.algorithms.tqc.torch.losses import quantile_huber_loss, truncated_quantiles

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines


def test_quantile_regression_is_that_of_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(1)
    quantiles = torch.randn(4, 3, 5, generator=generator) * 2
    targets = torch.randn(4, 7, generator=generator) * 2
    result = quantile_huber_loss(quantiles, targets)
    for b in range(4):
        total = 0.0
        for c in range(3):
            for i in range(5):
                level = (i + 0.5) / 5
                for target in targets[b].tolist():
                    error = target - float(quantiles[b, c, i])
                    size = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                    total += abs(level - (error < 0)) * size / (5 * 7)
        assert float(result[b]) == pytest.approx(total, rel=1e-5)


def test_the_largest_quantiles_of_all_critics_are_left_out() -> None:
    quantiles = torch.tensor([[[1.0, 9.0, 3.0], [8.0, 2.0, 7.0]]])
    assert truncated_quantiles(quantiles, 1).tolist() == [[1.0, 2.0, 3.0, 7.0]]
    assert truncated_quantiles(quantiles, 0).tolist() == [[1.0, 2.0, 3.0, 7.0, 8.0, 9.0]]


def test_quantile_regression_finds_the_quantiles() -> None:
    quantiles = torch.zeros(1, 1, 4, requires_grad=True)
    optimizer = torch.optim.Adam([quantiles], lr=0.5)
    targets = torch.linspace(0, 100, 101)[None]
    for _ in range(400):
        optimizer.zero_grad()
        quantile_huber_loss(quantiles, targets).sum().backward()
        optimizer.step()
    assert np.allclose(quantiles.detach().numpy()[0, 0], [12.5, 37.5, 62.5, 87.5], atol=1.5)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"n_critics": 0}, "n_critics must be at least 1"),
        ({"n_quantiles": 3, "top_quantiles_to_drop_per_net": 3}, "less than n_quantiles \\(3\\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(training: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TQCConfig().environment("Pendulum-v1").training(**training).validate()


def test_a_short_training_reports_its_losses() -> None:
    config = (
        TQCConfig()
        .environment("Pendulum-v1")
        .env_runners(num_env_runners=0)
        .training(
            num_steps_sampled_before_learning_starts=20,
            train_batch_size_per_learner=16,
            n_critics=3,
            n_quantiles=5,
            top_quantiles_to_drop_per_net=1,
        )
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=None)
        .debugging(seed=1)
    )
    algo = config.build_algo()
    learned = algo.train()["learners"]["default_policy"]
    assert {"policy_loss", "qf_loss", "alpha_loss", "td_error_mean"} <= learned.keys()
    assert learned["num_target_updates"] == 21
    module = algo.learner_group._learner.module["default_policy"]
    obs = torch.zeros(2, 3)
    assert module.compute_q_values({"obs": obs, "actions": torch.zeros(2, 1)}).shape == (2,)
    assert module.forward_target({"obs": obs, "actions": torch.zeros(2, 1)}).shape == (2, 3 * 4)
    algo.stop()
