"""Sampling in one process: arrays, episodes, connectors, callbacks, failures, weights."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

from gymnasium.vector import AutoresetMode

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.callbacks.callbacks import RLlibCallback
from runtime.rllib.env.env_runner import Collected
from runtime.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger
from tests.runtime.rllib.env.counting import Counter, Failing, vector
from tests.runtime.rllib.env.settings import Constant, Counting, Settings
from tests.under_test import ray

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]
LENGTHS = [(3, 1, 4), (2, 6)]


class Watching(RLlibCallback):
    """Needs episodes, so that runners keep them."""

    log: list[Any] = []

    def on_episode_created(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        assert len(episode) == 0
        assert not episode.is_reset
        self.log.append(("created", env_index))

    def on_episode_start(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        assert episode.is_reset
        self.log.append(("start", env_index))

    def on_episode_step(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        self.log.append(("step", env_index, episode.t))

    def on_episode_end(
        self, *, episode: Any, env_index: int, prev_episode_chunks: Any, **kwargs: Any
    ) -> None:
        assert sum(map(len, [*prev_episode_chunks, episode])) == episode.t
        self.log.append(("end", env_index, episode.t))

    def on_sample_end(self, *, samples: list[Any], **kwargs: Any) -> None:
        self.log.append(("sample", sum(map(len, samples))))


@pytest.fixture
def log() -> list[Any]:
    Watching.log = []
    return Watching.log


def runner(env: Any = None, **changes: Any) -> SingleAgentEnvRunner:
    env = vector(LENGTHS, AutoresetMode.SAME_STEP) if env is None else env
    return SingleAgentEnvRunner(config=Settings(env, **changes))


def rollout_of(collected: Collected) -> Rollout:
    return collected.rollouts["default_policy"]


def stretches(rollout: Rollout) -> list[Any]:
    """Per segment: its observations with the last one, rewards, and end."""
    segments = rollout.segments
    return sorted(
        (
            [*rollout.columns["obs"][start : start + steps].tolist(), rollout.final_obs[number].tolist()],
            rollout.columns["rewards"][start : start + steps].tolist(),
            bool(segments.terminated[number]),
            bool(segments.truncated[number]),
        )
        for number, (start, steps) in enumerate(zip(segments.starts, segments.lengths, strict=True))
    )


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
@pytest.mark.parametrize("mode", MODES)
def test_rows_are_the_steps_of_the_environments(mode: AutoresetMode, callbacks: Any, log: list[Any]) -> None:
    tested = runner(vector([(3, 1, 4)], mode), callbacks_class=callbacks)
    first, second = rollout_of(tested.collect(env_steps=5)), rollout_of(tested.collect(env_steps=5))
    assert stretches(first) == [
        ([[0, 0], [0, 1], [0, 2], [0, 3]], [1, 2, 3], True, False),
        ([[1, 0], [1, 1]], [1], False, True),
        ([[2, 0], [2, 1]], [1], False, False),
    ]
    assert stretches(second) == [
        ([[2, 1], [2, 2], [2, 3], [2, 4]], [2, 3, 4], True, False),
        ([[3, 0], [3, 1], [3, 2]], [1, 2], False, False),
    ]
    assert second.segments.t_started.tolist() == [1, 0]
    assert second.segments.episode_ids[0] == first.segments.episode_ids[-1]
    assert set(first.columns) == {"obs", "actions", "rewards", "action_dist_inputs", "action_logp"}
    assert np.allclose(first.columns["action_logp"], np.log(0.5))


@pytest.mark.parametrize("mode", MODES)
def test_the_path_with_episodes_gives_what_the_fast_path_gives(mode: AutoresetMode, log: list[Any]) -> None:
    fast = runner(vector(LENGTHS, mode), module=Constant((0.0, 50.0)))
    slow = runner(vector(LENGTHS, mode), module=Constant((0.0, 50.0)), callbacks_class=Watching)
    for steps in (5, 1, 8, 12):
        one, other = fast.collect(env_steps=steps), slow.collect(env_steps=steps)
        assert stretches(rollout_of(one)) == stretches(rollout_of(other))
        assert one.env_steps == other.env_steps
        assert other.episodes is not None
        assert one.episodes is None
    for logger_metrics in zip(_compiled(fast), _compiled(slow), strict=True):
        assert logger_metrics[0] == logger_metrics[1]


def _compiled(tested: SingleAgentEnvRunner) -> list[tuple[str, Any]]:
    root = MetricsLogger(root=True)
    tested.collect(episodes=4)
    metrics = tested.collect(episodes=4).metrics
    root.aggregate([metrics])
    names = (
        "episode_return_mean",
        "episode_len_mean",
        "episode_len_max",
        "episode_return_min",
        "num_episodes",
    )
    return [(name, root.peek(name)) for name in names]


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
def test_wide_observations_come_to_the_module_with_32_bits(callbacks: Any, log: list[Any]) -> None:
    class Wide(Counter):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)

        def _observation(self) -> np.ndarray:
            return super()._observation().astype(np.float64)

    rollout = rollout_of(runner(lambda _: Wide(), callbacks_class=callbacks).collect(env_steps=8))
    assert rollout.columns["obs"].dtype == rollout.final_obs.dtype == np.float32


def test_callbacks_come_in_order(log: list[Any]) -> None:
    runner(vector([(2,)], AutoresetMode.SAME_STEP), callbacks_class=Watching).sample(num_timesteps=3)
    assert log == [
        ("created", 0),
        ("start", 0),
        ("step", 0, 1),
        ("step", 0, 2),
        ("end", 0, 2),
        ("created", 0),
        ("start", 0),
        ("step", 0, 1),
        ("sample", 3),
    ]


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
def test_sampling_gives_episodes_and_chunks(callbacks: Any, log: list[Any]) -> None:
    tested = runner(vector([(3, 1, 4)], AutoresetMode.SAME_STEP, infos=True), callbacks_class=callbacks)
    episodes = tested.sample(num_timesteps=5)
    assert [len(each) for each in episodes] == [3, 1, 1]
    assert [each.is_terminated for each in episodes] == [True, False, False]
    assert [each.is_truncated for each in episodes] == [False, True, False]
    assert episodes[0].get_observations().tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert [info.get("t") for info in episodes[0].get_infos()][1:3] == [1, 2]
    again = tested.sample(num_timesteps=3)
    assert again[0].id_ == episodes[2].id_
    assert again[0].t_started == 1


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
def test_complete_episodes_are_exactly_as_many_as_wanted(callbacks: Any, log: list[Any]) -> None:
    tested = runner(vector(LENGTHS, AutoresetMode.SAME_STEP), callbacks_class=callbacks)
    tested.sample(num_timesteps=3)
    episodes = tested.sample(num_episodes=3)
    assert len(episodes) == 3
    assert all(each.is_done and each.t_started == 0 for each in episodes)
    rollout = rollout_of(tested.collect(episodes=2))
    assert len(rollout.segments) == 2


def test_callbacks_hear_of_no_more_episodes_than_were_wanted(log: list[Any]) -> None:
    tested = runner(vector([(2,), (2,), (2,)], AutoresetMode.SAME_STEP), callbacks_class=Watching)
    for _ in range(2):
        assert len(tested.sample(num_episodes=2)) == 2
    assert [entry[:2] for entry in log].count(("end", 0)) == 2
    assert ("end", 2, 2) not in log


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
@pytest.mark.parametrize("mode", MODES)
def test_infos_are_those_of_the_steps(mode: AutoresetMode, callbacks: Any, log: list[Any]) -> None:
    tested = runner(vector([(3, 1, 4)], mode, infos=True), callbacks_class=callbacks)
    episodes = tested.sample(num_timesteps=8)
    assert [info for each in episodes for info in each.get_infos(slice(1, None))] == [
        {"t": t} for t in (1, 2, 3, 1, 1, 2, 3, 4)
    ]


def test_returns_are_those_of_the_environment_whatever_is_made_of_the_sample(log: list[Any]) -> None:
    tested = runner(vector([(4,)], AutoresetMode.SAME_STEP), callbacks_class=Watching)
    (chunk,) = tested.sample(num_timesteps=3)
    chunk.set_rewards(new_data=[100.0] * 3)
    tested.sample(num_timesteps=1)
    assert next(iter(tested._finished))[:2] == (10.0, 4)


def test_one_call_gives_episodes_by_reference_and_what_is_needed_besides(session: None) -> None:
    tested = runner(vector([(3, 1, 4)], AutoresetMode.SAME_STEP), rollout_fragment_length=8)
    ref, state, metrics = tested.sample_get_state_and_metrics()
    assert sum(map(len, ray.get(ref))) == 8
    assert set(state) == {"num_env_steps_sampled_lifetime"}
    root = MetricsLogger(root=True)
    root.aggregate([metrics])
    assert root.peek("num_env_steps_sampled") == 8
    assert root.peek(("agent_episode_return_mean", "default_agent")) == root.peek("episode_return_mean")
    assert root.peek(("module_episode_return_mean", "default_policy")) == root.peek("episode_return_mean")


def test_a_runner_that_cannot_be_made_closes_its_environments() -> None:
    closed: list[int] = []

    class Closing(Counter):
        def close(self) -> None:
            closed.append(1)

    class Broken(Settings):
        def get_rl_module_spec(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no such module")

    with pytest.raises(RuntimeError, match="no such module"):
        SingleAgentEnvRunner(config=Broken(lambda _: Closing()))
    assert closed == [1, 1]


def test_environments_in_processes_end_with_the_runner() -> None:
    # Shared memory of multiprocessing would stay open in this process for the next array.
    made = [lambda: Counter()] * 2
    tested = runner(lambda _: gymnasium.vector.AsyncVectorEnv(made, shared_memory=False))
    processes = tested.env.processes
    assert tested.collect(env_steps=6).env_steps == 6
    tested.make_env()  # as after a failure
    assert not any(process.is_alive() for process in processes)
    processes = tested.env.processes
    tested.stop()
    assert not any(process.is_alive() for process in processes)


def test_without_numbers_the_configuration_says_how_much() -> None:
    assert runner(rollout_fragment_length=7).collect().env_steps == 14
    rollout = rollout_of(runner(batch_mode="complete_episodes").collect())
    assert len(rollout.segments) == 2
    assert (rollout.segments.terminated | rollout.segments.truncated).all()
    with pytest.raises(ValueError, match="not both"):
        runner().collect(env_steps=1, episodes=1)


def test_a_deadline_ends_a_fragment() -> None:
    collected = runner().collect(env_steps=10**6, deadline_s=0.0)
    assert collected.env_steps == 2


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
@pytest.mark.parametrize("fail_at", [1, 4, 5])
def test_a_failed_environment_is_made_anew_if_the_configuration_says_so(
    fail_at: int, callbacks: Any, log: list[Any]
) -> None:
    Failing.made = 0
    tested = runner(
        lambda _: Failing(fail_at),
        num_envs_per_env_runner=1,
        restart_failed_sub_environments=True,
        callbacks_class=callbacks,
    )
    rollout = rollout_of(tested.collect(env_steps=8))
    complete = [each for each in stretches(rollout) if each[2] or each[3]]
    assert len(complete) == 2 + (rollout.rows - 6 >= 3)
    assert all(len(each[1]) == 3 for each in complete)
    assert Failing.made == 2


def test_an_expected_failure_is_always_recovered_and_another_is_raised() -> None:
    Failing.made = 0
    env = runner(lambda _: Failing(2, expected=True), num_envs_per_env_runner=1)
    assert env.collect(env_steps=3).env_steps == 3
    Failing.made = 0
    with pytest.raises(RuntimeError, match="broken"):
        runner(lambda _: Failing(2), num_envs_per_env_runner=1).collect(env_steps=3)


def test_environments_that_fail_again_and_again_are_given_up() -> None:
    class Broken(Counter):
        def step(self, action: Any) -> Any:
            raise RuntimeError("always")

    tested = runner(lambda _: Broken(), num_envs_per_env_runner=1, restart_failed_sub_environments=True)
    with pytest.raises(RuntimeError, match="always"):
        tested.collect(env_steps=1)


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
@pytest.mark.parametrize("mode", MODES)
def test_a_recurrent_state_starts_anew_with_each_episode(
    mode: AutoresetMode, callbacks: Any, log: list[Any]
) -> None:
    tested = runner(vector([(3, 1, 4)], mode), module=Counting(), callbacks_class=callbacks)
    tested.config.episode_lookback_horizon = 0
    for steps in (5, 2, 4, 3):
        rollout = rollout_of(tested.collect(env_steps=steps))
        assert rollout.state_in is not None
        assert rollout.state_in["h"][:, 0].tolist() == rollout.segments.t_started.tolist()
        assert np.array_equal(rollout.columns["state_out"]["h"][:, 0], rollout.columns["rewards"])


def test_actions_are_scaled_to_the_bounds_or_clipped() -> None:
    class Box(Counter):
        action_space = gymnasium.spaces.Box(np.array([0, -1]), np.array([4, 3]), (2,), np.float32)
        all: list[Any] = []

        def step(self, action: Any) -> Any:
            self.all.append(action.tolist())
            return super().step(action)

    module = Constant(actions=np.array([0.5, -3.0], np.float32))
    rollout = rollout_of(
        runner(lambda _: Box(), module=module, num_envs_per_env_runner=1).collect(env_steps=1)
    )
    assert rollout.columns["actions"].tolist() == [[0.5, -3.0]]
    changes = {"module": module, "num_envs_per_env_runner": 1, "normalize_actions": False}
    runner(lambda _: Box(), **changes, clip_actions=True).collect(env_steps=1)
    runner(lambda _: Box(), **changes).collect(env_steps=1)
    assert Box.all == [[3.0, -1.0], [0.5, -1.0], [0.5, -3.0]]


def test_discrete_actions_begin_with_the_first_number_of_the_space() -> None:
    class FromFive(Counter):
        action_space = gymnasium.spaces.Discrete(2, start=5)
        all: list[int] = []

        def step(self, action: Any) -> Any:
            self.all.append(int(action))
            return super().step(action)

    tested = runner(lambda _: FromFive(), module=Constant((0.0, 50.0)), num_envs_per_env_runner=1)
    assert rollout_of(tested.collect(env_steps=1)).columns["actions"].tolist() == [1]
    assert FromFive.all == [6]
    random = rollout_of(tested.collect(env_steps=30, random_actions=True)).columns["actions"]
    assert set(random.tolist()) == {0, 1}


def test_without_exploration_actions_are_the_most_likely() -> None:
    tested = runner(module=Constant((1.0, 0.9)))
    rollout = rollout_of(tested.collect(env_steps=40, explore=False))
    assert set(rollout.columns["actions"].tolist()) == {0}
    assert len(set(rollout_of(tested.collect(env_steps=40)).columns["actions"].tolist())) == 2


def test_exploration_knows_how_many_steps_all_runners_have_made() -> None:
    tested = runner(num_env_runners=3, num_envs_per_env_runner=1)
    tested.collect(env_steps=4)
    assert tested.module.timesteps == [0, 6]
    tested.set_state({"num_env_steps_sampled_lifetime": 100})
    tested.collect(env_steps=2)
    assert tested.module.timesteps[-1] == 100


def test_without_a_module_actions_are_random_only() -> None:
    tested = runner(module="none")
    assert tested.collect(env_steps=4, random_actions=True).env_steps == 4
    with pytest.raises(ValueError, match="no module"):
        tested.collect(env_steps=4)
    with pytest.raises(AssertionError, match="no module"):
        tested.assert_healthy()


def test_weights_that_are_not_newer_are_left_aside() -> None:
    tested = runner()
    tested.set_state({"rl_module": {"default_policy": {"logits": [0.0, 9.0]}}, "weights_seq_no": 2})
    tested.set_state({"rl_module": {"default_policy": {"logits": [9.0, 0.0]}}, "weights_seq_no": 2})
    assert tested.module.logits.tolist() == [0.0, 9.0]
    tested.set_state({"rl_module": {"logits": [1.0, 1.0]}})
    assert tested.module.logits.tolist() == [1.0, 1.0]
    assert tested.collect(env_steps=1).weights_seq == 2
    assert set(tested.get_state()) == {"rl_module", "weights_seq_no", "num_env_steps_sampled_lifetime"}
    assert "rl_module" not in tested.get_state(not_components="rl_module")


def test_spaces() -> None:
    spaces = runner().get_spaces()
    assert (
        spaces["default_policy"]
        == spaces["__env_single__"]
        == (Counter.observation_space, Counter.action_space)
    )
    assert spaces["__env__"][0].shape == (2, 2)


def test_a_seed_makes_samples_repeatable() -> None:
    def actions() -> Any:
        tested = runner("CartPole-v1", seed=3)
        rollout = rollout_of(tested.collect(env_steps=40))
        return rollout.columns["actions"].tolist(), rollout.columns["obs"].tolist()

    assert actions() == actions()


def test_gymnasium_environments_step_as_arrays_if_they_can() -> None:
    many, few = runner("CartPole-v1", num_envs_per_env_runner=8), runner("CartPole-v1")
    assert type(many.env.unwrapped).__name__ == "CartPoleVectorEnv"
    assert type(few.env.unwrapped).__name__ == "SyncVectorEnv"
    many.make_env()
    assert many.collect(env_steps=64).env_steps >= 64
    with pytest.raises(ValueError, match="gym_env_vectorize_mode"):
        runner("CartPole-v1", gym_env_vectorize_mode="fast")
    with pytest.raises(ValueError, match="neither an environment of gymnasium"):
        runner("CartPoll-v1")


def test_environments_know_their_numbers() -> None:
    class Numbered(Counter):
        contexts: list[Any] = []

        def __init__(self, context: Any) -> None:
            super().__init__()
            self.contexts.append(
                (context["size"], context.worker_index, context.vector_index, context.num_workers)
            )

    config = Settings(Numbered, env_config={"size": 5}, num_env_runners=4)
    SingleAgentEnvRunner(config=config, worker_index=3)
    assert Numbered.contexts == [(5, 3, 0, 4), (5, 3, 1, 4)]


def test_a_local_runner_beside_remote_ones_has_no_environment() -> None:
    space = (Counter.observation_space, Counter.action_space)
    tested = SingleAgentEnvRunner(
        config=Settings(num_env_runners=1),
        worker_index=0,
        spaces={"default_policy": space, "__env_single__": space},
    )
    assert tested.env is None
    assert tested.module is not None
    with pytest.raises(ValueError, match="no environment to sample from"):
        tested.collect(env_steps=1)


class Unsorted(Counter):
    """Observations are dicts whose keys have another order than those of the space."""

    observation_space = gymnasium.spaces.Dict(
        {
            "a": gymnasium.spaces.Box(-9, 99, (1,), np.float32),
            "b": gymnasium.spaces.Box(-9, 99, (1,), np.float32),
        }
    )

    def _observation(self) -> Any:
        return {"b": np.array([self.t + 10], np.float32), "a": np.array([self.t], np.float32)}


@pytest.mark.parametrize("callbacks", [RLlibCallback, Watching])
@pytest.mark.parametrize("mode", MODES)
def test_last_observations_keep_their_keys(mode: AutoresetMode, callbacks: Any, log: list[Any]) -> None:
    env = lambda _: gymnasium.vector.SyncVectorEnv([lambda: Unsorted((2,))], autoreset_mode=mode)  # noqa: E731
    rollout = rollout_of(runner(env, callbacks_class=callbacks).collect(env_steps=4))
    assert rollout.final_obs["a"].ravel().tolist() == [2, 2]
    assert rollout.final_obs["b"].ravel().tolist() == [12, 12]
    assert rollout.columns["obs"]["b"].ravel().tolist() == [10, 11, 10, 11]


class Telling(Counter):
    """Infos say the episode and the step."""

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0], {"at": (self.episode, 0)}

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return *result, {"at": (self.episode, self.t)}


@pytest.mark.parametrize("mode", MODES)
def test_infos_belong_to_their_observations(mode: AutoresetMode, log: list[Any]) -> None:
    env = lambda _: gymnasium.vector.SyncVectorEnv([lambda: Telling((2,))], autoreset_mode=mode)  # noqa: E731
    first, second = runner(env, callbacks_class=Watching).sample(num_timesteps=4)
    assert [tuple(info.pop("at")) for info in first.get_infos()] == [(0, 0), (0, 1), (0, 2)]
    assert [tuple(info.pop("at")) for info in second.get_infos()] == [(1, 0), (1, 1), (1, 2)]
    assert not any(second.get_infos()), "nothing of the episode before"


def test_older_weights_do_not_change_the_number_of_the_weights() -> None:
    tested = runner()
    tested.set_state({"rl_module": {"logits": [1.0, 1.0]}, "weights_seq_no": 5})
    tested.set_state({"rl_module": {"logits": [2.0, 2.0]}, "weights_seq_no": 3})
    assert tested.module.logits.tolist() == [1.0, 1.0]
    assert tested.collect(env_steps=1).weights_seq == 5


def test_chunks_are_kept_only_for_callbacks_at_ends(log: list[Any]) -> None:
    class Steps(RLlibCallback):
        def on_episode_step(self, **kwargs: Any) -> None:
            pass

    kept = []
    for callbacks in (Steps, Watching):
        tested = runner(vector([(100,)], AutoresetMode.SAME_STEP), callbacks_class=callbacks)
        for _ in range(3):
            tested.collect(env_steps=2)
        assert tested._episode_loop is not None
        kept.append(len(tested._episode_loop._chunks[0]))
    assert kept == [0, 3]
