from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.vtrace import vtrace
from runtime.rllib.algorithms.appo import APPOConfig
from tests.runtime.rllib._core.making import rollout
from tests.runtime.rllib.core.learner.learning import equal, learner, spec, values_of


def rows(seed: int = 0) -> Rollout:
    made = rollout(np.random.default_rng(seed), 5, 12)
    made.columns["obs"][:, 0] = 0
    made.final_obs[:, 0] = 0
    return made


def config(**training: Any) -> APPOConfig:
    settings = {"lr": 0.01, "train_batch_size_per_learner": 20, **training}
    return APPOConfig().training(**settings).learners(num_learners=0).debugging(seed=1)


def made_by(settings: APPOConfig) -> Any:
    return learner(settings, spec(settings.get_default_rl_module_spec().module_class))


def normalised(logits: Any) -> np.ndarray:
    logits = logits.detach().double().numpy()
    result: np.ndarray = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return result


@pytest.mark.parametrize("training", [{}, {"use_kl_loss": True, "kl_coeff": 0.5, "clip_param": 0.1}])
def test_the_loss_is_that_of_the_plain_implementation(training: dict[str, Any]) -> None:
    settings = config(use_circular_buffer=False, **training)
    made, data = made_by(settings), rows()
    module = made.module["default_policy"].unwrapped()
    with torch.no_grad():  # the target network is another policy
        for param in module._old_pi.parameters():
            param.add_(torch.linspace(-0.5, 0.5, param.numel()).view_as(param))
    batch = {"obs": torch.from_numpy(data.columns["obs"])}
    with torch.no_grad():
        new = normalised(module.forward_train(batch)["action_dist_inputs"])
        old = normalised(module.forward_target(batch)["target_network_action_dist_inputs"])
        values = module.compute_values(batch).double().numpy()
        finals = module.compute_values({"obs": torch.from_numpy(data.final_obs)}).double().numpy()
    index = np.arange(data.rows), data.columns["actions"]
    behavior = data.columns["action_logp"].astype(np.float64)
    last = np.zeros(data.rows, bool)
    last[data.segments.last_rows] = True
    following = np.append(values[1:], 0)
    following[last] = finals
    targets, advantages = vtrace(
        old[index] - behavior,
        data.columns["rewards"],
        values,
        following,
        settings.gamma * ~data.terminateds(),
        last,
        longest=data.rows,
    )
    total = gain = 0.0
    weights = []
    for row in range(data.rows):
        weight = min(np.exp(behavior[row] - old[index][row]), settings.target_worker_clipping)
        ratio = weight * np.exp(new[index][row] - behavior[row])
        bounded = min(max(ratio, 1 - settings.clip_param), 1 + settings.clip_param)
        gain += min(ratio * advantages[row], bounded * advantages[row]) / data.rows
        weights.append(weight)
    vf_loss = 0.5 * ((values - targets) ** 2).mean()
    entropy = -(np.exp(new) * new).sum(-1).mean()
    kl = (np.exp(old) * (old - new)).sum(-1).mean()
    total = -gain + settings.vf_loss_coeff * vf_loss - settings.entropy_coeff * entropy
    if settings.use_kl_loss:
        total += settings.kl_coeff * kl
    expected = {
        "policy_loss": -gain,
        "vf_loss": vf_loss,
        "entropy": entropy,
        "mean_kl_loss": kl if settings.use_kl_loss else 0.0,
        "mean_IS": np.mean(weights),
        "var_IS": np.var(weights),
        "total_loss": total,
    }
    found = values_of(made.update(rollouts={"default_policy": data}))["default_policy"]
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_each_batch_is_used_as_often_as_the_buffer_allows() -> None:
    made = made_by(config(circular_buffer_num_batches=4, circular_buffer_iterations_per_batch=3))
    data = rows()
    uses = []
    for _ in range(8):
        result = values_of(made.update(rollouts={"default_policy": data}))["default_policy"]
        uses.append(result["num_module_steps_trained"] / data.rows)
    assert uses == [1] * 3 + [3] * 5  # a reserve first, so that the uses of a batch do not follow one another
    assert sum(made._trained.values()) == 8 * data.rows  # what came, however often it was used
    assert len(made._buffer) > 1


def test_actions_of_masked_rows_cannot_spoil_gradients() -> None:
    made = made_by(config())
    batch = made.batch_from_rollout("default_policy", rows())
    batch["action_logp"][~batch["loss_mask"]] = -1000.0
    made.update(batch={"default_policy": batch})
    for param in made.module["default_policy"].parameters():
        assert torch.isfinite(param).all()


def test_target_networks_follow_when_their_time_has_come() -> None:
    """After 2 * (1 batch kept * 2 uses) * 20 rows = 80 rows that came, and all the way with tau = 1.

    Rows that the buffer gives again do not bring the time nearer.
    """
    made = made_by(
        config(
            target_network_update_freq=2,
            circular_buffer_num_batches=1,
            circular_buffer_iterations_per_batch=2,
        )
    )
    module = made.module["default_policy"].unwrapped()

    def target_is_behind() -> bool:
        return not equal(module.pi.state_dict(), module._old_pi.state_dict())

    assert not target_is_behind()
    came, last, behind, expected = 0, 0, [], []
    for seed in range(12):
        data = rows(seed)
        came += data.rows
        if came - last >= 80:
            last = came
        result = values_of(made.update(rollouts={"default_policy": data}))["default_policy"]
        assert result["last_target_update_ts"] == last
        behind.append(target_is_behind())
        expected.append(came > last)
    assert behind == expected
    assert set(behind) == {True, False}
    assert not any(param.requires_grad for param in module._old_encoder.parameters())


def test_progress_is_part_of_the_state() -> None:
    one = made_by(config(use_kl_loss=True))
    for seed in range(3):
        one.update(rollouts={"default_policy": rows(seed)})
    other = made_by(config(use_kl_loss=True))
    other.set_state(one.get_state())
    assert other._trained == one._trained
    assert other.curr_kl_coeffs_per_module == one.curr_kl_coeffs_per_module
    assert equal(
        other.module["default_policy"].unwrapped()._old_pi.state_dict(),
        one.module["default_policy"].unwrapped()._old_pi.state_dict(),
    )


def test_modules_come_with_a_target_network_and_leave_no_batches() -> None:
    made = made_by(config())
    made.add_module(module_id="new", module_spec=spec(config().get_default_rl_module_spec().module_class))
    made.update(rollouts={"new": rows(), "default_policy": rows(1)})
    made.remove_module("new")
    for seed in range(3):
        results = made.update(rollouts={"default_policy": rows(seed)})
    assert np.isfinite(values_of(results)["default_policy"]["total_loss"])
