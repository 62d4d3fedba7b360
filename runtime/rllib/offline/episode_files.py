"""Episodes as bytes: MessagePack with arrays in the layout of `msgpack_numpy`, one episode per row of a table.

This is the layout in which Ray RLlib records episodes, so both read the files of the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from runtime.rllib._core import rollout as rollouts
from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.core.columns import Columns

COLUMN = "item"  # of the table


def encode_segments(rollout: Rollout, module_id: str | None = None) -> list[bytes]:
    """One value per segment."""
    segments = rollout.segments
    encoder = msgspec.msgpack.Encoder()
    now = time.time()
    result = []
    for number, (start, length) in enumerate(zip(segments.starts, segments.lengths, strict=True)):
        rows = slice(int(start), int(start + length))
        obs = trees.tree_map(
            lambda column, final, rows=rows, number=number: np.concatenate(
                [column[rows], final[number : number + 1]]
            ),
            rollout.columns[Columns.OBS],
            rollout.final_obs,
        )
        outputs = {
            name: _buffer(trees.take(column, rows))
            for name, column in rollout.columns.items()
            if name not in {Columns.OBS, Columns.ACTIONS, Columns.REWARDS}
        }
        infos: list[Any] = [{}] * (int(length) + 1)
        if rollout.infos is not None:
            infos[1:] = rollout.infos[rows]
        began = int(segments.t_started[number])
        state = {
            "id_": segments.episode_ids[number],
            "agent_id": None if segments.agent_ids is None else segments.agent_ids[number],
            "module_id": module_id,
            "multi_agent_episode_id": None,
            "observations": _buffer(obs),
            "actions": _buffer(trees.take(rollout.columns[Columns.ACTIONS], rows)),
            "rewards": _buffer(rollout.columns[Columns.REWARDS][rows]),
            "infos": {"data": infos, "lookback": 0, "finalized": False, "space": None},
            "extra_model_outputs": outputs or None,
            "is_terminated": bool(segments.terminated[number]),
            "is_truncated": bool(segments.truncated[number]),
            "t_started": began,
            "t": began + int(length),
            "_observation_space": None,
            "_action_space": None,
            "_start_time": None,
            "_last_step_time": now,
            "custom_data": {},
        }
        result.append(encoder.encode(_plain(state)))
    return result


def decode_episodes(items: Iterable[bytes]) -> Rollout:
    """One segment per value of `encode_segments`, or of Ray RLlib's recordings.

    Raises:
        ValueError: a value is no episode, or there is none.
    """
    decoder = msgspec.msgpack.Decoder()
    parts = []
    for item in items:
        try:
            state = _arrays(decoder.decode(item))
            part = _segment(state)
        except (msgspec.DecodeError, KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"A row of the offline data is no recorded episode ({type(error).__name__}: {error}). Tables of "
                "columns are read without `input_read_episodes=True`"
            ) from error
        if part.rows:
            parts.append(part)
    if not parts:
        raise ValueError("The offline data has no episode with a step")
    common = set.intersection(*(set(part.columns) for part in parts))
    for part in parts:
        part.columns = {name: column for name, column in part.columns.items() if name in common}
    return rollouts.concatenate(parts)


def _buffer(data: Any) -> dict[str, Any]:
    return {"data": data, "lookback": 0, "finalized": True, "space": None}


def _segment(state: Mapping[str, Any]) -> Rollout:
    obs = _steps(state["observations"])
    length = len(next(trees.leaves(obs))) - 1
    columns = {
        Columns.OBS: trees.take(obs, slice(0, length)),
        Columns.ACTIONS: _steps(state["actions"]),
        Columns.REWARDS: np.asarray(_steps(state["rewards"]), np.float32),
    }
    for name, output in (state["extra_model_outputs"] or {}).items():
        if name not in {Columns.STATE_IN, Columns.STATE_OUT}:
            columns[name] = _steps(output)
    agent = state["agent_id"]
    return Rollout(
        columns,
        Segments(
            np.array([length]),
            np.array([state["is_terminated"]], bool),
            np.array([state["is_truncated"]], bool),
            [str(state["id_"])],
            np.array([state["t_started"]], np.int64),
            None if agent is None else [agent],
        ),
        trees.take(obs, slice(length, length + 1)),
    )


def _steps(buffer: Mapping[str, Any]) -> Any:
    """Tree of arrays [steps, ...] of a buffer without its lookback, whether its steps are joined or listed."""
    data = buffer["data"]
    if not buffer["finalized"]:
        data = trees.stack(data)
    return trees.tree_map(lambda leaf: np.asarray(leaf)[buffer["lookback"] :], data)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return [_plain(item) for item in value]
        return {
            b"nd": True,
            b"type": value.dtype.str,
            b"kind": b"",
            b"shape": value.shape,
            b"data": value.tobytes(),
        }
    if isinstance(value, np.generic):
        return {b"nd": False, b"type": value.dtype.str, b"data": value.tobytes()}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        if b"nd" in value:
            kind = value[b"type"]
            dtype = np.dtype(kind if isinstance(kind, str) else kind.decode())
            array = np.frombuffer(value[b"data"], dtype)
            return array.reshape(value[b"shape"]).copy() if value[b"nd"] else array[0]
        return {key: _arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_arrays(item) for item in value]
    return value
