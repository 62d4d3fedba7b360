"""CQL: losses against a plain implementation."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from runtime.rllib.algorithms.cql import CQLConfig
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
        CQLConfig()
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
    }


def tensors(columns):
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def numbers(fwd_out):
    return {name: each.detach().double().numpy() for name, each in fwd_out.items()}


def plain_penalty(of_data, of_samples, logp, temperature):
    scaled = (of_samples - logp) / temperature
    largest = scaled.max(1)
    sums = largest + np.log(np.exp(scaled - largest[:, None]).sum(1))
    return (temperature * sums).mean() - of_data.mean()


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("imitates", [True, False])
def test_the_losses_are_those_of_a_plain_implementation(deterministic, imitates):
    settings = config(
        bc_iters=100 if imitates else 0, deterministic_backup=deterministic, gamma=0.9, temperature=0.7,
        min_q_weight=2.0, num_actions=4, initial_alpha=0.5,
    )  # fmt: skip
    learner = settings.build_learner()
    module = learner.module["default_policy"]
    rows = batch()
    whole = {"default_policy": tensors(rows)}
    fwd_out = learner.module.forward_train(whole)
    out = numbers(fwd_out["default_policy"])
    assert out["qf_samples"].shape == (12, 12)

    next_values = out["q_target_next"] - (0.0 if deterministic else 0.5 * out["logp_next_resampled"])
    target = rows["rewards"] + 0.9 * np.where(rows["terminateds"], 0.0, next_values)
    q_losses = [
        np.mean((out[q] - target) ** 2) + 2.0 * plain_penalty(out[q], out[samples], out["logp_samples"], 0.7)
        for q, samples in (("qf_preds", "qf_samples"), ("qf_twin_preds", "qf_twin_samples"))
    ]
    with torch.no_grad():
        inputs = module.pi(module.pi_encoder(tensors(rows))["encoder_out"]).double().numpy()
    mean, log_std = inputs[:, :2], np.clip(inputs[:, 2:], -5.0, 2.0)
    raw = np.arctanh(rows["actions"].astype(np.float64))
    density = -0.5 * ((raw - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    of_data = (density - np.log(1 - rows["actions"].astype(np.float64) ** 2)).sum(1)
    policy_loss = np.mean(0.5 * out["logp_resampled"] - (of_data if imitates else out["q_curr"]))
    alpha_loss = -np.log(0.5) * np.mean(out["logp_resampled"] + -2.0)

    losses = learner.compute_losses(fwd_out=fwd_out, batch=whole)
    total = float(losses["default_policy"].detach())
    assert total == pytest.approx(sum(q_losses) + policy_loss + alpha_loss, rel=1e-4)
    report = learner.reduce_metrics()["default_policy"]
    assert float(report["policy_loss"].peek()) == pytest.approx(policy_loss, rel=1e-4)
    assert float(report["qf_loss"].peek()) == pytest.approx(q_losses[0], rel=1e-4)


def test_sampled_actions_are_uniform_and_of_the_policy():
    learner = config(num_actions=5).build_learner()
    module = learner.module["default_policy"]
    rows = tensors(batch())
    actions, logp = module._sampled_actions(rows)
    assert actions.shape == (12, 15, 2)
    assert actions.abs().max() <= 1.0
    torch.testing.assert_close(logp[:, :5], torch.full((12, 5), float(2 * np.log(0.5))))
    distribution = module.get_train_action_dist_cls()
    for name, start in (("obs", 5), ("new_obs", 10)):
        logits = module._policy(rows[name]).detach().repeat_interleave(5, 0)
        own = distribution.from_logits(logits).logp(actions[:, start : start + 5].flatten(0, 1)).view(12, 5)
        torch.testing.assert_close(logp[:, start : start + 5], own, rtol=1e-3, atol=1e-3)


def test_the_penalty_lowers_values_of_unseen_actions():
    settings = config(bc_iters=0, critic_lr=3e-3, num_actions=4)
    learner = settings.build_learner()
    rows = {"default_policy": batch(rows=64)}
    rows["default_policy"]["actions"][:] = 0.5  # all recorded actions are this one
    for _ in range(60):
        learner.update(batch=rows, timesteps={})
    module = learner.module["default_policy"]
    columns = tensors(rows["default_policy"])
    with torch.no_grad():
        of_data = module.compute_q_values(columns)
        unseen = module.compute_q_values(columns | {"actions": torch.full((64, 2), -0.5)})
    assert of_data.mean() > unseen.mean() + 0.5


def test_the_weight_of_the_penalty_is_learned_with_lagrangian():
    learner = config(lagrangian=True, lagrangian_thresh=-1000.0, critic_lr=0.01).build_learner()
    learner.update(batch={"default_policy": batch()}, timesteps={})
    assert (
        float(learner.log_alpha_prime["default_policy"].detach()) > 0.0
    )  # the penalty is above the threshold
    other = config(lagrangian=True).build_learner()
    other.set_state(learner.get_state())
    assert other.updates_by_module == {"default_policy": 1}
    assert float(other.log_alpha_prime["default_policy"].detach()) == pytest.approx(
        float(learner.log_alpha_prime["default_policy"].detach())
    )


def test_it_becomes_better_than_the_random_policy_that_was_recorded(session, tmp_path):
    recorded = reaching.record(tmp_path)
    settings = (
        CQLConfig()
        .environment(reaching.Reaching)
        .rl_module(model_config={"fcnet_hiddens": [32, 32]})
        .training(gamma=0.9, train_batch_size_per_learner=128)
        .training(bc_iters=30, min_q_weight=0.2, num_actions=4, actor_lr=3e-3, critic_lr=3e-3, tau=0.05)
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
