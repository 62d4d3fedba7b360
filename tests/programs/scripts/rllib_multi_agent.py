"""Two agents with a policy each; one of them is trained."""

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv


class Pair(MultiAgentEnv):
    """Each agent gets a point for action 1; eight steps."""

    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["left", "right"]
        box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_spaces = {agent: box for agent in self.agents}
        self.action_spaces = {agent: gym.spaces.Discrete(2) for agent in self.agents}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        self.t += 1
        obs = {agent: np.full(2, self.t / 8, np.float32) for agent in actions}
        rewards = {agent: float(action == 1) for agent, action in actions.items()}
        over = self.t >= 8
        return obs, rewards, {"__all__": over}, {"__all__": False}, {}


ray.init(num_cpus=2, log_to_driver=False)
config = (
    PPOConfig()
    .environment(Pair)
    .multi_agent(
        policies={"pl", "pr"},
        policy_mapping_fn=lambda agent_id, episode, **kwargs: "pl" if agent_id == "left" else "pr",
        policies_to_train=["pl"],
    )
    .env_runners(num_env_runners=0)
    .training(train_batch_size_per_learner=160, minibatch_size=40, num_epochs=4, lr=5e-3)
    .reporting(min_time_s_per_iteration=0)
    .debugging(seed=3)
)
algo = config.build_algo()
before = {name: algo.get_module(name).get_state() for name in ("pl", "pr")}
for _ in range(3):
    result = algo.train()
found = result["env_runners"]
print(sorted(found["agent_episode_returns_mean"]), sorted(found["module_episode_returns_mean"]))
print(found["episode_len_mean"], found["episode_return_max"] <= 16)
print(sorted(name for name in result["learners"] if name != "__all_modules__"))
for name in ("pl", "pr"):
    now = algo.get_module(name).get_state()
    print(name, any((now[key] != before[name][key]).any() for key in now))
algo.stop()
