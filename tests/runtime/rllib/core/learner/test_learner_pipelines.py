"""Learners whose users change the connector pipeline."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gymnasium as gym
import numpy as np

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from runtime.rllib.connectors.connector_v2 import ConnectorV2
from runtime.rllib.env.multi_agent_env import MultiAgentEnv
from runtime.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole


class Rewards(ConnectorV2):
    """Replaces each reward by 10."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            episode.set_rewards(new_data=np.full(len(episode), 10.0), at_indices=list(range(len(episode))))
        return batch


class WithPiece(PPOTorchLearner):
    """Counts targets that only the replaced rewards give."""

    def build(self) -> None:
        super().build()
        self._learner_connector.prepend(Rewards())
        self.targets: dict[str, float] = {}

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
        self.targets[module_id] = float(batch["value_targets"].max())
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


def config() -> PPOConfig:
    return PPOConfig().training(
        train_batch_size_per_learner=128, minibatch_size=128, num_epochs=1, learner_class=WithPiece
    )


def test_a_learner_may_prepend_a_piece_in_its_build() -> None:
    algo = config().environment("CartPole-v1").env_runners(num_env_runners=0).build_algo()
    algo.train()
    assert algo.learner_group._learner.targets["default_policy"] > 50
    algo.stop()


def test_the_pipeline_is_not_made_unless_somebody_asks() -> None:
    algo = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).build_algo()
    learner: Any = algo.learner_group._learner
    assert learner._pipeline is None
    names = [type(piece).__name__ for piece in learner._learner_connector.connectors]
    assert names[0] == "AddOneTsToEpisodesAndTruncate"
    assert names[-1] == "GeneralAdvantageEstimation"
    algo.stop()


@pytest.mark.parametrize("shared", [False, True])
def test_pieces_see_the_episodes_of_several_agents(shared: bool) -> None:
    def policy_of(agent_id: Any, *args: Any, **kwargs: Any) -> str:
        return "p0" if shared else f"p{agent_id}"

    algo = (
        config()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .env_runners(num_env_runners=0)
        .multi_agent(policies={"p0"} if shared else {"p0", "p1"}, policy_mapping_fn=policy_of)
        .build_algo()
    )
    algo.train()
    targets = algo.learner_group._learner.targets
    assert set(targets) == ({"p0"} if shared else {"p0", "p1"})
    assert min(targets.values()) > 50
    algo.stop()


class Announced(MultiAgentEnv):
    """Names its agents in Dict spaces only."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Dict({"a": gym.spaces.Box(-1.0, 1.0, (2,))})
        self.action_space = gym.spaces.Dict({"a": gym.spaces.Discrete(2)})

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return {"a": np.zeros(2, np.float32)}, {}

    def step(self, action_dict: Any) -> Any:
        done = {"__all__": True}
        return {"a": np.zeros(2, np.float32)}, {"a": 1.0}, done, {"__all__": False}, {}


def test_agents_of_dict_spaces_are_possible_agents() -> None:
    algo = (
        PPOConfig()
        .environment(Announced)
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1)
        .multi_agent(policies={"p"}, policy_mapping_fn=lambda agent_id, *args, **kwargs: "p")
        .build_algo()
    )
    assert algo.train()["env_runners"]["episode_return_mean"] == 1.0
    algo.stop()
