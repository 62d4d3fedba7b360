from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.connectors.learner import AddNextObservationsFromEpisodesToTrainBatch as NextObservations
from runtime.rllib.core.rl_module.default_model_config import DefaultModelConfig
from tests.runtime.rllib._core.making import rollout
from tests.runtime.rllib.core.learner.learning import equal, learner, spec, values_of, weights


def rows(seed: int = 0, segments: int = 4) -> Rollout:
    made = rollout(np.random.default_rng(seed), segments, 15)
    made.columns["obs"][:, 0] = 0
    made.final_obs[:, 0] = 0
    return made


def outputs(module: Any, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits and values as NumPy arrays."""
    with torch.no_grad():
        batch = {"obs": torch.from_numpy(obs)}
        logits = module.forward_train(batch)["action_dist_inputs"]
        return logits.double().numpy(), module.compute_values(batch).double().numpy()


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    result: np.ndarray = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return result


def plain_loss(config: PPOConfig, module: Any, data: Rollout) -> dict[str, float]:
    """PPO's loss of all rows as in the paper, one row after another, in NumPy."""
    logits, values = outputs(module, data.columns["obs"])
    finals = outputs(module, data.final_obs)[1]
    advantages, start = np.zeros(data.rows), 0
    for segment, length in enumerate(data.segments.lengths):
        following, advantage = 0.0 if data.segments.terminated[segment] else finals[segment], 0.0
        for row in reversed(range(start, start + length)):
            delta = data.columns["rewards"][row] + config.gamma * following - values[row]
            advantages[row] = advantage = delta + config.gamma * config.lambda_ * advantage
            following = values[row]
        start += length
    targets = advantages + values
    advantages = (advantages - advantages.mean()) / advantages.std()
    new, old = (
        log_probabilities(logits),
        log_probabilities(data.columns["action_dist_inputs"].astype(np.float64)),
    )
    gains, vf_losses, kls, entropies = [], [], [], []
    for row, action in enumerate(data.columns["actions"]):
        ratio = np.exp(new[row, action] - data.columns["action_logp"][row])
        bounded = min(max(ratio, 1 - config.clip_param), 1 + config.clip_param)
        gains.append(min(ratio * advantages[row], bounded * advantages[row]))
        vf_losses.append(min((values[row] - targets[row]) ** 2, config.vf_clip_param))
        kls.append((np.exp(old[row]) * (old[row] - new[row])).sum())
        entropies.append(-(np.exp(new[row]) * new[row]).sum())
    total = (
        -np.mean(gains)
        + config.vf_loss_coeff * np.mean(vf_losses)
        - config.entropy_coeff * np.mean(entropies)
    )
    if config.use_kl_loss:
        total += config.kl_coeff * np.mean(kls)
    return {
        "policy_loss": -np.mean(gains),
        "vf_loss": np.mean(vf_losses),
        "entropy": np.mean(entropies),
        "mean_kl_loss": np.mean(kls) if config.use_kl_loss else 0.0,
        "total_loss": total,
    }


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_kl_loss": False, "entropy_coeff": 0.1, "lambda_": 0.9, "clip_param": 0.05},
        {"vf_clip_param": 0.2, "vf_loss_coeff": 0.3, "gamma": 0.7, "lambda_": 0.0},
    ],
)
def test_the_loss_is_that_of_the_plain_implementation(settings: dict[str, Any]) -> None:
    config = PPOConfig().training(**settings).debugging(seed=1)
    made, data = learner(config), rows()
    expected = plain_loss(config, made.module["default_policy"], data)
    found = values_of(made.update(rollouts={"default_policy": data}))["default_policy"]
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_recurrent_module_learns_from_sequences_what_its_rows_say() -> None:
    """With a net that ignores its state, sequences give the loss of single rows."""
    config = PPOConfig().training(lambda_=0.9).debugging(seed=1)
    made = learner(config, spec(use_lstm=True, max_seq_len=4, lstm_cell_size=8))
    module, data = made.module["default_policy"].unwrapped(), rows()
    initial = module.get_initial_state()

    def repeated(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {name: repeated(each) for name, each in tree.items()}
        return np.repeat(np.asarray(tree)[None], len(data.segments), axis=0)

    data.state_in = repeated(initial)
    batch = made.batch_from_rollout("default_policy", data)
    assert batch["obs"].shape[1:] == (4, 4)
    assert int(batch["loss_mask"].sum()) == data.rows
    taken = batch["advantages"][batch["loss_mask"]]
    assert abs(float(taken.mean())) < 1e-4  # standardized over the rows, without padding
    torch.testing.assert_close(
        batch["rewards"][batch["loss_mask"]], torch.from_numpy(data.columns["rewards"])
    )
    # From the states that the batch starts with, the sequences give the values that advantages were computed from.
    with torch.no_grad():
        out = module.forward_train(batch)
        values = module.compute_values(batch, embeddings=out["embeddings"])
    mask = batch["loss_mask"]
    whole, row = [], 0
    with torch.no_grad():
        for segment, length in enumerate(data.segments.lengths):
            one = {
                "obs": torch.from_numpy(data.columns["obs"][row : row + length])[None],
                "state_in": repeated_rows(data.state_in, segment),
            }
            row += length
            result = module.forward_train(one)
            whole.append(module.compute_values(one, embeddings=result["embeddings"])[0])
    torch.testing.assert_close(values[mask], torch.cat(whole), rtol=1e-4, atol=1e-5)
    results = values_of(made.update(rollouts={"default_policy": data}, num_epochs=2, minibatch_size=8))
    assert np.isfinite(results["default_policy"]["total_loss"])


def repeated_rows(tree: Any, segment: int) -> Any:
    if isinstance(tree, dict):
        return {name: repeated_rows(each, segment) for name, each in tree.items()}
    return torch.from_numpy(tree[segment : segment + 1])


@pytest.mark.parametrize(("kl", "factor"), [(0.03, 1.5), (0.01, 1.0), (0.001, 0.5)])
def test_the_kl_coefficient_seeks_its_target(kl: float, factor: float) -> None:
    config = PPOConfig().training(kl_target=0.01, kl_coeff=0.2)
    made = learner(config)
    made._update_module_kl_coeff(module_id="default_policy", config=config, kl_loss=kl)
    assert made.curr_kl_coeffs_per_module["default_policy"] == pytest.approx(0.2 * factor)


def test_an_update_moves_the_kl_coefficient_once_and_reports_it() -> None:
    made = learner(PPOConfig().training(kl_target=1e-9, kl_coeff=0.2))
    results = values_of(made.update(rollouts={"default_policy": rows()}, num_epochs=3))
    assert results["default_policy"]["curr_kl_coeff"] == pytest.approx(0.3)
    assert made.get_state()["curr_kl_coeffs_per_module"] == {"default_policy": pytest.approx(0.3)}


def test_entropy_coefficients_follow_their_schedule() -> None:
    made = learner(PPOConfig().training(entropy_coeff=[(0, 0.2), (100, 0.0)]))
    results = made.update(
        rollouts={"default_policy": rows()}, timesteps={"num_env_steps_sampled_lifetime": 50}
    )
    assert values_of(results)["default_policy"]["curr_entropy_coeff"] == pytest.approx(0.1)


def test_a_restored_learner_uses_the_coefficient_of_its_time_step_at_once() -> None:
    config = PPOConfig().training(entropy_coeff=[(0, 1.0), (100, 0.0)], lr=0.01).debugging(seed=1)
    one, other = learner(config), learner(config)
    data, now = {"default_policy": rows()}, {"num_env_steps_sampled_lifetime": 90}
    one.update(rollouts=data, timesteps=now)
    other.set_state(one.get_state())
    for made in (one, other):
        made.update(rollouts=data, timesteps=now)
    assert equal(weights(one), weights(other))


def test_actions_of_masked_rows_cannot_spoil_gradients() -> None:
    """A masked row's "action" may be so likely, or so unlikely, that the ratio of probabilities overflows."""
    made = learner(PPOConfig().training(lr=0.01).debugging(seed=1), spec(use_lstm=True, max_seq_len=4))
    batch = made.batch_from_rollout("default_policy", rows())
    batch["action_logp"][~batch["loss_mask"]] = -1000.0
    made.update(batch={"default_policy": batch})
    assert all(np.isfinite(each).all() for each in weights(made).values())


def test_sequences_have_the_default_length_if_a_dict_of_settings_has_none() -> None:
    made = learner(PPOConfig().debugging(seed=1), spec(use_lstm=True))
    batch = made.batch_from_rollout("default_policy", rows())
    assert batch["obs"].shape[1] == DefaultModelConfig().max_seq_len


def test_without_a_critic_advantages_are_returns() -> None:
    made, data = learner(PPOConfig().training(use_critic=False, gamma=1.0)), rows(segments=1)
    data.segments.terminated[:] = True
    batch = made.batch_from_rollout("default_policy", data)
    returns = np.cumsum(data.columns["rewards"][::-1])[::-1]
    np.testing.assert_allclose(batch["value_targets"].numpy(), returns, rtol=1e-4, atol=1e-5)
    results = values_of(made.update(rollouts={"default_policy": data}))
    assert results["default_policy"]["vf_loss"] == 0


@pytest.mark.parametrize("recurrent", [False, True])
def test_connectors_over_episodes_give_the_same_loss(recurrent: bool) -> None:
    """The default path from columns to batches and the pipeline of connectors are two ways to the same batch."""
    config = PPOConfig().training(lambda_=0.9, gamma=0.9).debugging(seed=1)
    small = spec(use_lstm=True, max_seq_len=5, lstm_cell_size=8) if recurrent else spec()
    columns = learner(config, small)
    pipeline = learner(
        config.copy(copy_frozen=False).training(learner_connector=lambda *_: NextObservations()), small
    )
    data = rows()
    if recurrent:
        initial = columns.module["default_policy"].get_initial_state()
        data.state_in = repeated_states(initial, len(data.segments))
        data.columns["state_out"] = repeated_states(initial, data.rows)
    found = [
        values_of(made.update(rollouts={"default_policy": data}))["default_policy"]
        for made in (columns, pipeline)
    ]
    for name in ("policy_loss", "vf_loss", "entropy", "mean_kl_loss", "total_loss"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-3, abs=1e-4), name


def repeated_states(tree: Any, count: int) -> Any:
    if isinstance(tree, dict):
        return {name: repeated_states(each, count) for name, each in tree.items()}
    return np.repeat(np.asarray(tree)[None], count, axis=0)
