"""The runner of several agents: what it collects, whoever comes and goes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.rllib._core.rollout import concatenate
from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.callbacks.callbacks import RLlibCallback
from runtime.rllib.env.env_errors import StepFailedRecreateEnvError
from runtime.rllib.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from runtime.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from runtime.rllib.env.multi_agent_episode import MultiAgentEpisode

BOX = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
CHOICE = gymnasium.spaces.Discrete(3)


class Crowd(MultiAgentEnv):
    """Agents come, pause, act, and leave at random. An observation is (episode's number, time); a reward is random.

    `given` has the sum of the rewards of each agent of each episode, `acted` the number of its actions.
    """

    made: list[Crowd] = []

    def __init__(self, config: Any = None) -> None:
        self.possible_agents = ["a", "b", "c", "d"]
        super().__init__()
        self.observation_spaces = dict.fromkeys(self.possible_agents, BOX)
        self.action_spaces = dict.fromkeys(self.possible_agents, CHOICE)
        self.rng = np.random.default_rng((config or {}).get("seed", 0))
        self.episode = -1
        self.given: dict[Any, float] = defaultdict(float)
        self.acted: Counter[Any] = Counter()
        Crowd.made.append(self)

    def _chosen(self, share: float) -> list[str]:
        return [a for a in self.possible_agents if a not in self.gone and self.rng.random() < share]

    def _obs(self, agents: list[str]) -> dict[str, Any]:
        self.due = set(agents)
        return {agent: np.array([self.episode, self.t], np.float32) for agent in agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        self.episode += 1
        self.t, self.gone = 0, set[str]()
        return self._obs(["a", *self._chosen(0.3)]), {}

    def step(self, action_dict: dict[Any, Any]) -> Any:
        assert set(action_dict) == self.due, "exactly the agents with an observation act"
        self.t += 1
        for agent in action_dict:
            self.acted[self.episode, agent] += 1
        rewards = {agent: float(self.rng.integers(-3, 4)) for agent in self._chosen(0.6)}
        for agent, reward in rewards.items():
            self.given[self.episode, agent] += reward
        leaving = dict.fromkeys(self._chosen(0.1), True)
        obs = self._obs([a for a in self._chosen(0.6) if a not in leaving or self.rng.random() < 0.5])
        self.due -= set(leaving)
        self.gone |= set(leaving)
        over = bool(self.rng.random() < 0.05)
        cut = not over and bool(self.rng.random() < 0.03)
        return obs, rewards, {**leaving, "__all__": over}, {"__all__": cut}, {}


def config_of(env: Any = Crowd, **changes: Any) -> AlgorithmConfig:
    config = (
        PPOConfig()
        .environment(env, env_config=changes.pop("env_config", {}))
        .env_runners(num_env_runners=0, num_envs_per_env_runner=changes.pop("envs", 3), **changes)
        .multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent, episode, **kwargs: mapped(agent))
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )
    return config


def mapped(agent: Any) -> str:
    return "p0" if str(agent) in "ab0" else "p1"


def runner_of(*args: Any, **kwargs: Any) -> MultiAgentEnvRunner:
    Crowd.made.clear()
    return MultiAgentEnvRunner(config=config_of(*args, **kwargs))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.lists(st.integers(1, 30), min_size=1, max_size=4), st.booleans())
def test_agents_that_come_and_go(seed: int, calls: list[int], by_episodes: bool) -> None:
    runner = runner_of(envs=1, env_config={"seed": seed})
    env = Crowd.made[-1]
    finished: dict[Any, float] = {}
    runner.counted.finished = lambda episode: finished.update(  # type: ignore[method-assign]
        {len(finished): episode.agent_returns}  # type: ignore[dict-item]
    )
    in_rows: dict[Any, float] = defaultdict(float)
    rows: Counter[Any] = Counter()
    for env_steps in calls:
        collected = runner.collect(env_steps=env_steps, random_actions=not by_episodes)
        assert collected.env_steps == env_steps
        for module_id, rollout in collected.rollouts.items():
            starts = rollout.segments.starts
            for number, agent in enumerate(rollout.segments.agent_ids or ()):
                part = slice(starts[number], starts[number] + rollout.segments.lengths[number])
                assert mapped(agent) == module_id
                times = [*rollout.columns["obs"][part, 1], rollout.final_obs[number, 1]]
                assert times == sorted(times)
                (episode,) = {*rollout.columns["obs"][part, 0]}
                in_rows[int(episode), agent] += float(rollout.columns["rewards"][part].sum())
                assert rollout.segments.t_started[number] == rows[int(episode), agent]
                rows[int(episode), agent] += int(rollout.segments.lengths[number])
    for episode, returns in finished.items():
        for agent in env.possible_agents:
            assert returns.get(agent, 0.0) == env.given[episode, agent]
            assert rows[episode, agent] == env.acted[episode, agent]
    running = runner._running[0].agents
    for agent, lane in running.lanes.items():
        assert rows[env.episode, agent] + lane.waiting == env.acted[env.episode, agent]


def test_both_ways_of_sampling_give_the_same_steps() -> None:
    """Episode objects, which callbacks see, against tables of rows."""
    first = runner_of(env_config={"seed": 3}, envs=2)
    second = runner_of(env_config={"seed": 3}, envs=2)
    fast: dict[str, list[Any]] = {"p0": [], "p1": []}
    slow: dict[str, list[Any]] = {"p0": [], "p1": []}
    for _ in range(4):
        for module_id, rollout in first.collect(env_steps=60).rollouts.items():
            fast[module_id].append(rollout)
        second._needs_episodes = True
        for module_id, rollout in second.collect(env_steps=60).rollouts.items():
            slow[module_id].append(rollout)
    for module_id in ("p0", "p1"):
        one, other = concatenate(fast[module_id]), concatenate(slow[module_id])
        assert one.rows == other.rows > 50
        for name in ("obs", "rewards"):  # discrete actions are drawn in another order of agents
            a, b = one.columns[name], other.columns[name]
            assert sorted(map(str, a.tolist())) == sorted(map(str, b.tolist()))
        assert sorted(one.segments.lengths) == sorted(other.segments.lengths)
        assert sorted(one.segments.agent_ids or ()) == sorted(other.segments.agent_ids or ())
        assert one.segments.terminated.sum() == other.segments.terminated.sum()
        assert one.segments.truncated.sum() == other.segments.truncated.sum()
        assert set(one.columns) == set(other.columns)


def test_one_inference_per_module_and_step() -> None:
    runner = runner_of(make_multi_agent("CartPole-v1"), env_config={"num_agents": 4}, envs=3)
    calls: list[tuple[str, int]] = []
    for module_id, module in runner.module.items():
        inner = module.forward_exploration
        module.forward_exploration = lambda batch, inner=inner, name=module_id, **kwargs: (
            calls.append((name, len(batch["obs"]))) or inner(batch, **kwargs)
        )
    collected = runner.collect(env_steps=6)
    assert calls == [("p0", 3), ("p1", 9)] * 2
    assert collected.env_steps == 6
    assert collected.agent_steps == 24
    assert {m: rollout.rows for m, rollout in collected.rollouts.items()} == {"p0": 6, "p1": 18}
    assert collected.rollouts["p1"].columns["action_logp"].shape == (18,)


def test_metrics() -> None:
    runner = runner_of(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
    collected = runner.collect(episodes=4)
    from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger

    logger = MetricsLogger(root=True)
    logger.aggregate([collected.metrics])
    found = logger.peek()
    assert found["num_episodes"] == 4
    assert found["num_env_steps_sampled"] >= collected.env_steps
    assert found["episode_return_mean"] == pytest.approx(sum(found["agent_episode_returns_mean"].values()))
    assert found["module_episode_returns_mean"].keys() == {"p0", "p1"}
    rows = {m: rollout.rows for m, rollout in collected.rollouts.items()}
    assert found["num_module_steps_sampled"] == rows
    assert found["num_agent_steps_sampled"] == {"0": rows["p0"], "1": rows["p1"]}
    assert found["episode_len_min"] <= found["episode_len_mean"] <= found["episode_len_max"]


def test_episodes_are_complete_if_they_are_counted() -> None:
    runner = runner_of(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
    collected = runner.collect(episodes=4)
    for rollout in collected.rollouts.values():
        assert len(rollout.segments) >= 4, "an agent may have ended in an episode that was not completed"
        assert (rollout.segments.terminated | rollout.segments.truncated).all()
        assert (rollout.segments.t_started == 0).all()
    episodes = runner.sample(num_episodes=3)
    assert [episode.is_done for episode in episodes] == [True] * 3


def test_steps_may_be_counted_by_agents() -> None:
    config = config_of(make_multi_agent("CartPole-v1"), env_config={"num_agents": 4}, envs=1)
    runner = MultiAgentEnvRunner(config=config.multi_agent(count_steps_by="agent_steps"))
    collected = runner.collect(env_steps=8)
    assert (collected.env_steps, collected.agent_steps) == (2, 8)


def test_callbacks_see_episodes() -> None:
    seen: list[tuple[str, Any]] = []

    class Watch(RLlibCallback):
        def on_episode_created(self, *, episode: MultiAgentEpisode, **kwargs: Any) -> None:
            assert not episode.is_reset
            seen.append(("created", episode.id_))

        def on_episode_start(self, *, episode: MultiAgentEpisode, **kwargs: Any) -> None:
            assert episode.get_agents_to_act()
            seen.append(("start", episode.id_))

        def on_episode_step(self, *, episode: MultiAgentEpisode, env_index: int, **kwargs: Any) -> None:
            seen.append(("step", episode.id_))

        def on_episode_end(
            self, *, episode: MultiAgentEpisode, prev_episode_chunks: Any, **kwargs: Any
        ) -> None:
            assert episode.is_done
            steps = len(episode) + sum(map(len, prev_episode_chunks))
            assert seen.count(("step", episode.id_)) == steps
            seen.append(("end", episode.id_))

    runner = MultiAgentEnvRunner(config=config_of(env_config={"seed": 2}, envs=1).callbacks(Watch))
    for _ in range(6):
        collected = runner.collect(env_steps=10)
        assert collected.env_steps == 10
    kinds = Counter(kind for kind, _ in seen)
    assert kinds["step"] == 60
    assert kinds["created"] == kinds["start"] == kinds["end"] + 1 > 1


class Alone(MultiAgentEnv):
    """One agent, which acts in each step; the reward is 1. Episodes have the given length."""

    log: list[str] = []

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.possible_agents = self.agents = ["a"]
        self.observation_spaces, self.action_spaces = {"a": BOX}, {"a": gymnasium.spaces.Discrete(2, start=5)}
        self.given = config or {}
        self.actions = self.given.get("actions", [])
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        self.log.append("reset")
        self.t = 0
        return {"a": np.zeros(2, np.float32)}, {}

    def step(self, action_dict: dict[Any, Any]) -> Any:
        self.t += 1
        self.steps += 1
        self.actions.append(int(action_dict["a"]))
        if self.steps == self.given.get("fail_at"):
            raise RuntimeError("broken")
        over = self.t == self.given.get("length", 5)
        return {"a": np.full(2, self.t, np.float32)}, {"a": 1.0}, {"__all__": over}, {"__all__": False}, {}


def alone(**changes: Any) -> AlgorithmConfig:
    config = config_of(Alone, env_config=changes, envs=1)
    return config.multi_agent(policies={"p0"}, policy_mapping_fn=lambda agent, episode, **kwargs: "p0")


def test_discrete_actions_begin_with_the_first_number_of_the_space() -> None:
    runner = MultiAgentEnvRunner(config=alone(actions=[]))
    rollout = runner.collect(env_steps=30).rollouts["p0"]
    given = runner.env.envs[0].actions
    assert given == (rollout.columns["actions"] + 5).tolist()
    assert set(given) == {5, 6}
    (episode, *_) = runner.sample(num_timesteps=4)
    assert given[30:] == [action + 5 for action in episode.agent_episodes["a"].get_actions()]


def test_returns_are_those_of_the_environment_whatever_is_made_of_the_sample() -> None:
    runner = MultiAgentEnvRunner(config=alone(length=7))
    (chunk,) = runner.sample(num_timesteps=4)
    chunk.agent_episodes["a"].set_rewards(new_data=[100.0] * 4)
    runner.sample(num_timesteps=4)
    assert runner.counted._finished[0].agent_returns == {"a": 7.0}
    assert runner.counted._finished[0].agent_steps == {"a": 7}
    assert runner.counted._finished[0].length == 7


def test_failures_with_steps_between_them_are_not_in_a_row() -> None:
    config = alone(fail_at=3, length=100).fault_tolerance(restart_failed_sub_environments=True)
    runner = MultiAgentEnvRunner(config=config)
    for _ in range(15):
        runner.sample(num_timesteps=2)
    assert not runner._episode_loop._chunks.keys() - {runner._episode_loop._episodes[0].id_}


def test_an_episode_is_created_before_the_environment_is_reset() -> None:
    log = Alone.log
    log.clear()

    class Watch(RLlibCallback):
        def on_episode_created(self, **kwargs: Any) -> None:
            log.append("created")

        def on_episode_start(self, **kwargs: Any) -> None:
            log.append("start")

    MultiAgentEnvRunner(config=alone(length=2).callbacks(Watch)).collect(env_steps=2)
    assert log == ["created", "reset", "start"] * 2


class Fails(Crowd):
    def step(self, action_dict: Any) -> Any:
        if self.t == 3:
            raise (StepFailedRecreateEnvError if Fails.expected else RuntimeError)("broken")
        return super().step(action_dict)

    expected = False


def test_a_failed_environment_is_made_anew_if_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    Fails.expected = False
    runner = runner_of(Fails)
    with pytest.raises(RuntimeError, match="broken"):
        runner.collect(env_steps=100)
    config = config_of(Fails).fault_tolerance(restart_failed_sub_environments=True)
    Crowd.made.clear()
    runner = MultiAgentEnvRunner(config=config)
    collected = runner.collect(env_steps=30)
    assert collected.env_steps == 30
    assert len(Crowd.made) > 3
    assert "made anew" in caplog.text
    assert all(rollout.columns["obs"][:, 1].max() <= 3 for rollout in collected.rollouts.values())
    Fails.expected = True
    caplog.clear()
    assert sum(map(len, runner_of(Fails).sample(num_timesteps=30))) > 0
    assert "made anew" not in caplog.text


def test_recurrent_modules() -> None:
    config = config_of(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2}, envs=2)
    config.rl_module(
        model_config={"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 5, "vf_share_layers": True}
    )
    runner = MultiAgentEnvRunner(config=config)
    first = runner.collect(env_steps=20).rollouts["p0"]
    second = runner.collect(env_steps=20).rollouts["p0"]
    assert first.state_in["h"].shape == (len(first.segments), 1, 5)
    assert not first.state_in["h"].any()
    went_on = second.segments.t_started > 0
    assert went_on.any()
    assert second.state_in["h"][went_on].any(axis=(1, 2)).all()
    assert not second.state_in["h"][~went_on].any()


class Turns(MultiAgentEnv):
    """Two agents act in turns; an episode has 9 steps."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.possible_agents = self.agents = ["a", "c"]
        self.observation_spaces = dict.fromkeys(self.agents, BOX)
        self.action_spaces = dict.fromkeys(self.agents, CHOICE)

    def _obs(self) -> dict[str, Any]:
        return {self.agents[self.t % 2]: np.full(2, self.t, np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        self.t = 0
        return self._obs(), {}

    def step(self, action_dict: dict[Any, Any]) -> Any:
        self.t += 1
        return self._obs(), {}, {"__all__": self.t == 9}, {"__all__": False}, {}


def test_states_of_agents_that_act_in_turns_survive_a_cut() -> None:
    config = config_of(Turns, envs=1)
    lstm = {"use_lstm": True, "lstm_cell_size": 5, "vf_share_layers": True}
    config.rl_module(model_config={"fcnet_hiddens": [4], **lstm})
    states: list[dict[Any, Any]] = []
    for needs_episodes in (False, True):
        runner = MultiAgentEnvRunner(config=config)
        runner._needs_episodes = needs_episodes
        mine: dict[Any, Any] = {}
        for number in range(12):
            for rollout in runner.collect(env_steps=3, explore=False).rollouts.values():
                for segment, agent in enumerate(rollout.segments.agent_ids or ()):
                    key = (number, agent, int(rollout.segments.t_started[segment]))
                    mine[key] = rollout.state_in["h"][segment].ravel().tolist()
        states.append(mine)
    fast, slow = states
    assert len(fast) >= 24
    assert fast.keys() == slow.keys()
    for key, value in fast.items():
        assert slow[key] == pytest.approx(value)
        assert any(value) == (key[2] > 0)


def test_weights_and_state() -> None:
    runner, other = runner_of(), runner_of()
    runner.collect(env_steps=9)
    weights = {
        m: {k: v + 1 for k, v in part.items()}
        for m, part in runner.get_state("rl_module")["rl_module"].items()
    }
    other.set_state({"rl_module": weights, "weights_seq_no": 4})
    assert other.collect(env_steps=3).weights_seq == 4
    other.set_state({"rl_module": runner.module.get_state(), "weights_seq_no": 3})
    for name, value in other.get_state()["rl_module"]["p1"].items():
        np.testing.assert_array_equal(value, weights["p1"][name])
    assert set(runner.get_state("rl_module/p0")["rl_module"]) == {"p0"}
    assert "rl_module" not in runner.get_state(not_components="rl_module")
    assert runner.get_state()["num_env_steps_sampled_lifetime"] == 9


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="several agents"):
        MultiAgentEnvRunner(config=PPOConfig().environment("CartPole-v1"))
    with pytest.raises(TypeError, match="no MultiAgentEnv"):
        runner_of("CartPole-v1")
    config = config_of().multi_agent(policy_mapping_fn=lambda agent, episode, **kwargs: "nobody")
    with pytest.raises(ValueError, match="nobody"):
        MultiAgentEnvRunner(config=config).collect(env_steps=1)
    with pytest.raises(ValueError, match="not both"):
        runner_of().collect(env_steps=1, episodes=1)


def test_a_mapping_may_change_with_the_episode() -> None:
    config = config_of(make_multi_agent("CartPole-v1"), env_config={"num_agents": 1}, envs=1)
    config.multi_agent(policy_mapping_fn=lambda agent, episode, **kwargs: f"p{hash(episode.id_) % 2}")
    runner = MultiAgentEnvRunner(config=config)
    collected = runner.collect(episodes=30)
    assert set(collected.rollouts) == {"p0", "p1"}, "a coin thrown 30 times"


class Reusing(MultiAgentEnv):
    """Writes its observations into the same array, and its infos into the same dict; episodes have two steps."""

    possible_agents = ["a"]
    seeds: list[Any] = []

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.observation_spaces, self.action_spaces = {"a": BOX}, {"a": CHOICE}
        self.array, self.info = np.zeros(2, np.float32), dict[str, Any]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        return self._seen(0)

    def _seen(self, t: int) -> Any:
        self.array[:] = self.info["t"] = self.t = t
        return {"a": self.array}, {"a": self.info}

    def step(self, action_dict: Any) -> Any:
        obs, infos = self._seen(self.t + 1)
        return obs, {"a": 1.0}, {"__all__": self.t == 2}, {"__all__": False}, infos


def test_environments_may_reuse_their_arrays() -> None:
    episode = runner_of(Reusing, envs=1).sample(num_episodes=1)[0].agent_episodes["a"]
    assert [obs[0] for obs in episode.get_observations()] == [0, 1, 2]
    assert [info["t"] for info in episode.get_infos()] == [0, 1, 2]


def test_only_the_first_resets_have_a_seed() -> None:
    Reusing.seeds.clear()
    runner_of(Reusing, envs=2).sample(num_episodes=4)
    assert Reusing.seeds[:2] == [1, 2]
    assert Reusing.seeds[2:] == [None] * (len(Reusing.seeds) - 2)


class Late(Reusing):
    """A second agent has its first observation with the last step of a sample, and takes none in it."""

    possible_agents = ["a", "b"]

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.observation_spaces, self.action_spaces = {"a": BOX, "b": BOX}, {"a": CHOICE, "b": CHOICE}

    def step(self, action_dict: Any) -> Any:
        _, rewards, _, truncateds, infos = super().step(action_dict)
        obs = {"a": np.ones(2, np.float32)}
        if self.t >= 4:
            obs["b"] = np.ones(2, np.float32)
        return obs, rewards, {"__all__": self.t == 40}, truncateds, infos


@pytest.mark.parametrize("lstm", [False, True])
def test_pipelines_of_learners_leave_out_agents_without_steps(lstm: bool) -> None:
    from runtime.rllib.connectors.learner import AddNextObservationsFromEpisodesToTrainBatch

    config = config_of(Late, envs=1)
    config.training(
        train_batch_size_per_learner=4,
        minibatch_size=4,
        num_epochs=1,
        learner_connector=lambda *spaces: AddNextObservationsFromEpisodesToTrainBatch(),
    )
    config.rl_module(
        model_config={"fcnet_hiddens": [4], "use_lstm": lstm, "lstm_cell_size": 4, "max_seq_len": 2}
    )
    algorithm = config.build_algo()
    try:
        for _ in range(2):  # the first time, b has not acted
            assert np.isfinite(algorithm.train()["learners"]["p0"]["total_loss"])
    finally:
        algorithm.stop()
