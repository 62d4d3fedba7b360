"""SAC: losses against plain loops, settings, and short trainings."""

from __future__ import annotations

import copy
import math
import pathlib
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from runtime.rllib.algorithms.sac import SAC, SACConfig
from runtime.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines

OBSERVATIONS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
DISCRETE = gymnasium.spaces.Discrete(4)
POLICY_PARTS = ("policy_loss", "qf_loss", "qf_twin_loss", "alpha_loss")


def learner(space: Any, **training: Any) -> SACTorchLearner:
    config = SACConfig().training(initial_alpha=0.5, gamma=0.9, **training)
    config.rl_module(model_config={"fcnet_hiddens": [8]}).debugging(seed=3)
    spec = RLModuleSpec(config.get_default_rl_module_spec().module_class, OBSERVATIONS, space)
    spec.model_config = config.model_config
    made = SACTorchLearner(config=config, module_spec=spec)
    made.build()
    return made


def module_of(made: Any) -> Any:
    return made.module["default_policy"].unwrapped()


def batch_of(rows: int, space: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    actions = (
        rng.integers(0, 4, rows) if space is DISCRETE else rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
    )
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": actions,
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminateds": rng.random(rows) < 0.3,
        "n_step": rng.integers(1, 4, rows),
        "weights": rng.random(rows).astype(np.float32),
    }


def losses_of(
    made: SACTorchLearner, batch: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, float], dict[str, Any]]:
    """The total, what is reported, and what the module gave."""
    tensors = made._tensors(batch)
    out = made.module["default_policy"].forward_train(tensors)
    arguments = {"module_id": "default_policy", "config": made.config, "batch": tensors, "fwd_out": out}
    total = made.compute_loss_for_module(**arguments)
    report = made._report("default_policy", made.config, made._latest["default_policy"])
    return total, {name: float(value) for name, value in report.items()}, out


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


@pytest.mark.parametrize("twin_q", [True, False])
def test_the_losses_of_box_actions_are_those_of_a_plain_loop(twin_q: bool) -> None:
    made = learner(BOX, twin_q=twin_q)
    batch = batch_of(32, BOX)
    total, report, out = losses_of(made, batch)
    q_names = ["qf_preds", "qf_twin_preds"][: 1 + twin_q]
    q = [out[name].detach().numpy() for name in q_names]
    next_q, next_logp = out["q_target_next"].numpy(), out["logp_next_resampled"].numpy()
    logp, q_now = out["logp_resampled"].detach().numpy(), out["q_curr"].detach().numpy()
    q_losses, policy, alpha, errors = [0.0] * len(q), 0.0, 0.0, []
    for i in range(32):
        goal = batch["rewards"][i]
        if not batch["terminateds"][i]:
            goal += 0.9 ** batch["n_step"][i] * (next_q[i] - 0.5 * next_logp[i])
        for k, each in enumerate(q):
            q_losses[k] += batch["weights"][i] * huber(each[i] - goal) / 32
        errors.append(np.mean([abs(each[i] - goal) for each in q]))
        policy += (0.5 * logp[i] - q_now[i]) / 32
        alpha -= math.log(0.5) * (logp[i] - 2) / 32  # the target entropy is -2
    assert report["qf_loss"] == pytest.approx(q_losses[0], rel=1e-4)
    assert report["policy_loss"] == pytest.approx(policy, rel=1e-3, abs=1e-5)
    assert report["alpha_loss"] == pytest.approx(alpha, rel=1e-4)
    assert ("qf_twin_loss" in report) == twin_q
    assert float(total.detach()) == pytest.approx(sum(q_losses) + policy + alpha, rel=1e-4)
    assert np.allclose(made.td_errors["default_policy"], errors, atol=1e-4)
    assert report["target_entropy"] == -2


def test_the_losses_of_discrete_actions_are_those_of_a_plain_loop() -> None:
    made = learner(DISCRETE)
    batch = batch_of(32, DISCRETE)
    total, report, _ = losses_of(made, batch)
    module = module_of(made)
    with torch.no_grad():
        obs, new_obs = torch.from_numpy(batch["obs"]), torch.from_numpy(batch["new_obs"])
        logits, next_logits = module._policy(obs).numpy(), module._policy(new_obs).numpy()
        q = [each.numpy() for each in module._q_values(module.q_networks(), {"obs": obs})]
        target = [each.numpy() for each in module._q_values(module.q_networks("target_"), {"obs": new_obs})]
    q_losses, policy, alpha = [0.0, 0.0], 0.0, 0.0
    for i in range(32):
        probs, next_probs = (np.exp(each[i]) / np.exp(each[i]).sum() for each in (logits, next_logits))
        smallest = np.minimum(target[0][i], target[1][i])
        goal = batch["rewards"][i]
        if not batch["terminateds"][i]:
            goal += 0.9 ** batch["n_step"][i] * (next_probs * (smallest - 0.5 * np.log(next_probs))).sum()
        for k in range(2):
            q_losses[k] += batch["weights"][i] * huber(q[k][i][batch["actions"][i]] - goal) / 32
        policy -= (probs * (np.minimum(q[0][i], q[1][i]) - 0.5 * np.log(probs))).sum() / 32
        alpha += math.log(0.5) * (-(probs * np.log(probs)).sum() - 0.98 * math.log(4)) / 32
    assert report["qf_loss"] == pytest.approx(q_losses[0], rel=1e-4)
    assert report["qf_twin_loss"] == pytest.approx(q_losses[1], rel=1e-4)
    assert report["policy_loss"] == pytest.approx(policy, rel=1e-3, abs=1e-5)
    assert report["alpha_loss"] == pytest.approx(alpha, rel=1e-3, abs=1e-5)
    assert float(total.detach()) == pytest.approx(sum(q_losses) + policy + alpha, rel=1e-4)


@pytest.mark.parametrize("space", [BOX, DISCRETE])
def test_padded_steps_do_not_count(space: Any) -> None:
    made = learner(space)
    batch = batch_of(6, space)
    torch.manual_seed(7)
    _, expected, _ = losses_of(made, {name: column[:4] for name, column in batch.items()})
    # Other shapes draw other actions, so of Box actions only the size of the losses is checked.
    batch["loss_mask"] = np.arange(6) < 4
    batch["rewards"][4:] = 1e6
    torch.manual_seed(7)
    total, report, _ = losses_of(made, batch)
    assert total.isfinite()
    assert report["qf_loss"] < 1e3
    if space is DISCRETE:
        for name in POLICY_PARTS:
            assert report[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("space", [BOX, DISCRETE])
def test_each_optimizer_gets_the_gradients_of_its_own_loss(space: Any) -> None:
    made = learner(space)
    batch = batch_of(16, space)
    torch.manual_seed(5)
    total, *_ = losses_of(made, batch)
    gradients = made.compute_gradients({"default_policy": total})
    module = module_of(made)
    # The policy's loss alone, with frozen Q networks, has the same gradients for the policy and none for them.
    torch.manual_seed(5)
    out = made.module["default_policy"].forward_train(made._tensors(batch))
    if space is BOX:
        policy = (0.5 * out["logp_resampled"] - out["q_curr"]).mean()
    else:
        q = torch.minimum(out["qf_preds"], out["qf_twin_preds"]).detach()
        policy = -(out["action_probs"] * (q - 0.5 * out["action_log_probs"])).sum(-1).mean()
    parameters = [*module.pi_encoder.parameters(), *module.pi.parameters()]
    for parameter, gradient in zip(parameters, torch.autograd.grad(policy, parameters), strict=True):
        assert torch.allclose(gradients[parameter], gradient, atol=1e-6)
    (log_alpha,) = [made.curr_log_alpha["default_policy"]]
    entropy = (
        -out["logp_resampled"] if space is BOX else -(out["action_probs"] * out["action_log_probs"]).sum(-1)
    )
    expected = float(entropy.detach().mean()) - made.target_entropy["default_policy"]
    assert float(gradients[log_alpha]) == pytest.approx(expected, rel=1e-4)
    names = [name for name, _ in made.get_optimizers_for_module("default_policy")]
    assert names == ["qf", "qf_twin", "policy", "alpha"]
    assert all(parameter.requires_grad for parameter in module.qf.parameters())


def test_the_temperature_is_part_of_the_state() -> None:
    made, twin = learner(BOX, alpha_lr=0.1), learner(BOX)
    made.update(batch={"default_policy": batch_of(8, BOX)})
    alpha = made.curr_log_alpha["default_policy"].item()
    assert alpha != pytest.approx(math.log(0.5), abs=0.05)
    twin.set_state(made.get_state())
    assert twin.curr_log_alpha["default_policy"].item() == alpha


def test_modules_to_act_with_have_the_policy_alone() -> None:
    config = SACConfig().rl_module(model_config={"fcnet_hiddens": [8]})
    spec = RLModuleSpec(
        config.get_default_rl_module_spec().module_class, OBSERVATIONS, BOX, inference_only=True
    )
    spec.model_config = config.model_config
    acting = spec.build()
    assert {name.split(".")[0] for name, _ in acting.named_parameters()} == {"pi_encoder", "pi"}
    made = learner(BOX)
    acting.set_state(made.module["default_policy"].get_state(inference_only=True))
    out = acting.forward_inference({"obs": torch.zeros(2, 3)})
    assert torch.equal(out["action_dist_inputs"], module_of(made)._policy(torch.zeros(2, 3)))


def test_images_go_through_convolutions_before_they_meet_the_action() -> None:
    images = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    config = SACConfig().rl_module(
        model_config={"fcnet_hiddens": [8], "conv_filters": [[4, 4, 2], [4, 4, 2]]}
    )
    spec = RLModuleSpec(
        config.get_default_rl_module_spec().module_class, images, BOX, model_config=config.model_config
    )
    module = spec.build()
    module.make_target_networks()
    obs = torch.randint(0, 255, (5, 8, 8, 3), dtype=torch.uint8)
    out = module.forward_train({"obs": obs, "new_obs": obs, "actions": torch.zeros(5, 2)})
    assert out["qf_preds"].shape == out["q_curr"].shape == (5,)


def test_recurrent_networks_are_refused() -> None:
    config = SACConfig().rl_module(model_config={"use_lstm": True})
    spec = config.get_default_rl_module_spec()
    with pytest.raises(ValueError, match="leave use_lstm False"):
        RLModuleSpec(spec.module_class, OBSERVATIONS, BOX, model_config=config.model_config).build()


def test_a_critic_that_was_replaced_gets_no_gradient_from_the_policy_either() -> None:
    module = module_of(learner(BOX))
    batch = {"obs": torch.zeros(4, 3), "new_obs": torch.zeros(4, 3), "actions": torch.zeros(4, 2)}
    module.forward_train(batch)
    module.qf = copy.deepcopy(module.qf)
    module.forward_train(batch)["q_curr"].sum().backward()
    critics = [each for pair in module.q_networks() for network in pair for each in network.parameters()]
    assert all(each.grad is None and each.requires_grad for each in critics)
    assert all(each.grad is not None for each in module.pi.parameters())


@pytest.mark.parametrize(
    ("training", "message"),
    [({"lr": 1e-3}, "no single learning rate"), ({"initial_alpha": 0.0}, "initial_alpha must be positive")],
)
def test_settings_that_make_no_sense_are_refused(training: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SACConfig().environment("Pendulum-v1").training(**training).validate()


def test_only_box_and_discrete_actions_are_possible() -> None:
    with pytest.raises(Exception, match="SAC needs a Box or Discrete action space"):
        learner(gymnasium.spaces.MultiDiscrete([2, 2]))


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_short_training_reports_saves_and_goes_on(env: str, tmp_path: pathlib.Path) -> None:
    config = (
        SACConfig()
        .environment(env)
        .env_runners(num_env_runners=0)
        .training(num_steps_sampled_before_learning_starts=20, train_batch_size_per_learner=16, n_step=2)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=None)
        .debugging(seed=1)
    )
    algo = config.build_algo()
    result = algo.train()
    learned = result["learners"]["default_policy"]
    assert set(POLICY_PARTS) <= learned.keys()
    # The fragments have two steps: updates after 20, 22, ..., 40.
    assert learned["num_module_steps_trained"] == 11 * 16
    assert learned["num_target_updates"] == 11
    assert all(math.isfinite(learned[name]) for name in POLICY_PARTS)
    algo.save_to_path(tmp_path)
    again = SAC.from_checkpoint(tmp_path)
    for name, value in algo.get_weights()["default_policy"].items():
        assert np.array_equal(again.get_weights()["default_policy"][name], value)
    alphas = [each.learner_group._learner.curr_log_alpha["default_policy"].item() for each in (algo, again)]
    assert alphas[0] == alphas[1] != 0
    for each in (algo, again):
        each.stop()
