"""Wrappers of Atari games, on a small game of our own and on a real one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from runtime.rllib.env.wrappers import atari_wrappers as atari


class Game(gymnasium.Env):
    """Frame t has the value t everywhere. Three lives, each of ten frames."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 4, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, fires: bool = True) -> None:
        self.t, self.actions, self.resets, self.fires = 0, [], 0, fires

    @property
    def ale(self) -> Game:
        return self

    def lives(self) -> int:
        return 3 - self.t // 10

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE" if self.fires else "UP", "DOWN"]

    def frame(self) -> np.ndarray:
        return np.full((6, 4, 3), self.t, np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.resets = 0, self.resets + 1
        return self.frame(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.actions.append(action)
        return self.frame(), 2.5, self.t >= 30, False, {}


def test_actions_are_repeated_and_the_last_two_frames_joined() -> None:
    game = Game()
    env = atari.MaxAndSkipEnv(game, 4)
    env.reset()
    frame, reward, *_ = env.step(2)
    assert (int(frame.max()), reward, game.actions) == (4, 10.0, [2] * 4)
    game.t = 28
    frame, reward, terminated, *_ = env.step(2)
    assert (int(frame.max()), reward, terminated) == (30, 5.0, True)


def test_each_life_is_an_episode_of_one_game() -> None:
    game = Game()
    env = atari.EpisodicLifeEnv(game)
    env.reset()
    lengths = []
    for _ in range(3):
        steps, terminated = 0, False
        while not terminated:
            _, _, terminated, _, _ = env.step(0)
            steps += 1
        lengths.append(steps)
        env.reset()
    assert game.resets == 2
    assert lengths == [10, 9, 9]  # a reset after a lost life takes a step


def test_games_begin_with_doing_nothing_and_fire() -> None:
    game = Game()
    env = atari.NoopResetEnv(game, noop_max=5)
    for seed in range(10):
        env.reset(seed=seed)
        assert 1 <= game.t <= 5
    env.override_num_noops = 3
    assert env.reset()[0].max() == 3
    fire = atari.FireResetEnv(Game())
    fire.reset()
    assert fire.unwrapped.actions == [1]
    with pytest.raises(ValueError, match="no action to fire"):
        atari.FireResetEnv(Game(fires=False))


def test_images() -> None:
    env = atari.GrayScaleAndResize(Game(), 2)
    image = np.zeros((6, 4, 3), np.uint8)
    image[:3, :2] = [255, 0, 0]
    image[3:, 2:] = 100
    assert env.observation(image)[..., 0].tolist() == [[76, 0], [0, 100]]
    color = atari.GrayScaleAndResize(Game(), 3, grayscale=False)
    assert color.observation(image).shape == color.observation_space.shape == (3, 3, 3)
    assert color.observation(image)[0, :, 0].tolist() == [255, 128, 0]  # the middle one is of both halves
    normalized = atari.NormalizedImageEnv(env)
    assert normalized.observation(np.array([0, 255], np.uint8)).tolist() == [-1.0, 1.0]


def test_stacks_and_rewards() -> None:
    env = atari.ClipRewardEnv(atari.FrameStack(Game(), 2))
    first, _ = env.reset()
    assert first.shape == env.observation_space.shape == (6, 4, 6)
    assert first.max() == 0
    second, reward, *_ = env.step(0)
    assert (second[0, 0].tolist(), reward) == ([0, 0, 0, 1, 1, 1], 1.0)


def test_a_monitor_sees_whole_games() -> None:
    monitor = atari.MonitorEnv(Game())
    env = atari.EpisodicLifeEnv(monitor)
    env.reset()
    for _ in range(3):
        while not env.step(0)[2]:
            pass
        env.reset()
    assert monitor.next_episode_results() == [(75.0, 30)]
    assert monitor.next_episode_results() == []
    assert monitor.get_total_steps() == 30
    assert atari.get_wrapper_by_cls(env, atari.MonitorEnv) is monitor
    assert atari.get_wrapper_by_cls(env, atari.FrameStack) is None


def test_a_real_game() -> None:
    pytest.importorskip("ale_py")
    made = gymnasium.make("ale_py:ALE/Pong-v5", frameskip=1)
    assert atari.is_atari(made)
    assert atari.is_atari("ale_py:ALE/Pong-v5")
    assert not atari.is_atari("CartPole-v1")
    env = atari.wrap_atari_for_new_api_stack(made, dim=32, framestack=2)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert observation.shape == (32, 32, 2)
    for _ in range(5):
        observation, *_ = env.step(2)
    assert env.observation_space.contains(observation)
    assert observation[..., 0].tolist() != observation[..., 1].tolist()
    deepmind = atari.wrap_deepmind(gymnasium.make("ale_py:ALE/Pong-v5"))
    assert deepmind.observation_space.contains(deepmind.reset()[0])
    env.close()
    deepmind.close()
