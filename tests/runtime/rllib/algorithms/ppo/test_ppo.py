from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.rllib.algorithms.ppo import PPOConfig


def config(**training: Any) -> PPOConfig:
    settings = {
        "lr": 1e-3,
        "lambda_": 0.95,
        "clip_param": 0.2,
        "vf_loss_coeff": 0.5,
        "vf_clip_param": 1e9,
        "use_kl_loss": False,
        "grad_clip": 0.5,
        "train_batch_size_per_learner": 1024,
        "minibatch_size": 256,
        "num_epochs": 10,
        **training,
    }
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .rl_module(model_config={"fcnet_hiddens": [32, 32], "fcnet_activation": "tanh"})
        .training(**settings)
        .debugging(seed=1, log_level="ERROR")
    )


def test_it_learns_to_balance_a_pole() -> None:
    algo = config().build_algo()
    try:
        best = 0.0
        for _ in range(40):
            result = algo.train()
            best = max(best, result["env_runners"]["episode_return_mean"])
            if best > 150:
                break
        assert best > 150
        assert result["env_runners"]["num_env_steps_sampled_lifetime"] <= 42_000
        learned = result["learners"]["default_policy"]
        assert {"policy_loss", "vf_loss", "entropy", "total_loss", "curr_entropy_coeff"} <= set(learned)
        assert result["timers"]["learner_update_timer"] > 0
        # The runner acts with the learner's weights.
        for name, weights in algo.learner_group.get_weights()["default_policy"].items():
            own = algo.get_module().get_state()
            if name in own:
                np.testing.assert_array_equal(own[name], weights)
    finally:
        algo.stop()


def test_defaults_are_those_of_ray() -> None:
    made = PPOConfig()
    expected = {
        "lr": 5e-5,
        "gamma": 0.99,
        "train_batch_size": 4000,
        "num_env_runners": 2,
        "num_epochs": 30,
        "minibatch_size": 128,
        "shuffle_batch_per_epoch": True,
        "use_critic": True,
        "use_gae": True,
        "lambda_": 1.0,
        "use_kl_loss": True,
        "kl_coeff": 0.2,
        "kl_target": 0.01,
        "vf_loss_coeff": 1.0,
        "entropy_coeff": 0.0,
        "clip_param": 0.3,
        "vf_clip_param": 10.0,
        "grad_clip": None,
    }
    assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minibatch_size": 2048}, "minibatch_size"),
        ({"use_gae": False}, "complete_episodes"),
        ({"entropy_coeff": [(5, 0.1), (10, 0.0)]}, "entropy_coeff"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**settings).validate()


def test_unknown_settings_are_refused_with_the_nearest_names() -> None:
    with pytest.raises(TypeError, match="clip_param"):
        PPOConfig().training(clip_parm=0.1)
