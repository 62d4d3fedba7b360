"""Batches of recorded data: held, streamed, of tables, episodes, sample batches and pre-learners of users."""

import itertools
import json

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.data.block import BlockAccessor
from runtime.rllib._core.packing import pack
from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib._core.tables import table_from_rollout
from runtime.rllib.algorithms.bc import BCConfig
from runtime.rllib.algorithms.iql import IQLConfig
from runtime.rllib.algorithms.marwil import MARWILConfig
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode
from runtime.rllib.offline.episode_files import encode_segments
from runtime.rllib.offline.offline_data import OfflineData, resolve_input
from runtime.rllib.offline.offline_prelearner import OfflinePreLearner

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture(scope="module")
def session(no_leaks):
    import runtime as ray

    ray.init(num_cpus=2)
    yield
    ray.shutdown()


LENGTHS = [5, 3, 8, 4]


def rollout():
    rows = sum(LENGTHS)
    segments = Segments(
        np.array(LENGTHS),
        np.array([True, False, True, False]),
        np.array([False, True, False, True]),
        list("abcd"),
        np.zeros(4, np.int64),
    )
    obs = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    columns = {"obs": obs, "actions": np.arange(rows), "rewards": np.ones(rows, np.float32)}
    return Rollout(columns, segments, -np.ones((4, 2), np.float32))


def settings(path, kind=MARWILConfig, **offline):
    return (
        kind()
        .environment(observation_space=gym.spaces.Box(-1, 1, (2,)), action_space=gym.spaces.Discrete(20))
        .offline_data(input_=path, **offline)
        .debugging(seed=0)
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two Parquet files with the rows of `rollout`."""
    folder = tmp_path_factory.mktemp("table")
    table = BlockAccessor.batch_to_block(table_from_rollout(rollout(), "default_policy"))
    pq.write_table(table.slice(0, 10), folder / "part-0.parquet")
    pq.write_table(table.slice(10), folder / "part-1.parquet")
    return folder


def by_action(batch):
    order = np.argsort(batch["actions"])
    return {name: column[order] for name, column in batch.items()}


def test_an_epoch_of_held_rows_has_each_once(files):
    data = OfflineData(settings(str(files)))
    assert data.num_rows() == 20
    batches = [data.sample(5)["default_policy"] for _ in range(4)]
    epoch = by_action({name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]})
    expected = rollout()
    assert epoch["actions"].tolist() == list(range(20))
    np.testing.assert_array_equal(epoch["obs"], expected.columns["obs"])
    np.testing.assert_array_equal(epoch["new_obs"], expected.next_obs())
    np.testing.assert_array_equal(epoch["terminateds"], expected.terminateds())
    assert data.sample(50).env_steps() == 50  # epochs follow one another
    assert [next(each).env_steps() for each in data.sample(5, return_iterator=True, num_shards=2)] == [5, 5]


def test_whole_segments_are_drawn(files):
    data = OfflineData(settings(str(files)))
    drawn = data.sample_rollouts(20)["default_policy"]
    assert sorted(drawn.segments.lengths) == sorted(LENGTHS)
    by_id = np.argsort(drawn.segments.episode_ids)
    np.testing.assert_array_equal(drawn.take_segments(by_id).next_obs(), rollout().next_obs())


def test_an_epoch_of_streamed_rows_has_each_once(files):
    stream = {"materialize_data": False, "materialize_mapped_data": False, "input_read_batch_size": 6}
    data = OfflineData(settings(str(files), **stream))
    assert data.num_rows() == 20
    for _ in range(2):
        actions = np.concatenate([data.sample(4)["default_policy"]["actions"] for _ in range(5)])
        assert sorted(actions) == list(range(20))
    assert data.sample_rollouts(9)["default_policy"].rows == 9


def test_paths_are_resolved(files, tmp_path):
    parts = [str(files / "part-0.parquet"), str(files / "part-1.parquet")]
    assert (
        resolve_input(str(files / "*.parquet"))
        == parts
        == resolve_input([files / "part-0.parquet", parts[1]])
    )
    assert OfflineData(settings(str(files / "*-1.parquet"))).num_rows() == 10
    with pytest.raises(ValueError, match="No file of offline data matches"):
        resolve_input(str(tmp_path / "*.parquet"))
    with pytest.raises(ValueError, match="input_="):
        resolve_input("sampler")
    with pytest.raises(ValueError, match="no reader"):
        OfflineData(settings(str(files), input_read_method="load"))


def test_recorded_episodes_are_read(tmp_path):
    items = pa.array(encode_segments(rollout()), pa.binary())
    pq.write_table(pa.table({"item": items}), tmp_path / "episodes.parquet")
    data = OfflineData(settings(str(tmp_path), input_read_episodes=True))
    drawn = data.sample_rollouts(20)["default_policy"]
    assert sorted(drawn.columns["actions"]) == list(range(20))
    pq.write_table(pa.table({"item": [b"1"]}), tmp_path / "episodes.parquet")
    with pytest.raises(ValueError, match="no recorded episode"):
        OfflineData(settings(str(tmp_path), input_read_episodes=True)).sample(1)


@pytest.mark.parametrize("packed", [False, True])
def test_sample_batches_of_json_lines_are_read(tmp_path, packed):
    table = table_from_rollout(rollout())
    table["dones"] = table.pop("terminateds")
    edges = np.cumsum([0, *LENGTHS])
    with open(tmp_path / "batches.json", "w") as out:
        for start, end in itertools.pairwise(edges):
            line = {"type": "SampleBatch"}
            for name, column in table.items():
                rows = column[start:end]
                line[name] = pack(rows) if packed and name in {"obs", "new_obs"} else rows.tolist()
            out.write(json.dumps(line) + "\n")
    config = settings(
        str(tmp_path / "batches.json"),
        input_read_method="read_json",
        input_read_method_kwargs={"lines": True},
        input_read_sample_batches=True,
    )
    drawn = OfflineData(config).sample_rollouts(20)["default_policy"]
    assert sorted(drawn.segments.lengths) == sorted(LENGTHS)
    drawn = drawn.take_segments(np.argsort(drawn.segments.episode_ids))
    np.testing.assert_array_equal(drawn.next_obs(), rollout().next_obs())
    assert drawn.segments.terminated.tolist() == [True, False, True, False]


def test_columns_have_the_names_of_the_schema(tmp_path):
    pq.write_table(pa.table({"o": [[0.0, 1.0], [2.0, 3.0]], "a": [0, 1]}), tmp_path / "foreign.parquet")
    config = settings(
        str(tmp_path), BCConfig, input_read_schema={"obs": "o", "actions": "a"}, ignore_final_observation=True
    )
    batch = by_action(OfflineData(config).sample(2)["default_policy"])
    assert batch["obs"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    with pytest.raises(ValueError, match="lacks 'obs', 'actions'"):
        OfflineData(settings(str(tmp_path), BCConfig)).sample(1)


class Doubling(OfflinePreLearner):
    def _map_to_episodes(self, batch, to_numpy=False, **kwargs):
        found = super()._map_to_episodes(batch, to_numpy, **kwargs)["episodes"]
        return {"episodes": [self.doubled(episode) for episode in found]}

    @staticmethod
    def doubled(episode):
        return SingleAgentEpisode(
            id_=episode.id_,
            observations=[2 * obs for obs in episode.get_observations()],
            actions=list(episode.get_actions()),
            rewards=list(episode.get_rewards()),
            terminated=episode.is_terminated,
            truncated=episode.is_truncated,
            len_lookback_buffer=0,
        )


def test_a_prelearner_of_the_user_makes_the_batches(files):
    data = OfflineData(settings(str(files), prelearner_class=Doubling))
    batches = [data.sample(10)["default_policy"] for _ in range(2)]
    epoch = by_action({name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]})
    np.testing.assert_array_equal(epoch["obs"], 2 * rollout().columns["obs"])
    np.testing.assert_array_equal(epoch["new_obs"], 2 * rollout().next_obs())
    assert epoch["truncateds"].sum() == 2
    with pytest.raises(ValueError, match="need episodes"):
        data.sample_rollouts(4)


def test_modules_of_several_agents_have_batches_of_their_own(tmp_path):
    table = table_from_rollout(rollout())
    table["module_id"] = np.repeat(["even", "odd", "even", "odd"], LENGTHS)
    pq.write_table(BlockAccessor.batch_to_block(table), tmp_path / "agents.parquet")
    config = settings(str(tmp_path)).multi_agent(
        policies={"even", "odd"}, policy_mapping_fn=lambda agent, _: agent
    )
    batch = OfflineData(config).sample(4)
    assert {name: part.count for name, part in batch.items()} == {"even": 4, "odd": 4}
    assert OfflineData(config).num_rows() == 20
    stream = {"materialize_data": False, "materialize_mapped_data": False, "input_read_batch_size": 5}
    streamed = OfflineData(config.offline_data(**stream))  # chunks without rows of one of the modules
    for _ in range(3):
        assert {name: part.count for name, part in streamed.sample(4).items()}["even"] == 4


def test_actions_that_are_not_normalized_are_refused(files):
    with pytest.raises(ValueError, match=r"actions of up to 19, but IQLConfig"):
        OfflineData(settings(str(files), IQLConfig)).sample(1)
