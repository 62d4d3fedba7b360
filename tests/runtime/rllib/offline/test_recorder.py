"""Files of recorded experience."""

import types

import numpy as np
import pyarrow.parquet as pq
import pytest

from runtime.rllib import offline
from runtime.rllib._core import tables
from runtime.rllib._core.rollout import Rollout, Segments, concatenate
from runtime.rllib._core.tables import rollout_from_table
from runtime.rllib.offline.episode_files import decode_episodes
from runtime.rllib.offline.recorder import Recorder


def settings(path, **changes):
    fields = {
        "output": str(path),
        "output_filesystem": None,
        "output_filesystem_kwargs": {},
        "output_write_episodes": False,
        "output_write_method": "write_parquet",
        "output_write_method_kwargs": {},
        "output_compress_columns": ["obs"],
        "output_max_file_size": None,
        "output_max_rows_per_file": None,
        "output_write_remaining_data": False,
    }
    return types.SimpleNamespace(**{**fields, **changes})


def rollout(number, rows=6):
    segments = Segments(np.array([rows]), np.array([True]), np.array([False]), [f"e{number}"], np.array([0]))
    obs = (100 * number + np.arange(rows * 2, dtype=np.float32)).reshape(rows, 2)
    columns = {"obs": obs, "actions": np.arange(rows), "rewards": np.ones(rows, np.float32)}
    return Rollout(columns, segments, np.zeros((1, 2), np.float32))


def read(folder):
    """Files of runner 3 -> rows."""
    return {path.name: pq.read_table(path) for path in sorted(folder.glob("cartpole/run-000003-*"))}


def as_rollout(table):
    from runtime.data.block import BlockAccessor

    return rollout_from_table(BlockAccessor(table).to_numpy())


def test_each_sample_is_a_file_of_columns(tmp_path):
    recorder = Recorder(settings(tmp_path), "cartpole", 3)
    for number in range(2):
        recorder.add({"default_policy": rollout(number)})
    recorder.close()
    files = read(tmp_path)
    assert [name[-5:] for name in files] == ["00001", "00002"]
    both = concatenate([as_rollout(table) for table in files.values()])
    expected = concatenate([rollout(0), rollout(1)])
    np.testing.assert_array_equal(both.columns["obs"], expected.columns["obs"])
    np.testing.assert_array_equal(both.next_obs(), expected.next_obs())
    assert both.segments.episode_ids == ["e0", "e1"]
    metadata = pq.read_metadata(tmp_path / "cartpole" / next(iter(files)) / "part-000000.parquet")
    assert metadata.row_group(0).column(0).compression == "LZ4"


def test_a_restarted_runner_adds_to_what_there_is(tmp_path):
    for number in range(2):
        recorder = Recorder(settings(tmp_path), "cartpole", 3)
        recorder.add({"default_policy": rollout(number)})
        recorder.close()
    assert sum(table.num_rows for table in read(tmp_path).values()) == 12


@pytest.mark.parametrize("writes_rest", [False, True])
def test_files_have_the_rows_that_were_asked_for(tmp_path, writes_rest):
    limits = {"output_max_rows_per_file": 4, "output_write_remaining_data": writes_rest}
    recorder = Recorder(settings(tmp_path, **limits), "cartpole", 3)
    recorder.add({"default_policy": rollout(0)})
    assert recorder.buffered_rows == 2
    recorder.add({"default_policy": rollout(1, rows=9)})
    assert recorder.buffered_rows == 3
    recorder.close()
    assert [table.num_rows for table in read(tmp_path).values()] == [4, 4, 4, 3][: 3 + writes_rest]


def test_large_samples_are_split_by_bytes(tmp_path):
    row_bytes = tables.table_from_rollout(rollout(0, rows=1))
    most = 5 * sum(column.nbytes for column in row_bytes.values() if column.dtype.kind != "U")
    recorder = Recorder(settings(tmp_path, output_max_file_size=most), "cartpole", 3)
    recorder.add({"default_policy": rollout(0, rows=40)})
    assert recorder.buffered_rows == 0
    files = list(read(tmp_path).values())
    assert len(files) > 5
    assert sum(table.num_rows for table in files) == 40
    assert max(table.num_rows for table in files) <= 5
    recorder.add({"default_policy": rollout(1, rows=1)})
    assert len(read(tmp_path)) == len(files) + 1


@pytest.mark.parametrize("output", ["logdir", lambda context: None, 3])
def test_the_old_stacks_outputs_are_refused(output):
    with pytest.raises(ValueError, match="give a folder or a URI"):
        Recorder(types.SimpleNamespace(output=output), "cartpole", 1)


def test_old_names_say_what_there_is_instead():
    for name, instead in {
        "JsonReader": "input_read_method",
        "JsonWriter": "output",
        "DoublyRobust": "offline_evaluation_type",
    }.items():
        with pytest.raises(ImportError, match=f"{name} belongs to RLlib's old API stack.*{instead}"):
            getattr(offline, name)
    assert not hasattr(offline, "Nothing")


def test_rows_may_be_whole_episodes(tmp_path):
    limits = {"output_max_rows_per_file": 2, "output_write_episodes": True}
    recorder = Recorder(settings(tmp_path, **limits), "cartpole", 3)
    for number in range(3):
        recorder.add({"default_policy": rollout(number)})
    (table,) = read(tmp_path).values()
    back = decode_episodes(table["item"].to_pylist())
    assert back.segments.episode_ids == ["e0", "e1"]
    assert recorder.buffered_rows == 1


def test_an_unwritable_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    recorder = Recorder(settings(tmp_path / "file"), "cartpole", 1)
    with pytest.raises(OSError, match="file"):
        recorder.add({"default_policy": rollout(0)})
