"""Tables of steps become segments of episodes, and back."""

import numpy as np
import pytest

from runtime.rllib._core.packing import pack, unpack, unpack_column
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.tables import as_column, rollout_from_table, table_from_rollout


def table(lengths, *, ended="terminateds", ids=True, seed=0):
    """Episodes whose observations count up, one after another."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    obs = np.concatenate([100.0 * number + np.arange(n + 1) for number, n in enumerate(lengths)])
    firsts = np.cumsum([0] + [n + 1 for n in lengths])[:-1]
    index = np.concatenate([first + np.arange(n) for first, n in zip(firsts, lengths, strict=True)])
    last = np.cumsum(lengths) - 1
    flags = np.zeros(rows, bool)
    flags[last] = True
    result = {
        "obs": obs[index, None].astype(np.float32),
        "new_obs": obs[index + 1, None].astype(np.float32),
        "actions": rng.integers(0, 2, rows),
        "rewards": np.ones(rows, np.float32),
        ended: flags,
    }
    if ids:
        result["eps_id"] = np.repeat([f"episode{i}" for i in range(len(lengths))], lengths).astype(object)
        result["t"] = np.concatenate([np.arange(n) for n in lengths])
    return result


def equal(a: Rollout, b: Rollout):
    assert a.segments.lengths.tolist() == b.segments.lengths.tolist()
    assert a.segments.terminated.tolist() == b.segments.terminated.tolist()
    assert a.segments.truncated.tolist() == b.segments.truncated.tolist()
    assert a.columns.keys() == b.columns.keys()
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name])
    np.testing.assert_array_equal(a.final_obs, b.final_obs)


@pytest.mark.parametrize("ids", [True, False])
def test_episodes_are_found_by_their_ends_and_by_their_ids(ids):
    rollout = rollout_from_table(table([3, 1, 4], ids=ids))
    assert rollout.segments.lengths.tolist() == [3, 1, 4]
    assert rollout.segments.terminated.all()
    assert not rollout.segments.truncated.any()
    assert rollout.final_obs.tolist() == [[3.0], [101.0], [204.0]]
    if ids:
        assert rollout.segments.episode_ids == ["episode0", "episode1", "episode2"]


def test_a_shuffled_table_has_whole_episodes_again():
    whole = table([5, 2, 6])
    order = np.random.default_rng(3).permutation(13)
    shuffled = rollout_from_table({name: column[order] for name, column in whole.items()})
    ordered = rollout_from_table(whole)
    by_id = np.argsort(shuffled.segments.episode_ids)
    equal(shuffled.take_segments(by_id), ordered)


def test_a_gap_in_an_episode_cuts_it_with_the_observation_after_its_row():
    whole = table([6])
    for missing_names in ((), ("t",), ("t", "eps_id")):
        kept = [0, 1, 2, 4, 5]
        part = {name: column[kept] for name, column in whole.items() if name not in missing_names}
        rollout = rollout_from_table(part)
        assert rollout.segments.lengths.tolist() == [3, 2]
        assert rollout.segments.terminated.tolist() == [False, True]
        assert rollout.final_obs.tolist() == [[3.0], [6.0]]


def test_without_next_observations_a_cut_segment_gives_its_last_row_as_final_observation():
    data = table([3, 1, 2], ended="truncateds")
    del data["new_obs"]
    rollout = rollout_from_table(data)
    assert rollout.segments.lengths.tolist() == [2, 1]  # the episode of one row is gone
    assert rollout.segments.truncated.all()
    assert rollout.final_obs.tolist() == [[2.0], [201.0]]
    assert rollout.columns["obs"][:, 0].tolist() == [0.0, 1.0, 200.0]
    data["terminateds"] = data.pop("truncateds")
    assert rollout_from_table(data).segments.lengths.tolist() == [3, 1, 2]
    zeros = rollout_from_table(data, ignore_final_observation=True)
    assert zeros.rows == 6
    assert not zeros.final_obs.any()


def test_the_schema_maps_foreign_names_and_other_numeric_columns_are_outputs():
    data = table([2, 2])
    foreign = {"o": data["obs"], "a": data["actions"], "r": data["rewards"], "done": data["terminateds"]}
    schema = {"obs": "o", "actions": "a", "rewards": "r", "terminateds": "done"}
    rollout = rollout_from_table(
        {**foreign, "action_logp": np.full(4, -0.5), "note": np.array(["x"] * 4)}, schema=schema
    )
    assert rollout.segments.lengths.tolist() == [2, 2]
    assert sorted(rollout.columns) == ["action_logp", "actions", "obs", "rewards"]


def test_missing_columns_are_named():
    data = table([2])
    del data["rewards"]
    with pytest.raises(ValueError, match="lacks 'rewards'; it has 'obs'"):
        rollout_from_table(data)
    assert not rollout_from_table(data, required=("obs", "actions")).columns["rewards"].any()
    data["rewards"] = np.ones(3)
    with pytest.raises(ValueError, match="another number of rows of 'rewards'"):
        rollout_from_table(data)


def test_a_rollout_survives_its_table():
    rollout = rollout_from_table(table([3, 1, 4]))
    rollout.columns["action_logp"] = np.linspace(-1, 0, 8)
    back = table_from_rollout(rollout, "default_policy")
    assert back["t"].tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert set(back["module_id"]) == {"default_policy"}
    equal(rollout_from_table(back), rollout)


def test_nested_observations_survive_as_rows_of_dicts():
    flat = rollout_from_table(table([2, 3]))
    tree = {"a": flat.columns["obs"], "b": (flat.columns["obs"] + 1, flat.columns["obs"] + 2)}
    final = {"a": flat.final_obs, "b": (flat.final_obs + 1, flat.final_obs + 2)}
    nested = Rollout({**flat.columns, "obs": tree}, flat.segments, final)
    back = rollout_from_table(table_from_rollout(nested))
    assert back.segments.lengths.tolist() == [2, 3]
    np.testing.assert_array_equal(back.columns["obs"]["b"]["1"], tree["b"][1])
    np.testing.assert_array_equal(back.final_obs["a"], final["a"])


def test_columns_of_lists_and_of_packed_strings_become_arrays():
    rows = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    as_lists = np.empty(3, object)
    as_lists[:] = [row.tolist() for row in rows]
    np.testing.assert_array_equal(as_column(as_lists), rows)
    texts = np.array([pack(row) for row in rows], object)
    np.testing.assert_array_equal(as_column(texts), rows)
    ids = np.array(["4fae", "77b1"], object)
    assert as_column(ids).tolist() == ids.tolist()


def test_packed_values_cannot_run_code():
    import base64
    import pickle

    import pyarrow as pa

    class Evil:
        def __reduce__(self):
            return print, ("ran",)

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="only arrays are read"):
        unpack(base64.b64encode(sink.getvalue()))
    assert unpack(pack({"a": [1, "b"]})) == {"a": [1, "b"]}
    assert unpack_column(np.array(["no", "text"])).tolist() == ["no", "text"]


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_one_row_or_none(rows):
    data = {name: column[:rows] for name, column in table([3]).items()}
    rollout = rollout_from_table(data)
    assert rollout.rows == len(rollout.segments) == rows
    assert rollout.final_obs.tolist() == [[1.0]] * rows
    del data["new_obs"]
    assert rollout_from_table(data).rows == 0  # what comes after the row is unknown
