"""IQL: losses against a plain implementation, training on recorded data."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from runtime.rllib.algorithms.iql import IQLConfig
from tests.runtime.rllib.algorithms import reaching

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)


@pytest.fixture(scope="module")
def session(no_leaks):
    import runtime as ray

    ray.init(num_cpus=2)
    yield
    ray.shutdown()


def config(**training):
    return (
        IQLConfig()
        .environment(observation_space=OBS, action_space=ACTIONS)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .training(**training)
        .offline_data(input_="unused", dataset_num_iters_per_learner=1)
        .debugging(seed=1)
    )


def batch(rows=12, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
        "new_obs": rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
        "actions": rng.uniform(-0.9, 0.9, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminateds": rng.random(rows) < 0.3,
        "truncateds": np.zeros(rows, bool),
    }


def tensors(columns):
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def q_values(encoder, head, columns):
    with torch.no_grad():
        return head(encoder(tensors(columns))["encoder_out"]).squeeze(-1).double().numpy()


@pytest.mark.parametrize("twin_q", [True, False])
def test_the_losses_are_those_of_a_plain_implementation(twin_q):
    learner = config(beta=0.8, gamma=0.9, expectile=0.7, twin_q=twin_q).build_learner()
    module = learner.module["default_policy"]
    rows = batch()
    # Targets differ from the networks once these were trained.
    learner.update(batch={"default_policy": batch(seed=5)}, timesteps={})
    learner.update(batch={"default_policy": batch(seed=6)}, timesteps={})

    names = ["qf", "qf_twin"][: 1 + twin_q]
    qs = [q_values(getattr(module, f"{name}_encoder"), getattr(module, name), rows) for name in names]
    targets = [
        q_values(getattr(module, f"target_{name}_encoder"), getattr(module, f"target_{name}"), rows)
        for name in names
    ]
    smallest = np.min(targets, axis=0)
    v = q_values(module.vf_encoder, module.vf, rows)
    v_next = q_values(module.vf_encoder, module.vf, {"obs": rows["new_obs"]})
    value_loss = np.mean([(0.7 if d > 0 else 0.3) * d * d for d in smallest - v])
    td = rows["rewards"] + 0.9 * np.where(rows["terminateds"], 0.0, v_next)
    q_losses = [np.mean((q - td) ** 2) / len(names) for q in qs]
    with torch.no_grad():
        inputs = module.pi(module.pi_encoder(tensors(rows))["encoder_out"]).double().numpy()
    mean, log_std = inputs[:, :2], np.clip(inputs[:, 2:], -5.0, 2.0)
    raw = np.arctanh(rows["actions"].astype(np.float64))
    density = -0.5 * ((raw - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    logp = (density - np.log(1 - rows["actions"].astype(np.float64) ** 2)).sum(1)
    policy_loss = -np.mean(np.minimum(np.exp(0.8 * (smallest - v)), 100.0) * logp)

    whole = {"default_policy": tensors(rows)}
    losses = learner.compute_losses(fwd_out=learner.module.forward_train(whole), batch=whole)
    expected = value_loss + policy_loss + sum(q_losses)
    assert float(losses["default_policy"].detach()) == pytest.approx(expected, rel=1e-4)
    report = learner.reduce_metrics()["default_policy"]
    assert float(report["value_loss"].peek()) == pytest.approx(value_loss, rel=1e-4)
    assert float(report["policy_loss"].peek()) == pytest.approx(policy_loss, rel=1e-4)
    assert float(report["qf_loss"].peek()) == pytest.approx(q_losses[0], rel=1e-4)


def test_each_network_learns_from_its_own_loss_only():
    learner = config().build_learner()
    whole = {"default_policy": tensors(batch())}
    losses = learner.compute_losses(fwd_out=learner.module.forward_train(whole), batch=whole)
    gradients = learner.compute_gradients(losses)
    module = learner.module["default_policy"]
    out = module.forward_train(whole["default_policy"])
    td = (
        whole["default_policy"]["rewards"]
        + 0.99 * ~whole["default_policy"]["terminateds"] * out["vf_preds_next"]
    )
    own = 0.5 * (out["qf_preds"] - td).square().mean()
    parameters = list(module.qf.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(own, parameters), strict=True):
        torch.testing.assert_close(gradients[learner.get_param_ref(parameter)], gradient)
    refs = {
        learner.get_param_ref(parameter)
        for _, target in module.get_target_network_pairs()
        for parameter in target.parameters()
    }
    assert not refs & gradients.keys()


def test_targets_follow_by_tau():
    learner = config(tau=0.25).build_learner()
    module = learner.module["default_policy"]
    before = [parameter.clone() for parameter in module.target_qf.parameters()]
    learner.update(batch={"default_policy": batch()}, timesteps={})
    for old, main, target in zip(before, module.qf.parameters(), module.target_qf.parameters(), strict=True):
        torch.testing.assert_close(target, 0.75 * old + 0.25 * main)


def test_discrete_actions_are_refused():
    settings = config().environment(action_space=gym.spaces.Discrete(2))
    learner = settings.build_learner()
    rows = batch() | {"actions": np.zeros(12, np.int64)}
    with pytest.raises(ValueError, match="Box action space"):
        learner.update(batch={"default_policy": rows}, timesteps={})


def test_an_expectile_outside_of_0_and_1_is_refused():
    with pytest.raises(ValueError, match="expectile"):
        config(expectile=1.0).validate()


def test_it_becomes_better_than_the_random_policy_that_was_recorded(session, tmp_path):
    recorded = reaching.record(tmp_path)
    settings = (
        IQLConfig()
        .environment(reaching.Reaching)
        .rl_module(model_config={"fcnet_hiddens": [32, 32]})
        .training(gamma=0.9, train_batch_size_per_learner=128)
        .training(beta=5.0, expectile=0.8, actor_lr=3e-3, critic_lr=3e-3, value_lr=3e-3, tau=0.05)
        .offline_data(input_=str(tmp_path), dataset_num_iters_per_learner=100)
        .evaluation(evaluation_interval=2, evaluation_duration=15, evaluation_config={"explore": False})
        .debugging(seed=0)
    )
    algo = settings.build_algo()
    results = [algo.train() for _ in range(2)]
    algo.stop()
    errors = [result["learners"]["default_policy"]["td_error_mean"] for result in results]
    assert all(np.isfinite(errors))
    learned = results[-1]["evaluation"]["env_runners"]["episode_return_mean"]
    assert learned > 0.3 * recorded, (recorded, learned, errors)  # both are negative
