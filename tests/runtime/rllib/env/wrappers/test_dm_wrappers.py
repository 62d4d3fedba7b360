"""Environments with DeepMind's API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

dm_env = pytest.importorskip("dm_env")

from gymnasium import spaces

from runtime.rllib.env.wrappers.dm_env_wrapper import DMEnv, space_of


class Walk(dm_env.Environment):  # type: ignore[misc,name-defined]
    """Ends at position 2, or at the limit of 3 steps."""

    def reset(self) -> Any:
        self.at, self.steps = 0.0, 0
        return dm_env.restart(self.seen())

    def seen(self) -> dict[str, Any]:
        return {"at": np.array([self.at]), "steps": np.array(self.steps)}

    def step(self, action: Any) -> Any:
        self.at += action
        self.steps += 1
        if self.at >= 2:
            return dm_env.termination(1.0, self.seen())
        if self.steps == 3:
            return dm_env.truncation(0.5, self.seen())
        return dm_env.transition(0.25, self.seen())

    def observation_spec(self) -> Any:
        return {
            "at": dm_env.specs.Array((1,), np.float64),
            "steps": dm_env.specs.BoundedArray((), np.int64, 0, 3),
        }

    def action_spec(self) -> Any:
        return dm_env.specs.DiscreteArray(2)


def test_an_environment() -> None:
    env = DMEnv(Walk())
    assert env.action_space == spaces.Discrete(2)
    obs, _ = env.reset(seed=1)
    assert obs in env.observation_space
    obs, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated, info) == (0.25, False, False, {"discount": 1.0})
    assert env.step(1)[1:4] == (1.0, True, False)
    env.reset()
    for _ in range(3):
        result = env.step(0)
    assert result[1:4] == (0.5, False, True)
    assert env.render()["steps"] == 3


def test_specs_without_a_space() -> None:
    with pytest.raises(ValueError, match="no gymnasium space"):
        space_of(dm_env.specs.StringArray(()))


def test_a_task_of_the_control_suite() -> None:
    pytest.importorskip("dm_control")
    from runtime.rllib.env.wrappers.dm_control_wrapper import ActionClip, DMCEnv

    env = ActionClip(DMCEnv("cartpole", "balance", frame_skip=4))
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    for step in range(250):
        obs, reward, terminated, truncated, info = env.step(np.array([3.0]))
        assert obs in env.observation_space
        assert 0 <= reward <= 4
        assert not terminated
        assert truncated == (step == 249), "1,000 steps of the simulation"
    assert info["discount"] == 1.0
    env.close()


def test_a_task_that_ends_by_itself_terminates() -> None:
    pytest.importorskip("dm_control")
    from runtime.rllib.env.wrappers.dm_control_wrapper import DMCEnv

    env = DMCEnv("lqr", "lqr_2_1")
    env.reset(seed=1)
    physics = env._env.physics
    with physics.reset_context():
        physics.set_state(np.zeros_like(physics.get_state()))  # the goal
    _, _, terminated, truncated, info = env.step(np.zeros(1))
    assert (terminated, truncated, info["discount"]) == (True, False, 0.0)
    env.close()
