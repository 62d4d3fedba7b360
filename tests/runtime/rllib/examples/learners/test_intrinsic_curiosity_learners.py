from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig
from runtime.rllib.algorithms.dqn import DQNConfig
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.training_data import TrainingData
from runtime.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode
from runtime.rllib.examples.learners.classes.intrinsic_curiosity_learners import (
    ICM_MODULE_ID,
    DQNTorchLearnerWithCuriosity,
    PPOTorchLearnerWithCuriosity,
    intrinsic_rewards,
)
from runtime.rllib.examples.rl_modules.classes.intrinsic_curiosity_model_rlm import IntrinsicCuriosityModel

OBS, ACTIONS = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
SMALL = {
    "feature_dim": 8,
    "feature_net_hiddens": (16,),
    "inverse_net_hiddens": (16,),
    "forward_net_hiddens": (16,),
}


def experience(rows: int = 40, seed: int = 0) -> dict[str, Any]:
    """The action moves the observation; so it can be told from two of them."""
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
    actions = rng.integers(2, size=rows)
    following = obs + np.where(actions[:, None] == 1, 0.5, -0.5).astype(np.float32)
    return {Columns.OBS: obs, Columns.NEXT_OBS: following, Columns.ACTIONS: actions}


def curious(config: AlgorithmConfig, learner_class: type, with_model: bool = True) -> AlgorithmConfig:
    specs = {"default_policy": RLModuleSpec()}
    if with_model:
        specs[ICM_MODULE_ID] = RLModuleSpec(IntrinsicCuriosityModel, learner_only=True, model_config=SMALL)
    return (
        config.training(
            learner_class=learner_class,
            learner_config_dict={"intrinsic_reward_coeff": 0.5},
            train_batch_size=40,
        )
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs),
            algorithm_config_overrides_per_module={ICM_MODULE_ID: AlgorithmConfig.overrides(lr=0.01)},
        )
        .debugging(seed=1)
    )


def learner(config: AlgorithmConfig, learner_class: type, with_model: bool = True) -> Any:
    config = curious(config, learner_class, with_model)
    spec = config.get_multi_rl_module_spec(
        spaces={"default_policy": (OBS, ACTIONS), ICM_MODULE_ID: (OBS, ACTIONS)}, inference_only=False
    )
    made = learner_class(config=config, module_spec=spec)
    made.build()
    return made


def test_the_model_learns_to_tell_actions_and_to_predict_features() -> None:
    torch.manual_seed(1)
    module = IntrinsicCuriosityModel(observation_space=OBS, action_space=ACTIONS, model_config=SMALL)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    batch = {name: torch.as_tensor(value) for name, value in experience(100).items()}
    config = PPOConfig().training(learner_config_dict={"forward_loss_weight": 0.5})

    class Metrics:
        def log_dict(self, values: dict[str, Any], **_: Any) -> None:
            self.latest = {name: float(value) for name, value in values.items()}

    class Owner:
        metrics = Metrics()

    def step() -> dict[str, float]:
        out = module.forward_train(batch)
        loss = module.compute_self_supervised_loss(
            learner=Owner, module_id="m", config=config, batch=batch, fwd_out=out
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return Owner.metrics.latest

    first = step()
    for _ in range(80):
        last = step()
    assert last["inverse_loss"] < 0.5 * first["inverse_loss"]
    # What it has seen is less interesting than what it has not.
    strange = {**batch, Columns.NEXT_OBS: -3.0 * batch[Columns.NEXT_OBS]}
    assert intrinsic_rewards(module, strange).mean() > 2 * intrinsic_rewards(module, batch).mean()


def test_features_are_not_trained_by_the_forward_model() -> None:
    module = IntrinsicCuriosityModel(observation_space=OBS, action_space=ACTIONS, model_config=SMALL)
    batch = {name: torch.as_tensor(value) for name, value in experience().items()}
    module.forward_train(batch)["intrinsic_rewards"].sum().backward()
    assert all(parameter.grad is None for parameter in module._feature_net.parameters())
    assert all(parameter.grad is not None for parameter in module._forward_net.parameters())


def test_ppos_rewards_have_the_share_of_curiosity_and_both_modules_learn() -> None:
    made = learner(PPOConfig(), PPOTorchLearnerWithCuriosity)
    columns = experience()
    following = columns.pop(Columns.NEXT_OBS)
    columns |= {
        Columns.REWARDS: np.zeros(40, np.float32),
        Columns.ACTION_LOGP: np.full(40, -0.7, np.float32),
        Columns.ACTION_DIST_INPUTS: np.zeros((40, 2), np.float32),
    }
    segments = Segments(
        np.ones(40, np.int64),
        np.ones(40, bool),
        np.zeros(40, bool),
        [str(i) for i in range(40)],
        np.zeros(40, np.int64),
    )
    rollout = Rollout(columns, segments, following)
    expected = intrinsic_rewards(
        made.module[ICM_MODULE_ID], {name: torch.as_tensor(value) for name, value in experience().items()}
    )
    batch = made.batch_from_data(TrainingData(rollouts={"default_policy": rollout}))
    torch.testing.assert_close(batch["default_policy"][Columns.VALUE_TARGETS], 0.5 * expected)
    assert not rollout.columns[Columns.REWARDS].any()  # the experience itself is as it was
    of_episodes = made.batch_from_data(TrainingData(episodes=SingleAgentEpisode.views_of(rollout)))
    torch.testing.assert_close(of_episodes["default_policy"][Columns.VALUE_TARGETS], 0.5 * expected)

    before = made.module.get_state()
    made.update(rollouts={"default_policy": rollout}, num_epochs=2, minibatch_size=10)
    after = made.module.get_state()
    for module_id in ("default_policy", ICM_MODULE_ID):
        assert any((before[module_id][name] != after[module_id][name]).any() for name in before[module_id])


def test_dqns_batches_have_the_share_of_curiosity() -> None:
    made = learner(DQNConfig(), DQNTorchLearnerWithCuriosity)
    batch = {**experience(), Columns.REWARDS: np.ones(40, np.float32)}
    mixed = made.batch_from_data(TrainingData(batch={"default_policy": batch}))
    assert (mixed["default_policy"][Columns.REWARDS] > 1).all()
    assert set(mixed[ICM_MODULE_ID]) == {Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS}


def test_the_curiosity_model_learns_beside_dqn() -> None:
    algo = (
        curious(DQNConfig(), DQNTorchLearnerWithCuriosity)
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(num_steps_sampled_before_learning_starts=40)
        .reporting(min_sample_timesteps_per_iteration=60)
        .build_algo()
    )
    try:
        before = algo.learner_group.get_weights()[ICM_MODULE_ID]
        losses = algo.train()["learners"][ICM_MODULE_ID]
        after = algo.learner_group.get_weights()[ICM_MODULE_ID]
    finally:
        algo.stop()
    assert {"forward_loss", "inverse_loss"} <= losses.keys()
    assert all((before[name] != after[name]).any() for name in before)


def test_a_learner_without_the_model_says_how_to_add_it() -> None:
    with pytest.raises(ValueError, match="IntrinsicCuriosityModel"):
        learner(PPOConfig(), PPOTorchLearnerWithCuriosity, with_model=False)


def test_observations_that_are_not_flat_are_an_error() -> None:
    with pytest.raises(ValueError, match="one dimension"):
        IntrinsicCuriosityModel(observation_space=gym.spaces.Discrete(3), action_space=ACTIONS)
