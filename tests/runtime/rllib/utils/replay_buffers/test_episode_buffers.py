"""Replay buffers of episodes under RLlib's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.env.multi_agent_episode import MultiAgentEpisode
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode
from runtime.rllib.utils import replay_buffers
from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger
from runtime.rllib.utils.replay_buffers import (
    EpisodeReplayBuffer,
    MultiAgentEpisodeReplayBuffer,
    MultiAgentPrioritizedEpisodeReplayBuffer,
    PrioritizedEpisodeReplayBuffer,
)
from runtime.rllib.utils.replay_buffers.utils import (
    make_replay_buffer,
    update_priorities_in_episode_replay_buffer,
)


def episode(number: int, length: int, terminated: bool = True) -> SingleAgentEpisode:
    """Observations 100 * number + t, rewards t."""
    return SingleAgentEpisode(
        observations=[np.array([100 * number + t], np.float32) for t in range(length + 1)],
        actions=list(range(length)),
        rewards=[float(t) for t in range(length)],
        terminated=terminated,
        len_lookback_buffer=0,
    )


def rollout(first: int, length: int) -> Rollout:
    obs = np.arange(first, first + length, dtype=np.float32)[:, None]
    segments = Segments(np.array([length]), np.array([True]), np.array([False]), [f"e{first}"], np.array([0]))
    columns = {"obs": obs, "actions": np.arange(length), "rewards": np.ones(length, np.float32)}
    return Rollout(columns, segments, obs[-1:] + 1)


def test_episodes_come_back_as_transitions() -> None:
    buffer = EpisodeReplayBuffer(100, batch_length_T=1, seed=1)
    buffer.add(episode(1, 5))
    buffer.add([episode(2, 3), episode(3, 4, terminated=False)])
    assert (len(buffer), buffer.get_num_episodes(), buffer.get_added_timesteps()) == (12, 3, 12)
    batch = buffer.sample(200)
    assert (batch["new_obs"] == batch["obs"] + 1).all()
    assert (batch["rewards"] == batch["actions"]).all()
    ends = {104: True, 202: True, 303: False}
    assert set(np.unique(batch["obs"][batch["terminateds"]])) == {obs for obs, over in ends.items() if over}
    assert buffer.get_sampled_timesteps() == 200


def test_sequences_have_the_lengths_that_were_asked_for() -> None:
    buffer = EpisodeReplayBuffer(100, batch_size_B=3, batch_length_T=4, seed=1)
    buffer.add(episode(1, 20))
    assert buffer.sample()["obs"].shape == (3, 4, 1)
    assert buffer.sample(batch_size_B=2, batch_length_T=5)["obs"].shape == (2, 5, 1)
    assert buffer.sample(12)["obs"].shape == (3, 4, 1)
    with pytest.raises(ValueError, match="not both"):
        buffer.sample(12, batch_size_B=2)


def test_samples_may_be_episodes_of_n_steps() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(100, alpha=0.5, seed=1)
    buffer.add(episode(1, 10))
    for each in buffer.sample(20, n_step=3, gamma=0.5, beta=1.0, sample_episodes=True):
        t = int(each.get_observations()[0][0]) - 100
        steps = int(each.get_extra_model_outputs("n_step")[0])
        assert steps == min(3, 10 - t)
        assert each.get_observations()[-1][0] == 100 + t + steps
        assert each.get_rewards()[0] == sum(0.5**k * (t + k) for k in range(steps))
        assert each.get_extra_model_outputs("weights")[0] == 1
        assert each.is_terminated == (t + steps == 10)


def test_priorities_are_those_of_the_last_sample() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(100, alpha=1.0, beta=1.0, seed=1)
    buffer.add(episode(1, 10))
    batch = buffer.sample(64)
    buffer.update_priorities(np.where(batch["actions"] == 3, -8.0, 0.0))  # signs of errors do not matter
    again = buffer.sample(64)
    assert (again["actions"] == 3).all()
    with pytest.raises(
        ValueError, match="3 priorities were given, but the last sample of 'default_policy' had 64"
    ):
        buffer.update_priorities(np.ones(3))
    with pytest.raises(ValueError, match="no sample"):
        buffer.update_priorities(np.ones(3), "other")


def test_padding_of_sequences_has_no_priority() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(100, alpha=1.0, seed=1)
    buffer.add(episode(1, 3))
    batch = buffer.sample(batch_size_B=30, batch_length_T=5)
    # Padded steps repeat the last one; their errors must not replace its own.
    buffer.update_priorities(np.where(batch["loss_mask"], 1.0, 0.0))
    weights = buffer.sample(100, batch_length_T=1, beta=1.0)["weights"]
    assert (weights == 1).all()


def test_each_module_has_its_own_steps() -> None:
    buffer = MultiAgentPrioritizedEpisodeReplayBuffer(100, alpha=1.0, seed=1)
    buffer.add({"p0": rollout(0, 5), "p1": rollout(100, 7)})
    assert buffer.get_module_ids() == ["p0", "p1"]
    assert (buffer.get_num_timesteps("p0"), buffer.get_num_timesteps("p1"), len(buffer)) == (5, 7, 12)
    assert buffer.get_num_agent_timesteps() == buffer.get_added_agent_timesteps() == 12
    batch = buffer.sample(50)
    assert (batch["p0"]["obs"] < 100).all()
    assert (batch["p1"]["obs"] >= 100).all()
    assert buffer.sample(5, modules_to_sample=["p1"]).keys() == {"p1"}
    batch = buffer.sample(50)
    errors = {module_id: np.where(columns["actions"] == 2, 5.0, 0.0) for module_id, columns in batch.items()}
    update_priorities_in_episode_replay_buffer(
        replay_buffer=buffer, td_errors={"p0": errors["p0"], "p1": {"td_error": errors["p1"]}}
    )
    assert (buffer.sample(50, modules_to_sample=["p0"])["p0"]["actions"] == 2).all()
    assert (buffer.sample(50)["p1"]["actions"] == 2).all()
    with pytest.raises(NotImplementedError, match="'independent'"):
        buffer.sample(5, replay_mode="lockstep")


def test_agents_steps_of_episodes_go_to_their_modules() -> None:
    episode = MultiAgentEpisode(agent_to_module_mapping_fn=lambda agent, episode: "p" + agent)
    episode.add_env_reset(observations={"0": np.zeros(1, np.float32), "1": np.ones(1, np.float32)})
    episode.add_env_step(
        observations={"0": np.full(1, 2.0, np.float32), "1": np.full(1, 3.0, np.float32)},
        actions={"0": 0, "1": 1},
        rewards={"0": 1.0, "1": 2.0},
        terminateds={"__all__": True, "0": True, "1": True},
    )
    buffer = MultiAgentEpisodeReplayBuffer(100, seed=1)
    buffer.add([episode])
    batch = buffer.sample(3)
    assert {module_id: columns["rewards"].tolist() for module_id, columns in batch.items()} == {
        "p0": [1.0] * 3,
        "p1": [2.0] * 3,
    }
    assert (batch["p1"]["new_obs"] == 3).all()


def test_metrics_count_what_is_new_and_all() -> None:
    buffer = EpisodeReplayBuffer(100, batch_length_T=1, seed=1)
    totals = MetricsLogger(root=True)
    for number in (1, 2):
        buffer.add(episode(number, 5))
        buffer.sample(8)
        totals.aggregate([buffer.get_metrics()])
        result = totals.compile()
        assert (result["num_env_steps_added"], result["num_env_steps_added_lifetime"]) == (5, 5 * number)
        assert (result["num_env_steps_sampled"], result["num_env_steps_sampled_lifetime"]) == (8, 8 * number)
        assert (result["num_env_steps_stored"], result["num_episodes_stored"]) == (5 * number, number)


def test_evicted_episodes_are_counted() -> None:
    buffer = EpisodeReplayBuffer(12, batch_length_T=1, seed=1)
    for number in range(5):
        buffer.add(episode(number, 5))
    assert buffer.get_num_episodes() == 2
    assert buffer.get_num_episodes_evicted() == 3
    assert len(buffer) == 10


def test_a_buffer_with_the_state_of_another_has_its_steps() -> None:
    first = PrioritizedEpisodeReplayBuffer(50, alpha=0.6, seed=1)
    first.add(episode(1, 5))
    first.sample(4)
    first.update_priorities(np.arange(1, 5))
    second = PrioritizedEpisodeReplayBuffer(50, alpha=0.6, seed=2)
    second.set_state(first.get_state())
    second._rng.bit_generator.state = first._rng.bit_generator.state
    one, two = first.sample(30, beta=0.5), second.sample(30, beta=0.5)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert second.get_sampled_timesteps() == first.get_sampled_timesteps()


@pytest.mark.parametrize(
    ("config", "cls"),
    [
        ({"type": "EpisodeReplayBuffer", "capacity": 7}, EpisodeReplayBuffer),
        ({"type": MultiAgentEpisodeReplayBuffer, "capacity": 7}, MultiAgentEpisodeReplayBuffer),
        (
            {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 7, "alpha": 0.3, "beta": 0.4},
            PrioritizedEpisodeReplayBuffer,
        ),
        (
            {
                "type": "runtime.rllib.utils.replay_buffers.multi_agent_prioritized_episode_buffer."
                "MultiAgentPrioritizedEpisodeReplayBuffer",
                "capacity": 7,
            },
            MultiAgentPrioritizedEpisodeReplayBuffer,
        ),
    ],
)
def test_buffers_are_made_by_name_path_and_class(config: dict[str, Any], cls: type) -> None:
    buffer = make_replay_buffer(config, seed=1)
    assert type(buffer) is cls
    assert buffer.capacity == 7


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(
        ValueError, match="There is no replay buffer 'Nothing'; there are EpisodeReplayBuffer"
    ):
        make_replay_buffer({"type": "Nothing"})
    with pytest.raises(ValueError, match="old API stack: use MultiAgentPrioritizedEpisodeReplayBuffer"):
        make_replay_buffer({"type": "MultiAgentPrioritizedReplayBuffer"})
    with pytest.raises(ImportError, match="FifoReplayBuffer belongs to RLlib's old API stack"):
        replay_buffers.FifoReplayBuffer  # noqa: B018
    with pytest.raises(TypeError, match="no argument 'aplha'"):
        PrioritizedEpisodeReplayBuffer(10, aplha=0.5)
    with pytest.raises(TypeError, match="no argument 'batch'"):
        EpisodeReplayBuffer(10).sample(batch=3)
    with pytest.raises(ValueError, match="must not be negative"):
        PrioritizedEpisodeReplayBuffer(10, alpha=-1.0)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        replay_buffers.Nothing  # noqa: B018
