"""Tables of experience, one row per step, to rollouts and back.

A table names its episodes by an "eps_id" column, by its "terminateds" and "truncateds", or by both. Its "new_obs" are
the observations after each row; they show where an episode has a gap, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from runtime.rllib.core.columns import Columns

from . import trees
from .packing import unpack_column
from .rollout import Rollout, Segments
from .trees import Tree

SCHEMA: dict[str, str] = {
    name: name
    for name in (
        Columns.EPS_ID,
        Columns.AGENT_ID,
        Columns.MODULE_ID,
        Columns.OBS,
        Columns.ACTIONS,
        Columns.REWARDS,
        Columns.INFOS,
        Columns.NEXT_OBS,
        Columns.TERMINATEDS,
        Columns.TRUNCATEDS,
        Columns.T,
        "agent_index",
        "dones",
        "unroll_id",
    )
}
"""What each column means -> what the table calls it."""

_NOT_OUTPUTS = frozenset({*SCHEMA, "type", "weights", Columns.STATE_IN, Columns.STATE_OUT})


def as_column(values: Any) -> Tree:
    """A tree of arrays [rows, ...] of a column as a table gives it.

    Args:
        values: an array, a list, an array of objects (lists or arrays of one shape, dicts, packed strings), or a dict
            of columns.

    Raises:
        ValueError: the rows have different shapes.
    """
    if isinstance(values, Mapping):
        return {name: as_column(value) for name, value in values.items()}
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=_row_dtype(values))
    if array.dtype.kind in "US" and len(array):
        return unpack_column(array)
    if array.dtype != object or not len(array):
        return array
    first = array[0]
    if isinstance(first, str | bytes):
        return unpack_column(array)
    if isinstance(first, Mapping):
        return {name: as_column([row[name] for row in array]) for name in first}
    if isinstance(first, np.ndarray | list | tuple):
        rows = [as_column(row) if isinstance(row, list | tuple) else _dense(row) for row in array]
        return np.stack(rows)
    return array if first is None else np.asarray(array.tolist())


def _row_dtype(values: Any) -> Any:
    """Object for a list of lists of different depths or lengths, else NumPy's choice."""
    try:
        np.asarray(values)
    except ValueError:
        return object
    return None


def _dense(row: np.ndarray) -> np.ndarray:
    """A row that Arrow gave as an array of arrays (a list of lists) as one array."""
    return np.stack([_dense(item) for item in row]) if row.dtype == object and len(row) else row


def rollout_from_table(
    table: Mapping[str, Any],
    *,
    schema: Mapping[str, str] = SCHEMA,
    required: Sequence[str] = (Columns.OBS, Columns.ACTIONS, Columns.REWARDS),
    ignore_final_observation: bool = False,
) -> Rollout:
    """The rows as segments of episodes.

    A new segment begins where the episode's id (or its agent) changes, after a row that ended an episode, where the
    time step "t" jumps, and where "new_obs" is not the next row's observation. With ids and time steps, rows are first
    put in order, so that a shuffled table has whole episodes again.

    Args:
        table: columns of equal length.
        schema: what each column means -> what the table calls it.
        required: the columns that must be there. Without rewards, rewards are 0.
        ignore_final_observation: the observations after the segments' last rows are zeros, whatever "new_obs" says.
            Without this and without "new_obs", the last row of a segment that did not terminate gives only its
            observation: what came after it is unknown.

    Raises:
        ValueError: a required column is missing, or columns differ in length.
    """
    columns = {meaning: as_column(table[name]) for meaning, name in schema.items() if name in table}
    if missing := [schema.get(name, name) for name in required if name not in columns]:
        raise ValueError(
            f"Offline data lacks {_listed(missing)}; it has {_listed(table)}. Map its names with "
            '`.offline_data(input_read_schema={"obs": "their name", ...})`'
        )
    for name, column in table.items():
        if name not in _NOT_OUTPUTS and name not in schema.values():
            output = as_column(column)
            if all(leaf.dtype != object and leaf.dtype.kind in "biuf" for leaf in trees.leaves(output)):
                columns[name] = output
    count = len(next(trees.leaves(columns[Columns.OBS])))
    for name, column in columns.items():
        if any(len(leaf) != count for leaf in trees.leaves(column)):
            raise ValueError(f"Offline data has {count} observations but another number of rows of {name!r}")
    columns.setdefault(Columns.REWARDS, np.zeros(count, np.float32))
    if Columns.T in columns and Columns.EPS_ID in columns:
        columns = _in_order(columns)
    terminated = _flags(columns, Columns.TERMINATEDS, "dones", count)
    truncated = _flags(columns, Columns.TRUNCATEDS, None, count)
    lengths = _lengths(columns, terminated | truncated, count)
    return _cut(columns, lengths, terminated, truncated, ignore_final_observation)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"


def _in_order(columns: dict[str, Tree]) -> dict[str, Tree]:
    """Episode after episode by time step; episodes in the order of their first rows."""
    _, firsts, episode = np.unique(columns[Columns.EPS_ID], return_index=True, return_inverse=True)
    keys = [columns[Columns.T], firsts[episode]]
    if Columns.AGENT_ID in columns and columns[Columns.AGENT_ID][0] is not None:
        keys.insert(1, np.unique(columns[Columns.AGENT_ID].astype(str), return_inverse=True)[1])
    order = np.lexsort(keys)
    if np.array_equal(order, np.arange(len(order))):
        return columns
    return {name: trees.take(column, order) for name, column in columns.items()}


def _flags(columns: Mapping[str, Tree], name: str, other: str | None, count: int) -> np.ndarray:
    """bool [rows]; all False without the column."""
    column = columns.get(name, columns.get(other) if other else None)
    return np.zeros(count, bool) if column is None else column.astype(bool)


def _lengths(columns: Mapping[str, Tree], ended: np.ndarray, count: int) -> np.ndarray:
    """int64 [S], the rows of each segment."""
    begins = np.ones(count, bool)
    begins[1:] = ended[:-1]
    for name in (Columns.EPS_ID, Columns.AGENT_ID, "unroll_id"):
        if name in columns:
            begins[1:] |= columns[name][1:] != columns[name][:-1]
    if Columns.T in columns:
        begins[1:] |= columns[Columns.T][1:] != columns[Columns.T][:-1] + 1
    if Columns.NEXT_OBS in columns:
        pairs = zip(trees.leaves(columns[Columns.NEXT_OBS]), trees.leaves(columns[Columns.OBS]), strict=True)
        for after, obs in pairs:
            differs = after[:-1] != obs[1:]
            begins[1:] |= differs.any(axis=tuple(range(1, differs.ndim)))
    return np.diff(np.append(np.flatnonzero(begins), count))


def _cut(
    columns: Mapping[str, Tree],
    lengths: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    ignore_final_observation: bool,
) -> Rollout:
    last = np.cumsum(lengths) - 1
    first = last + 1 - lengths
    ended, cut_off = terminated[last], truncated[last] & ~terminated[last]
    if ignore_final_observation:
        final_obs = trees.tree_map(lambda obs: np.zeros_like(obs[last]), columns[Columns.OBS])
    elif Columns.NEXT_OBS in columns:
        final_obs = trees.take(columns[Columns.NEXT_OBS], last)
    else:
        final_obs = trees.take(columns[Columns.OBS], last)
    kept: np.ndarray | None = None
    if Columns.NEXT_OBS not in columns and not ignore_final_observation:
        shorter = lengths - ~ended
        kept = np.ones(int(lengths.sum()), bool)
        kept[last[~ended]] = False
        some = shorter > 0
        lengths, first, ended, cut_off = shorter[some], first[some], ended[some], cut_off[some]
        final_obs = trees.take(final_obs, some)
    ids = columns.get(Columns.EPS_ID)
    agents = columns.get(Columns.AGENT_ID)
    rows = {
        name: column if kept is None else trees.take(column, kept)
        for name, column in columns.items()
        if name in {Columns.OBS, Columns.ACTIONS, Columns.REWARDS} or name not in _NOT_OUTPUTS
    }
    return Rollout(
        rows,
        Segments(
            lengths,
            ended,
            cut_off,
            [uuid.uuid4().hex for _ in first] if ids is None else [str(name) for name in ids[first]],
            columns[Columns.T][first].astype(np.int64)
            if Columns.T in columns
            else np.zeros(len(first), np.int64),
            None if agents is None or not len(agents) or agents[0] is None else agents[first].tolist(),
        ),
        final_obs,
    )


def table_from_rollout(rollout: Rollout, module_id: str | None = None) -> dict[str, np.ndarray]:
    """One row per step: "eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds" and the
    module's outputs. Columns of nested spaces are arrays of objects, one per row."""
    segments = rollout.segments
    rows = rollout.rows
    within = np.arange(rows) - np.repeat(segments.starts, segments.lengths)
    table: dict[str, Any] = {
        Columns.EPS_ID: np.repeat(np.asarray(segments.episode_ids), segments.lengths),
        Columns.T: within + np.repeat(segments.t_started, segments.lengths),
    }
    if segments.agent_ids is not None:
        table[Columns.AGENT_ID] = np.repeat(np.asarray(segments.agent_ids).astype(str), segments.lengths)
    if module_id is not None:
        table[Columns.MODULE_ID] = np.full(rows, module_id)
    table |= {name: _one_array(column, rows) for name, column in rollout.columns.items()}
    table[Columns.NEXT_OBS] = _one_array(rollout.next_obs(), rows)
    table[Columns.TERMINATEDS] = rollout.terminateds()
    table[Columns.TRUNCATEDS] = rollout.truncateds()
    return table


def _one_array(column: Tree, rows: int) -> np.ndarray:
    if isinstance(column, np.ndarray):
        return column
    result = np.empty(rows, object)
    for row in range(rows):
        result[row] = _named(trees.take(column, row))
    return result


def _named(tree: Tree) -> Any:
    """Tuples as dicts of their positions: a table's structs have names."""
    if isinstance(tree, dict):
        return {str(name): _named(value) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        return {str(index): _named(value) for index, value in enumerate(tree)}
    return tree
