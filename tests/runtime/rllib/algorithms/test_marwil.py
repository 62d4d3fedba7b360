"""MARWIL: value targets over whole episodes, the loss against a plain implementation, training."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.algorithms.marwil import MARWILConfig
from runtime.rllib.connectors.connector_v2 import ConnectorV2

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
SPACES = {"discrete": gym.spaces.Discrete(2), "box": gym.spaces.Box(-1.0, 1.0, (2,), np.float32)}


def config(kind="discrete", **training):
    return (
        MARWILConfig()
        .environment(observation_space=OBS, action_space=SPACES[kind])
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .training(**training)
        .offline_data(input_="unused", dataset_num_iters_per_learner=1)
        .debugging(seed=3)
    )


def experience(kind="discrete", seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.array([4, 1, 6, 3])
    rows = int(lengths.sum())
    actions = (
        rng.integers(0, 2, rows) if kind == "discrete" else rng.normal(size=(rows, 2)).astype(np.float32)
    )
    segments = Segments(
        lengths,
        np.array([True, False, False, True]),
        np.array([False, True, False, False]),
        list("abcd"),
        np.zeros(4, np.int64),
    )
    return Rollout(
        {
            "obs": rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
            "actions": actions,
            "rewards": rng.normal(size=rows).astype(np.float32),
        },
        segments,
        rng.uniform(-1, 1, (4, 3)).astype(np.float32),
    )


def plain_targets(rollout, values, final_values, gamma, lambda_):
    """Lambda returns, row by row from the end of each segment."""
    targets = np.zeros(rollout.rows)
    for number, (start, length) in enumerate(
        zip(rollout.segments.starts, rollout.segments.lengths, strict=True)
    ):
        after = 0.0 if rollout.segments.terminated[number] else final_values[number]
        target = after
        for row in range(start + length - 1, start - 1, -1):
            target = rollout.columns["rewards"][row] + gamma * ((1 - lambda_) * after + lambda_ * target)
            targets[row] = target
            after = values[row]
    return targets


def plain_logp(kind, inputs, actions):
    if kind == "discrete":
        shifted = inputs - inputs.max(1, keepdims=True)
        return (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))[np.arange(len(actions)), actions]
    mean, log_std = inputs[:, :2], inputs[:, 2:]
    return (-0.5 * ((actions - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(1)


@pytest.mark.parametrize(
    ("kind", "lambda_", "start"),
    [("discrete", 1.0, 50.0), ("discrete", 0.6, 50.0), ("box", 1.0, 50.0), ("discrete", 1.0, 0.5)],
)
def test_the_loss_is_that_of_a_plain_implementation(kind, lambda_, start):
    settings = config(
        kind, beta=0.7, gamma=0.9, vf_coeff=0.3, moving_average_sqd_adv_norm_start=start,
        moving_average_sqd_adv_norm_update_rate=0.1,
    )  # fmt: skip
    settings.lambda_ = lambda_
    settings.bc_logstd_coeff = 0.05 if kind == "box" else 0.0
    learner = settings.build_learner()
    module = learner.module["default_policy"]
    rollout = experience(kind)

    def values_of(obs):
        with torch.no_grad():
            return module.compute_values({"obs": torch.from_numpy(obs)}).double().numpy()

    values, final_values = values_of(rollout.columns["obs"]), values_of(rollout.final_obs)
    targets = plain_targets(rollout, values, final_values, 0.9, lambda_)
    advantages = targets - values
    mean_square = start + 0.1 * ((advantages**2).mean() - start)
    scale = np.sqrt(max(mean_square, (advantages**2).mean()))
    with torch.no_grad():
        output = module.forward_train({"obs": torch.from_numpy(rollout.columns["obs"])})
    inputs = output["action_dist_inputs"].double().numpy()
    logp = plain_logp(kind, inputs, rollout.columns["actions"])
    if kind == "box":
        logp = logp + 0.05 * inputs[:, 2:].mean(1)
    policy_loss = -(np.exp(0.7 * advantages / scale) * logp).mean()
    vf_loss = 0.5 * (advantages**2).mean()

    batch = {"default_policy": learner.batch_from_rollout("default_policy", rollout)}
    assert sorted(batch["default_policy"]["value_targets"].tolist()) == pytest.approx(
        sorted(targets), abs=1e-5
    )
    losses = learner.compute_losses(fwd_out=learner.module.forward_train(batch), batch=batch)
    assert float(losses["default_policy"].detach()) == pytest.approx(policy_loss + 0.3 * vf_loss, rel=1e-5)
    results = learner.metrics.reduce()["default_policy"]
    assert float(results["policy_loss"].peek()) == pytest.approx(policy_loss, rel=1e-5)
    assert float(results["moving_avg_sqd_adv_norm"].peek()) == pytest.approx(mean_square, rel=1e-5)


def test_the_weights_of_actions_give_no_gradient_to_values():
    settings = config(beta=1.0, vf_coeff=0.0)
    learner = settings.build_learner()
    rollout = experience()
    batch = {"default_policy": learner.batch_from_rollout("default_policy", rollout)}
    losses = learner.compute_losses(fwd_out=learner.module.forward_train(batch), batch=batch)
    gradients = learner.compute_gradients(losses)
    module = learner.module["default_policy"]
    value_refs = {learner.get_param_ref(parameter) for parameter in module.vf.parameters()}
    assert all(gradients[ref] is None or not gradients[ref].any() for ref in value_refs)
    assert any(gradient is not None and gradient.any() for gradient in gradients.values())


def test_a_recurrent_module_learns_from_sequences():
    settings = config(beta=1.0, burnin_len=1, lr=0.01).rl_module(
        model_config={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4}
    )
    learner = settings.build_learner()
    batch = learner.batch_from_rollout("default_policy", experience())
    assert batch["obs"].shape == (6, 4, 3)
    assert int(batch["loss_mask"].sum()) == 14
    first = learner.update(rollouts={"default_policy": experience()})
    for _ in range(20):
        last = learner.update(rollouts={"default_policy": experience()})
    assert float(last["default_policy"]["vf_loss"].peek()) < float(first["default_policy"]["vf_loss"].peek())


def test_the_moving_average_is_part_of_the_state():
    learner = config(moving_average_sqd_adv_norm_update_rate=0.5).build_learner()
    learner.update(rollouts={"default_policy": experience()})
    other = config(moving_average_sqd_adv_norm_update_rate=0.5).build_learner()
    other.set_state(learner.get_state())
    assert other.moving_avg_sqd_adv_norms_per_module["default_policy"] == pytest.approx(
        float(learner.moving_avg_sqd_adv_norms_per_module["default_policy"])
    )


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="beta"):
        config(beta=1.5).validate()
    with pytest.raises(ValueError, match="postprocess_inputs"):
        config().offline_data(postprocess_inputs=False).validate()


class Counting(ConnectorV2):
    """Counts the steps of episodes that pass."""

    steps = 0

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, metrics=None, **kwargs):
        Counting.steps += sum(len(episode) for episode in episodes)
        return batch


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_learner_connectors_get_episodes(beta):
    settings = config(beta=beta).learners(learner_connector=lambda *_: Counting())
    if beta == 0.0:
        settings.trains_on_segments = False
    Counting.steps = 0
    learner = settings.build_learner()
    result = learner.update(rollouts={"default_policy": experience()})
    assert Counting.steps >= 14
    plain = config(beta=beta).build_learner()
    if beta == 0.0:  # the same rows: the same loss
        other = plain.update(rollouts={"default_policy": experience()})
        losses = [float(each["default_policy"]["policy_loss"].peek()) for each in (result, other)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert np.isfinite(float(result["default_policy"]["policy_loss"].peek()))
