from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.algorithms.impala import IMPALAConfig
from tests.runtime.rllib._core.making import rollout
from tests.runtime.rllib.core.learner.learning import learner, spec, values_of


def rows(seed: int = 0, segments: int = 5) -> Rollout:
    made = rollout(np.random.default_rng(seed), segments, 12)
    made.columns["obs"][:, 0] = 0
    made.final_obs[:, 0] = 0
    return made


def config(**training: Any) -> IMPALAConfig:
    return IMPALAConfig().training(**training).learners(num_learners=0).debugging(seed=1)


def outputs(module: Any, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities and values as NumPy arrays."""
    with torch.no_grad():
        batch = {"obs": torch.from_numpy(obs)}
        logits = module.forward_train(batch)["action_dist_inputs"].double().numpy()
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), module.compute_values(
            batch
        ).double().numpy()


def plain_vtrace(
    settings: Any, data: Rollout, target_logp: np.ndarray, values: np.ndarray, finals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """V-trace as in the paper, one segment and one row after another."""
    targets, advantages = np.zeros(data.rows), np.zeros(data.rows)
    stop = data.rows
    for segment in reversed(range(len(data.segments))):
        start = stop - data.segments.lengths[segment]
        following = target_after = 0.0 if data.segments.terminated[segment] else finals[segment]
        for row in reversed(range(start, stop)):
            rho = np.exp(target_logp[row] - data.columns["action_logp"][row])
            reward = data.columns["rewards"][row]
            delta = min(settings.vtrace_clip_rho_threshold, rho) * (
                reward + settings.gamma * following - values[row]
            )
            targets[row] = values[row] + delta + settings.gamma * min(1.0, rho) * (target_after - following)
            advantages[row] = min(settings.vtrace_clip_pg_rho_threshold, rho) * (
                reward + settings.gamma * target_after - values[row]
            )
            following, target_after = values[row], targets[row]
        stop = start
    return targets, advantages


@pytest.mark.parametrize(
    "training",
    [{}, {"gamma": 0.8, "entropy_coeff": 0.3, "vtrace_clip_rho_threshold": 2.0, "vf_loss_coeff": 0.1}],
)
def test_the_loss_is_that_of_the_plain_implementation(training: dict[str, Any]) -> None:
    settings = config(**training)
    made, data = learner(settings), rows()
    module = made.module["default_policy"]
    logps, values = outputs(module, data.columns["obs"])
    taken = logps[np.arange(data.rows), data.columns["actions"]]
    targets, advantages = plain_vtrace(settings, data, taken, values, outputs(module, data.final_obs)[1])
    entropy = -(np.exp(logps) * logps).sum(-1).mean()
    expected = {
        "mean_pi_loss": -(taken * advantages).mean(),
        "mean_vf_loss": 0.5 * ((values - targets) ** 2).mean(),
        "entropy": entropy,
    }
    expected["pi_loss"] = expected["mean_pi_loss"] * data.rows
    expected["total_loss"] = (
        expected["mean_pi_loss"]
        + settings.vf_loss_coeff * expected["mean_vf_loss"]
        - settings.entropy_coeff * entropy
    )
    found = values_of(made.update(rollouts={"default_policy": data}))["default_policy"]
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert found["num_module_steps_trained"] == data.rows  # final observations are no steps


def test_minibatches_have_whole_segments() -> None:
    made, data = learner(config()), rows(segments=6)
    batch = {"default_policy": made.batch_from_rollout("default_policy", data)}
    seen = []
    for minibatch in made._minibatches(batch, 0, 1, 20, False):
        columns = minibatch["default_policy"]
        assert not columns["loss_mask"][-1]
        seen += columns["obs"][columns["loss_mask"]][:, 1].tolist()
    assert seen[: data.rows] == pytest.approx(data.columns["obs"][:, 1].tolist())


@pytest.mark.parametrize("length", [3, 50])
def test_sequences_of_a_recurrent_module_give_the_targets_of_its_rows(length: int) -> None:
    settings, data = config(), rows(2)
    made = learner(settings, spec(use_lstm=True, max_seq_len=length, lstm_cell_size=8))
    batch = made.batch_from_rollout("default_policy", data)
    mask = batch["loss_mask"]
    assert int(mask.sum()) == data.rows
    rng = np.random.default_rng(0)
    values, logp = (torch.from_numpy(rng.normal(size=mask.shape).astype(np.float32)) for _ in range(2))
    found = made.targets(settings, batch, logp, values)
    # The row after a segment's last one is that of its final observation.
    flat = np.flatnonzero(mask.flatten().numpy())
    last = flat[data.segments.last_rows]
    finals = values.flatten().numpy()[last + 1]
    expected = plain_vtrace(settings, data, logp[mask].numpy(), values[mask].numpy(), finals)
    np.testing.assert_allclose(found.values[mask].numpy(), expected[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.advantages[mask].numpy(), expected[1], rtol=1e-4, atol=1e-4)
    results = values_of(made.update(rollouts={"default_policy": data}))
    assert np.isfinite(results["default_policy"]["total_loss"])
