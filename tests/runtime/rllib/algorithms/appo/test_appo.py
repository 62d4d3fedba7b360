from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.rllib.algorithms.appo import APPOConfig
from runtime.rllib.algorithms.impala import IMPALAConfig


def running(config: Any, learners: int) -> Any:
    return (
        config.environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4, num_cpus_per_env_runner=0.5)
        .rl_module(model_config={"fcnet_hiddens": [16], "fcnet_activation": "tanh"})
        .training(train_batch_size_per_learner=400, broadcast_interval=2)
        .learners(num_learners=learners, num_cpus_per_learner=0.5)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1200)
        .debugging(seed=1, log_level="ERROR")
        .build_algo()
    )


@pytest.mark.parametrize(("config", "learners"), [(APPOConfig, 0), (IMPALAConfig, 1)])
def test_runners_sample_while_learners_learn(session: None, config: Any, learners: int) -> None:
    algo = running(config(), learners)
    try:
        before = algo.learner_group.get_weights()["default_policy"]
        for _ in range(2):
            result = algo.train()
        assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 2400
        learned = result["learners"]["default_policy"]
        assert np.isfinite(learned["total_loss"])
        assert learned["num_module_steps_trained_lifetime"] > 0
        assert learned["diff_num_grad_updates_vs_sampler_policy"] >= 1
        after = algo.learner_group.get_weights()["default_policy"]
        assert any(not np.array_equal(before[name], after[name]) for name in before)
        assert result["num_weight_broadcasts"] > 0
        # Runners have weights that were broadcast, not those of the beginning.
        for weights in algo.env_runner_group.foreach_env_runner(
            lambda runner: runner.module.get_state(), local_env_runner=False
        ):
            assert any(not np.array_equal(before[name], each) for name, each in weights.items())
    finally:
        algo.stop()


def test_defaults_are_those_of_ray() -> None:
    impala = {
        "lr": 0.0005,
        "grad_clip": 40.0,
        "num_learners": 1,
        "rollout_fragment_length": 50,
        "train_batch_size": 500,
        "num_env_runners": 2,
        "min_time_s_per_iteration": 10,
        "vtrace_clip_rho_threshold": 1.0,
        "vtrace_clip_pg_rho_threshold": 1.0,
        "vf_loss_coeff": 0.5,
        "entropy_coeff": 0.01,
        "broadcast_interval": 1,
    }
    appo = {
        **impala,
        "lambda_": 1.0,
        "clip_param": 0.4,
        "use_kl_loss": False,
        "kl_coeff": 1.0,
        "kl_target": 0.01,
        "target_worker_clipping": 2.0,
        "target_network_update_freq": 2,
        "tau": 1.0,
        "use_circular_buffer": True,
        "circular_buffer_num_batches": 8,
        "circular_buffer_iterations_per_batch": 2,
    }
    for made, expected in ((IMPALAConfig(), impala), (APPOConfig(), appo)):
        assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vtrace": False}, "vtrace"),
        ({"broadcast_interval": 0}, "broadcast_interval"),
        ({"minibatch_size": 10_000}, "minibatch_size"),
        ({"circular_buffer_num_batches": 0}, "circular_buffer_num_batches"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        APPOConfig().environment("CartPole-v1").training(**settings).validate()


def test_settings_without_effect_warn() -> None:
    for settings in ({"learner_queue_size": 5}, {"lambda_": 0.5}, {"simple_queue_size": 1}):
        with pytest.warns(UserWarning, match="has no effect"):
            APPOConfig().training(**settings)
    with pytest.warns(UserWarning, match="num_aggregator_actors_per_learner=2 has no effect"):
        IMPALAConfig().learners(num_aggregator_actors_per_learner=2)
    with pytest.warns(UserWarning, match="torch_ddp_kwargs"):
        IMPALAConfig().framework("torch", torch_ddp_kwargs={"find_unused_parameters": True})


def test_appo_has_value_layers_of_its_own_and_impala_shares_them() -> None:
    assert APPOConfig().model_config["vf_share_layers"] is False
    assert IMPALAConfig().model_config.get("vf_share_layers", True) is True
