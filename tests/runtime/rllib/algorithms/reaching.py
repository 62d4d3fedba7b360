"""A small task with continuous actions, and recorded steps of a random policy in it."""

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq

from runtime.data.block import BlockAccessor

STEPS = 20  # of an episode


class Reaching(gym.Env):
    """Moves a point on a line to 0: each step costs the square of its place."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, config=None):
        self.place, self.steps = 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place = float(np.clip(self.place + 0.15 * action[0], -1, 1))
        self.steps += 1
        return np.array([self.place], np.float32), -(self.place**2), False, self.steps >= STEPS, {}


def record(folder, episodes=150):
    """Writes a table of a random policy; its actions are in [-1, 1]. The mean return."""
    rng = np.random.default_rng(0)
    env = Reaching()
    env.reset(seed=0)
    rows = {
        name: []
        for name in ("eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds")
    }
    for episode in range(episodes):
        obs, _ = env.reset()
        for step in range(STEPS):
            action = rng.uniform(-1, 1, 1).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(2 * action)
            values = (str(episode), step, obs, action, reward, after, terminated, truncated)
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
            obs = after
    table = {name: np.array(column) for name, column in rows.items()}
    pq.write_table(BlockAccessor.batch_to_block(table), folder / "random.parquet")
    return table["rewards"].sum() / episodes
