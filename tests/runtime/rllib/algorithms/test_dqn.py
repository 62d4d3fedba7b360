"""DQN: losses against plain loops, settings, and short trainings."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.rllib.algorithms.dqn import DQN, DQNConfig
from runtime.rllib.algorithms.dqn.dqn import _pop_errors, calculate_rr_weights
from runtime.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from runtime.rllib.algorithms.dqn.torch.losses import cross_entropy, project_distribution
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec
from runtime.rllib.env.multi_agent_env import make_multi_agent
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger
from runtime.rllib.utils.replay_buffers import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines

OBSERVATIONS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gymnasium.spaces.Discrete(4)


def learner(**training: Any) -> DQNTorchLearner:
    """A learner of a small network whose target network differs."""
    config = DQNConfig().training(grad_clip=None, **training).rl_module(model_config={"fcnet_hiddens": [8]})
    config.debugging(seed=3)
    spec = RLModuleSpec(config.get_default_rl_module_spec().module_class, OBSERVATIONS, ACTIONS)
    spec.model_config = config.model_config
    made = DQNTorchLearner(config=config, module_spec=spec)
    made.build()
    with torch.no_grad():
        for _, target in module_of(made).get_target_network_pairs():
            for parameter in target.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def module_of(made: Any) -> Any:
    return made.module["default_policy"].unwrapped()


def batch_of(rows: int, seed: int = 1, **more: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": rng.integers(0, 4, rows),
        "rewards": rng.normal(size=rows).astype(np.float32) * 2,
        "terminateds": rng.random(rows) < 0.3,
        "truncateds": np.zeros(rows, bool),
        **more,
    }


def loss_of(made: DQNTorchLearner, batch: dict[str, Any]) -> float:
    tensors = made._tensors(batch)
    config = made.config.get_config_for_module("default_policy")
    out = made.module["default_policy"].forward_train(tensors)
    arguments = {"module_id": "default_policy", "config": config, "batch": tensors, "fwd_out": out}
    return float(made.compute_loss_for_module(**arguments).detach())


def values(made: DQNTorchLearner, obs: np.ndarray, target: bool = False) -> np.ndarray:
    module = module_of(made)
    with torch.no_grad():
        out = (module.forward_target if target else module.compute_q_values)({"obs": torch.from_numpy(obs)})
    return out["qf_preds"].numpy().astype(float)


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_the_loss_is_that_of_a_plain_loop(double_q: bool, dueling: bool, loss: str) -> None:
    made = learner(double_q=double_q, dueling=dueling, td_error_loss_fn=loss, gamma=0.9)
    rng = np.random.default_rng(2)
    batch = batch_of(32, n_step=rng.integers(1, 4, 32), weights=rng.random(32).astype(np.float32))
    online, following, target = (
        values(made, batch["obs"]),
        values(made, batch["new_obs"]),
        values(made, batch["new_obs"], target=True),
    )
    total, errors = 0.0, []
    for i in range(32):
        best = int(np.argmax(following[i] if double_q else target[i]))
        goal = batch["rewards"][i]
        if not batch["terminateds"][i]:
            goal += 0.9 ** batch["n_step"][i] * target[i][best]
        error = online[i][batch["actions"][i]] - goal
        errors.append(abs(error))
        total += batch["weights"][i] * (huber(error) if loss == "huber" else error**2)
    assert loss_of(made, batch) == pytest.approx(total / 32, rel=1e-4)
    assert np.allclose(made.td_errors["default_policy"], errors, atol=1e-4)


def projected(probs: np.ndarray, reward: float, discount: float, low: float, high: float) -> np.ndarray:
    count = len(probs)
    step = (high - low) / (count - 1)
    result = np.zeros(count)
    for j, probability in enumerate(probs):
        place = (min(max(reward + discount * (low + j * step), low), high) - low) / step
        below = min(math.floor(place), count - 1)
        share = place - below
        result[below] += probability * (1 - share)
        if share > 0:
            result[min(below + 1, count - 1)] += probability * share
    return result


@settings(max_examples=50)
@given(
    count=st.integers(2, 12),
    reward=st.floats(-8, 8, width=32),
    n=st.integers(1, 5),
    terminated=st.booleans(),
    seed=st.integers(0, 999),
)
def test_distributions_are_projected_as_by_a_plain_loop(
    count: int, reward: float, n: int, terminated: bool, seed: int
) -> None:
    probs = np.random.default_rng(seed).dirichlet(np.ones(count))
    result = project_distribution(
        torch.tensor(probs[None], dtype=torch.float32),
        torch.tensor([reward]),
        torch.tensor([terminated]),
        0.9,
        torch.tensor([n]),
        -3.0,
        5.0,
    )[0]
    assert float(result.sum()) == pytest.approx(1, abs=1e-5)
    expected = projected(probs, reward, 0.0 if terminated else 0.9**n, -3.0, 5.0)
    # At an atom, rounding may put mass on either side: compare the cumulated masses where they are not at a step.
    atoms = np.linspace(-3, 5, count)
    assert float((result * torch.from_numpy(atoms)).sum()) == pytest.approx(
        (expected * atoms).sum(), abs=1e-3
    )
    assert np.allclose(result.numpy(), expected, atol=1e-3)


@pytest.mark.parametrize("dueling", [True, False])
def test_the_loss_of_distributions_is_that_of_a_plain_loop(dueling: bool) -> None:
    made = learner(num_atoms=7, v_min=-3.0, v_max=4.0, dueling=dueling, gamma=0.9)
    module = module_of(made)
    batch = batch_of(16)
    with torch.no_grad():
        now = module.compute_q_values({"obs": torch.from_numpy(batch["obs"])})
        online = module.compute_q_values({"obs": torch.from_numpy(batch["new_obs"])})
        target = module.forward_target({"obs": torch.from_numpy(batch["new_obs"])})
    atoms = np.linspace(-3, 4, 7)
    assert np.allclose(now["qf_preds"], (now["qf_probs"].numpy() * atoms).sum(-1), atol=1e-5)
    total = 0.0
    for i in range(16):
        best = int(online["qf_preds"][i].argmax())
        discount = 0.0 if batch["terminateds"][i] else 0.9
        goal = projected(target["qf_probs"][i, best].numpy(), batch["rewards"][i], discount, -3.0, 4.0)
        log_probs = now["qf_logits"][i, batch["actions"][i]].log_softmax(-1).numpy()
        total -= (goal * log_probs).sum()
    assert loss_of(made, batch) == pytest.approx(total / 16, rel=1e-4)
    logits, goal = torch.randn(5, 7), torch.rand(5, 7).softmax(-1)
    assert torch.allclose(
        cross_entropy(logits, goal), torch.nn.CrossEntropyLoss(reduction="none")(logits, goal)
    )


def test_the_loss_of_sequences_is_that_of_their_valid_steps() -> None:
    config = DQNConfig().training(burn_in_len=1, double_q=True, gamma=0.9, grad_clip=None)
    config.rl_module(
        model_config={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}
    )
    spec = RLModuleSpec(config.get_default_rl_module_spec().module_class, OBSERVATIONS, ACTIONS)
    spec.model_config = config.model_config
    made = DQNTorchLearner(config=config, module_spec=spec)
    made.build()
    module = module_of(made)
    assert module.is_stateful()
    rng = np.random.default_rng(1)
    obs = rng.normal(size=(3, 6, 3)).astype(np.float32)
    lengths = [5, 3, 2]
    flat = batch_of(15)
    batch = {
        name: flat[name].reshape(3, 5, *flat[name].shape[1:])
        for name in ("actions", "rewards", "terminateds")
    }
    batch |= {
        "obs": obs[:, :5],
        "new_obs": obs[:, 1:],
        "loss_mask": np.arange(5)[None] < np.array(lengths)[:, None],
        "state_in": {name: rng.normal(size=(3, 1, 6)).astype(np.float32) for name in ("h", "c")},
    }
    total, count = 0.0, 0
    with torch.no_grad():
        for i, length in enumerate(lengths):
            state = {name: torch.from_numpy(leaf[i : i + 1]) for name, leaf in batch["state_in"].items()}
            inputs = {"obs": torch.from_numpy(obs[i : i + 1, : length + 1]), "state_in": state}
            online = module.compute_q_values(inputs)["qf_preds"][0].numpy()
            target = module.forward_target(inputs)["qf_preds"][0].numpy()
            for t in range(1, length):
                goal = batch["rewards"][i, t]
                if not batch["terminateds"][i, t]:
                    goal += 0.9 * target[t + 1][int(online[t + 1].argmax())]
                total += huber(online[t][batch["actions"][i, t]] - goal)
                count += 1
    tensors = made._tensors(batch)
    out = made.module["default_policy"].forward_train(tensors)
    loss = made.compute_loss_for_module(
        module_id="default_policy", config=made.config, batch=tensors, fwd_out=out
    )
    assert loss.item() == pytest.approx(total / count, rel=1e-4)


def test_targets_move_when_they_are_due() -> None:
    made = learner(target_network_update_freq=100, tau=0.25)
    (main, target), *_ = module_of(made).get_target_network_pairs()
    main_weight, target_weight = next(main.parameters()), next(target.parameters())
    before = target_weight.clone()
    steps = "num_env_steps_sampled_lifetime"
    results = made.update(batch={"default_policy": batch_of(8)}, timesteps={steps: 99})
    assert torch.equal(target_weight, before)
    made.update(batch={"default_policy": batch_of(8)}, timesteps={steps: 130})
    assert torch.allclose(target_weight, 0.75 * before + 0.25 * main_weight, atol=1e-6)
    moved = target_weight.clone()
    made.update_once({"default_policy": batch_of(8)}, {steps: 229})
    assert torch.equal(target_weight, moved)
    assert {"qf_loss", "qf_mean", "qf_max", "qf_min", "td_error_mean", "total_loss"} <= results[
        "default_policy"
    ].keys()
    twin = learner()
    twin.set_state(made.get_state())
    assert twin.last_update_ts_by_mid == {"default_policy": 130}
    assert torch.equal(next(module_of(twin).get_target_network_pairs()[0][1].parameters()), target_weight)


def test_rollouts_are_trained_on_as_transitions() -> None:
    from runtime.rllib._core.rollout import Rollout, Segments

    made = learner()
    columns = batch_of(6)
    rollout = Rollout(
        {name: columns[name] for name in ("obs", "actions", "rewards")},
        Segments(
            np.array([4, 2]), np.array([True, False]), np.array([False, True]), ["a", "b"], np.array([0, 0])
        ),
        np.ones((2, 3), np.float32),
    )
    batch = made.batch_from_rollout("default_policy", rollout)
    assert batch["terminateds"].tolist() == [False, False, False, True, False, False]
    assert torch.equal(batch["new_obs"][0], batch["obs"][1])
    assert (batch["new_obs"][[3, 5]] == 1).all()
    before = next(module_of(made).parameters()).clone()
    made.update(rollouts={"default_policy": rollout})
    assert not torch.equal(next(module_of(made).parameters()), before)


def test_settings_have_rllibs_defaults_and_merge() -> None:
    config = DQNConfig()
    assert (config.lr, config.train_batch_size, config.n_step, config.target_network_update_freq) == (
        5e-4,
        32,
        1,
        500,
    )
    config.training(replay_buffer_config={"capacity": 10})
    assert config.replay_buffer_config["type"] == "PrioritizedEpisodeReplayBuffer"
    assert config.replay_buffer_config["alpha"] == 0.6
    config.training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 20})
    assert config.replay_buffer_config == {"type": "EpisodeReplayBuffer", "capacity": 20}
    assert config.get_rollout_fragment_length() == 1
    assert config.training(n_step=(2, 5)).get_rollout_fragment_length() == 5
    assert config.env_runners(rollout_fragment_length=4).get_rollout_fragment_length() == 4


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"noisy": True}, "noisy=True belongs to the old API stack"),
        ({"td_error_loss_fn": "l1"}, "'huber' or 'mse', not 'l1'"),
        ({"num_atoms": 5, "v_min": 1.0, "v_max": 1.0}, "v_min below v_max"),
        ({"n_step": 0}, "n_step must be"),
        ({"n_step": (3, 2)}, "n_step must be"),
        ({"tau": 0.0}, "tau must be"),
        ({"epsilon": [(0, 1.0)]}, "epsilon"),
        ({"training_intensity": -1}, "training_intensity must be"),
        ({"burn_in_len": 20}, "burn_in_len \\(20\\) must be less than max_seq_len \\(10\\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(training: dict[str, Any], message: str) -> None:
    config = DQNConfig().environment("CartPole-v1").rl_module(model_config={"max_seq_len": 10})
    with pytest.raises(ValueError, match=message):
        config.training(**training).validate()


@pytest.mark.parametrize(
    ("intensity", "rounds"), [(None, (1, 1)), (8, (1, 1)), (32, (1, 4)), (2, (4, 1)), (8.5, (1, 1))]
)
def test_intensity_is_the_share_of_updates(intensity: float | None, rounds: tuple[int, int]) -> None:
    config = DQNConfig().training(training_intensity=intensity).env_runners(rollout_fragment_length=4)
    assert calculate_rr_weights(config) == rounds


def small(env: Any = "CartPole-v1", **training: Any) -> DQNConfig:
    return (
        DQNConfig()
        .environment(env)
        .env_runners(num_env_runners=0, rollout_fragment_length=4)
        .training(num_steps_sampled_before_learning_starts=50, train_batch_size=16, **training)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .reporting(min_sample_timesteps_per_iteration=100)
        .debugging(seed=1)
    )


def weights_of(algo: Any, module_id: str = "default_policy") -> np.ndarray:
    return np.array(next(iter(algo.get_weights()[module_id].values())))


def test_a_short_training_reports_saves_and_goes_on(tmp_path: pathlib.Path) -> None:
    algo = small(
        n_step=3, num_atoms=5, target_network_update_freq=40, store_buffer_in_checkpoints=True
    ).build_algo()
    before = weights_of(algo)
    result = algo.train()
    assert result["env_runners"]["num_env_steps_sampled_lifetime"] == 100
    learned = result["learners"]["default_policy"]
    assert {
        "qf_loss",
        "td_error_mean",
        "num_target_updates",
        "default_optimizer_learning_rate",
    } <= learned.keys()
    # From step 52 on each round of four steps has an update of 16 rows.
    assert learned["num_module_steps_trained"] == 13 * 16
    assert result["replay_buffer"]["num_env_steps_added_lifetime"] == 100
    assert result["timers"]["learner_update_timer"] > 0
    assert not np.array_equal(weights_of(algo), before)
    # The runner acts with the weights that were learned.
    acting = algo.env_runner.module.get_state()
    assert all(
        np.array_equal(acting[name], value)
        for name, value in algo.get_weights()["default_policy"].items()
        if name in acting
    )
    algo.save_to_path(tmp_path)
    again = DQN.from_checkpoint(tmp_path)
    assert np.array_equal(weights_of(again), weights_of(algo))
    assert len(again.local_replay_buffer) == 100
    assert again.train()["env_runners"]["num_env_steps_sampled_lifetime"] == 200
    acting = again.env_runner.module.get_state()
    assert all(
        np.array_equal(acting[name], value)
        for name, value in again.get_weights()["default_policy"].items()
        if name in acting
    )
    for each in (algo, again):
        each.stop()


@pytest.mark.parametrize("has_connector", [False, True])
def test_priorities_follow_the_errors(has_connector: bool) -> None:
    config = small()
    if has_connector:
        config.training(learner_connector=lambda observation_space, action_space: [])
    algo = config.build_algo()
    algo.train()
    buffer = algo.local_replay_buffer
    assert isinstance(buffer, PrioritizedEpisodeReplayBuffer)
    rows = buffer._drawn["default_policy"]
    ring = buffer.ring("default_policy")
    errors = algo.learner_group._learner.td_errors["default_policy"].numpy()
    last = {int(row): error for row, error in zip(rows, errors, strict=True)}
    weights = ring._tree.get(np.array(list(last)) % ring.slots)
    assert np.allclose(weights, np.maximum(np.array(list(last.values()), float), 1e-6) ** 0.6)
    algo.stop()


def test_errors_of_several_learners_are_joined_in_the_order_of_the_batch() -> None:
    results = []
    for shard in ([1.0, 2.0], [3.0]):
        logger = MetricsLogger()
        logger.log_value(("p0", "td_error"), torch.tensor(shard), reduce="item_series")
        logger.log_value(("p0", "qf_loss"), 1.0)
        logger.log_value(("__all_modules__", "num_env_steps_trained"), 2)
        results.append(logger.reduce())
    errors = _pop_errors(results)
    assert {module_id: each.tolist() for module_id, each in errors.items()} == {"p0": [1.0, 2.0, 3.0]}
    assert all(result["p0"].keys() == {"qf_loss"} for result in results)


def test_a_recurrent_module_learns_from_sequences() -> None:
    config = small(burn_in_len=2, double_q=True, dueling=False)
    config.rl_module(
        model_config={"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 6}
    )
    algo = config.build_algo()
    before = weights_of(algo)
    algo.train()
    ring = algo.local_replay_buffer.ring("default_policy")
    assert ring.draw_sequences(3, 6).columns["state_in"]["h"].any()
    assert not np.array_equal(weights_of(algo), before)
    algo.stop()


class EpisodesOnly:
    """A user's buffer that knows nothing but episodes."""

    def __init__(self, capacity: int) -> None:
        self.buffer = EpisodeReplayBuffer(capacity, batch_length_T=1, seed=1)

    def add(self, episodes: list[Any]) -> None:
        self.buffer.add(episodes)

    def sample(self, num_items: int, **kwargs: Any) -> Any:
        assert kwargs.pop("sample_episodes")
        return self.buffer.sample(num_items, sample_episodes=True, **kwargs)


def test_a_buffer_of_ones_own_gets_and_gives_episodes() -> None:
    algo = small(replay_buffer_config={"type": EpisodesOnly, "capacity": 1000}, n_step=2).build_algo()
    before = weights_of(algo)
    result = algo.train()
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == 13 * 16
    assert not np.array_equal(weights_of(algo), before)
    algo.stop()


def test_each_module_learns_from_its_own_agents() -> None:
    config = small(
        make_multi_agent("CartPole-v1"),
        replay_buffer_config={"type": "MultiAgentEpisodeReplayBuffer", "capacity": 500},
    )
    config.environment(env_config={"num_agents": 2})
    config.multi_agent(
        policies={"p0", "p1"},
        policy_mapping_fn=lambda agent, *args, **kwargs: f"p{agent}",
        policies_to_train=["p1"],
    )
    algo = config.build_algo()
    before = {module_id: weights_of(algo, module_id) for module_id in ("p0", "p1")}
    result = algo.train()
    assert set(algo.local_replay_buffer.get_module_ids()) == {"p0", "p1"}
    assert "qf_loss" not in result["learners"].get("p0", {})
    assert "qf_loss" in result["learners"]["p1"]
    assert np.array_equal(weights_of(algo, "p0"), before["p0"])
    assert not np.array_equal(weights_of(algo, "p1"), before["p1"])
    algo.stop()


def test_a_module_may_be_added_while_training_goes_on() -> None:
    config = small(
        make_multi_agent("CartPole-v1"),
        replay_buffer_config={"type": "MultiAgentEpisodeReplayBuffer", "capacity": 500},
    )
    config.environment(env_config={"num_agents": 2})
    config.multi_agent(policies={"p0"}, policy_mapping_fn=lambda agent, *args, **kwargs: "p0")
    algo = config.build_algo()
    algo.train()
    spec = RLModuleSpec.from_module(algo.get_module("p0"))
    algo.add_module(
        "p1", spec, new_agent_to_module_mapping_fn=lambda agent, *args, **kwargs: f"p{int(agent == 1)}"
    )
    before = weights_of(algo, "p1")
    algo.train()
    result = algo.train()
    assert result["learners"]["p1"]["num_module_steps_trained"] > 0
    assert not np.array_equal(weights_of(algo, "p1"), before)
    acting = algo.env_runner.module["p1"].get_state()
    learned = algo.get_weights()["p1"]
    assert all(np.array_equal(value, learned[name]) for name, value in acting.items())
    algo.stop()


def test_only_discrete_actions_are_possible() -> None:
    with pytest.raises(Exception, match="DQN needs a Discrete action space"):
        small("Pendulum-v1").build_algo()
