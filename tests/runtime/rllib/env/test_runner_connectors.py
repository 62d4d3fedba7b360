"""Connectors between environments and module: on arrays where they can, else on episodes, with the same results."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

from gymnasium.vector import AutoresetMode

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.connectors.connector_v2 import ConnectorV2
from runtime.rllib.connectors.env_to_module import FlattenObservations, MeanStdFilter
from runtime.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from tests.runtime.rllib.env.counting import Counter, vector
from tests.runtime.rllib.env.settings import Constant, Settings

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


class NoChange(ConnectorV2):
    """A piece that works on episodes only, so that the whole pipeline does."""

    def __call__(self, *, batch: Any, episodes: list[Any], **kwargs: Any) -> Any:
        return batch


class Doubled(ConnectorV2):
    """Twice the actions, for the environment."""

    def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
        raise AssertionError("the runner should take the form for arrays")

    def on_vector_actions(self, actions: Any) -> Any:
        return actions * 2


class Recording(Constant):
    """Keeps the observations that it was given."""

    def __init__(self) -> None:
        super().__init__((0.0, 50.0))
        self.seen: list[Any] = []

    def _outputs(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(batch["obs"].numpy().copy())
        return super()._outputs(batch)


def runner(
    env: Any, env_to_module: Any = None, module_to_env: Any = None, **changes: Any
) -> SingleAgentEnvRunner:
    config = Settings(
        env,
        _env_to_module_connector=env_to_module,
        _module_to_env_connector=module_to_env,
        **{"module": Recording(), **changes},
    )
    return SingleAgentEnvRunner(config=config)


def rollout_of(tested: SingleAgentEnvRunner, steps: int) -> Rollout:
    return tested.collect(env_steps=steps).rollouts["default_policy"]


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_on_arrays_gives_what_it_gives_on_episodes(mode: AutoresetMode) -> None:
    # One environment, so that both ways see the observations in the same order.
    fast = runner(vector([(3, 1, 4)], mode), lambda *a, **k: MeanStdFilter())
    slow = runner(vector([(3, 1, 4)], mode), lambda *a, **k: [MeanStdFilter(), NoChange()])
    assert fast._episode_loop is None
    assert slow._episode_loop is not None
    for steps in (5, 4, 7):
        one, other = rollout_of(fast, steps), rollout_of(slow, steps)
        assert one.segments.lengths.tolist() == other.segments.lengths.tolist()
        assert np.allclose(one.columns["obs"], other.columns["obs"])
        assert np.allclose(one.final_obs, other.final_obs)
    one_state, other_state = (each.get_state()["env_to_module_connector"] for each in (fast, slow))
    stats, others = (
        next(iter(state.values()))[None]["running_stats"][0] for state in (one_state, other_state)
    )
    assert stats["count"] == others["count"]
    assert np.allclose(stats["mean"], others["mean"])
    # Each observation has passed once: those of all steps, of the resets, and none twice.
    episodes_begun = len({*range(int(fast.env.unwrapped.envs[0].episode) + 1)})
    assert stats["count"] == fast.num_env_steps_sampled_lifetime + episodes_begun


def test_the_module_and_the_rollout_have_what_comes_out_of_the_pipeline() -> None:
    class Nested(Counter):
        observation_space = gymnasium.spaces.Dict(
            {"a": gymnasium.spaces.Discrete(4), "b": gymnasium.spaces.Box(-9, 9, (2,), np.float32)}
        )

        def _observation(self) -> Any:
            return {"a": self.t % 4, "b": super()._observation()}

    tested = runner(lambda _: Nested(), lambda *a, **k: FlattenObservations(), num_envs_per_env_runner=1)
    assert tested._episode_loop is None
    rollout = rollout_of(tested, 3)
    assert rollout.columns["obs"].tolist() == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 2]]
    assert rollout.final_obs.tolist() == [[0, 0, 0, 1, 0, 3]]
    assert tested.module.seen[1].tolist() == [[0, 1, 0, 0, 0, 1]]
    assert tested.get_spaces()["default_policy"][0].shape == (6,)
    episodes = tested.sample(num_timesteps=4)
    assert episodes[0].observation_space.shape == (6,)


def test_pieces_between_module_and_environment() -> None:
    class Box(Counter):
        action_space = gymnasium.spaces.Box(-8, 8, (1,), np.float32)

    changes = {"module": Constant(actions=np.array([1.0], np.float32)), "num_envs_per_env_runner": 1}
    tested = runner(lambda _: Box(), None, lambda *a, **k: Doubled(), **changes, normalize_actions=False)
    assert tested._episode_loop is None
    assert rollout_of(tested, 1).columns["actions"].tolist() == [[1.0]]
    assert tested.env.unwrapped.envs[0].actions[0].tolist() == [2.0]
    bounded = runner(lambda _: Box(), None, lambda *a, **k: Doubled(), **changes, clip_actions=True)
    rollout_of(bounded, 1)
    assert bounded.env.unwrapped.envs[0].actions[0].tolist() == [8.0]


def test_states_of_filters_are_set_and_kept() -> None:
    env = vector([(3,)], AutoresetMode.SAME_STEP)
    one = runner(env, lambda *a, **k: MeanStdFilter())
    rollout_of(one, 9)
    other = runner(env, lambda *a, **k: MeanStdFilter())
    other.set_state({"env_to_module_connector": one.get_state()["env_to_module_connector"]})
    merged = other.pipelines()["env_to_module_connector"].merge_states(
        [one.get_state()["env_to_module_connector"]]
    )
    stats = next(iter(merged.values()))[None]["running_stats"][0]
    assert (
        stats["count"]
        == 2
        * next(iter(one.get_state()["env_to_module_connector"].values()))[None]["running_stats"][0]["count"]
    )


def test_checkpoints_have_the_module_and_the_connectors(tmp_path: Any) -> None:
    def made() -> SingleAgentEnvRunner:
        config = (
            PPOConfig()
            .environment("CartPole-v1")
            .env_runners(num_envs_per_env_runner=2, env_to_module_connector=lambda *a, **k: MeanStdFilter())
        )
        return SingleAgentEnvRunner(config=config)

    one, other = made(), made()
    one.collect(env_steps=20)
    one.save_to_path(tmp_path)
    other.restore_from_path(tmp_path)
    for name, weights in one.module.get_state().items():
        assert np.array_equal(weights, other.module.get_state()[name])
    stats, others = (
        next(iter(each.get_state()["env_to_module_connector"].values()))[None]["running_stats"][0]
        for each in (one, other)
    )
    assert stats["count"] == others["count"] > 20
    assert np.array_equal(stats["mean"], others["mean"])
