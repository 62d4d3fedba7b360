"""Connectors of one's own before the module and for the learner."""

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.env_to_module import FlattenObservations


class Keyed(gym.Env):
    """Observations are dicts; four steps."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Dict(
            {"a": gym.spaces.Box(-1.0, 1.0, (2,), np.float32), "b": gym.spaces.Discrete(3)}
        )
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self):
        return {"a": np.full(2, self.t / 4, np.float32), "b": self.t % 3}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        return self._obs(), float(action), self.t == 4, False, {}


shapes = set()


class Looks(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            shapes.add(np.asarray(episode.get_observations(-1)).shape)
        return batch


ray.init(num_cpus=2, log_to_driver=False)
config = (
    PPOConfig()
    .environment(Keyed)
    .env_runners(
        num_env_runners=0,
        env_to_module_connector=lambda env, spaces, device: [FlattenObservations(), Looks()],
    )
    .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
    .reporting(min_time_s_per_iteration=0)
)
algo = config.build_algo()
result = algo.train()
print(result["env_runners"]["episode_len_mean"], shapes)
print(algo.get_module().observation_space.shape)
algo.stop()
