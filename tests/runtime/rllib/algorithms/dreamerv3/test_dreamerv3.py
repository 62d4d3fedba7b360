from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.algorithms.dreamerv3 import DreamerV3Config
from runtime.rllib.algorithms.dreamerv3.sequence_replay import SequenceReplay


def config(**training: Any) -> DreamerV3Config:
    return (
        DreamerV3Config()
        .environment("CartPole-v1")
        .training(
            **{
                "model_size": "nano",
                "training_ratio": 8,
                "batch_size_B": 4,
                "batch_length_T": 8,
                "horizon_H": 3,
                "world_model_lr": 3e-3,
                **training,
            }
        )
        .debugging(seed=1)
    )


def learner(**training: Any) -> Any:
    settings = config(**training)
    spaces = {"default_policy": (gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2))}
    made = settings.get_default_learner_class()(
        config=settings, module_spec=settings.get_multi_rl_module_spec(spaces=spaces, inference_only=False)
    )
    made.build()
    return made


def batch(seed: int = 0) -> dict[str, Any]:
    """Sequences of a world in which action 1 is rewarded."""
    rng = np.random.default_rng(seed)
    replay = SequenceReplay(10_000, rng)
    for episode in range(8):
        actions = rng.integers(2, size=20)
        obs = rng.uniform(-1, 1, (21, 2)).astype(np.float32)
        segments = Segments(
            np.array([20]), np.array([True]), np.array([False]), [str(episode)], np.array([0])
        )
        rewards = actions.astype(np.float32)
        replay.add(Rollout({"obs": obs[:-1], "actions": actions, "rewards": rewards}, segments, obs[-1:]))
    return replay.sample(4, 8)


def test_an_update_trains_each_network_by_its_own_loss() -> None:
    made = learner()
    module = made.module["default_policy"]
    tensors = {name: torch.as_tensor(value) for name, value in batch().items()}
    out = module.forward_train(tensors)
    settings = made.config.get_config_for_module("default_policy")
    report: dict[str, Any] = {}

    def touched(loss: Any) -> set[str]:
        module.zero_grad(set_to_none=True)
        loss.backward(retain_graph=True)
        return {name.split(".")[0] for name, p in module.named_parameters() if p.grad is not None}

    assert touched(made._world_model_loss(module, tensors, out, report)) == {"world_model"}
    loss = made._behavior_loss("default_policy", module, settings, tensors, out, report)
    assert touched(loss) == {"actor", "critic"}
    assert touched(report["ACTOR_L_total"]) == {"actor"}


def test_the_world_model_learns_rewards() -> None:
    made = learner()
    data = batch()
    results = [made.update(batch={"default_policy": dict(data)})["default_policy"] for _ in range(60)]

    def loss(name: str, result: dict[str, Any]) -> float:
        return float(result[f"WORLD_MODEL_L_{name}"].peek())

    assert loss("total", results[-1]) < 0.6 * loss("total", results[0])
    assert loss("reward", results[-1]) < 0.5 * loss("reward", results[0])


def test_the_slow_critic_follows_and_states_come_back() -> None:
    made, other = learner(), learner()
    before = {
        name: value.clone() for name, value in made.module["default_policy"].slow_critic.state_dict().items()
    }
    for _ in range(3):
        made.update(batch={"default_policy": batch()})
    module = made.module["default_policy"]
    moved = module.slow_critic.state_dict()
    for name, value in module.critic.state_dict().items():
        if not torch.equal(value, before[name]):
            assert not torch.equal(moved[name], before[name])
            assert (moved[name] - before[name]).norm() < (value - before[name]).norm()
    other.set_state(made.get_state())
    assert other._return_scales["default_policy"].high == made._return_scales["default_policy"].high
    for name, array in made.module.get_state()["default_policy"].items():
        np.testing.assert_array_equal(other.module.get_state()["default_policy"][name], array)


def test_it_trains_at_the_training_ratio() -> None:
    algo = config().build_algo()
    try:
        results = [algo.train() for _ in range(4)]
    finally:
        algo.stop()
    losses = results[-1]["learners"]["default_policy"]
    assert {"WORLD_MODEL_L_total", "ACTOR_L_total", "CRITIC_L_total"} <= losses.keys()
    assert np.isfinite([float(value) for name, value in losses.items() if "_L_" in name]).all()
    first, last = results[0]["num_env_steps_sampled_lifetime"], results[-1]["num_env_steps_sampled_lifetime"]
    assert last - first == 3 * 4  # a batch of 32 steps is due every 4 env steps


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"model_size": "huge"}, "model_size"),
        ({"train_critic": False}, "train_actor"),
        ({"training_ratio": 0}, "training_ratio"),
    ],
)
def test_settings_that_do_not_fit_are_errors(training: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**training).validate()


def test_changes_of_the_replay_buffer_are_merged() -> None:
    assert config(replay_buffer_config={"capacity": 5}).replay_buffer_config == {
        "type": "EpisodeReplayBuffer",
        "capacity": 5,
    }
