"""From episodes to rollouts and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.core.columns import Columns
from runtime.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer


def to_rollout(episodes: Sequence[Any], initial_state: Any = None) -> Rollout:
    """The steps of the episodes, without their lookbacks; those without steps are left out. Copies.

    Args:
        episodes: each a `SingleAgentEpisode`; their module's outputs must have the same names. Infos are taken along
            if one has any.
        initial_state: a recurrent module's state at the start of an episode; zeros by default.

    Raises:
        ValueError: no episode has a step.
    """
    chunks = [episode for episode in episodes if len(episode)]
    if not chunks:
        raise ValueError(f"None of {len(episodes)} episodes has a step")
    numpy = [_columns_of(episode, initial_state) for episode in chunks]
    first = numpy[0][0]
    infos = None
    if any(episode.has_infos for episode in chunks):
        infos = [info for episode in chunks for info in episode.get_infos(slice(1, None))]
    has_agents = any(episode.agent_id is not None for episode in chunks)
    states = [state for _, _, state in numpy]
    return Rollout(
        {name: trees.concatenate([columns[name] for columns, _, _ in numpy]) for name in first},
        Segments(
            np.array([len(episode) for episode in chunks], np.int64),
            np.array([episode.is_terminated for episode in chunks], bool),
            np.array([episode.is_truncated for episode in chunks], bool),
            [episode.id_ for episode in chunks],
            np.array([episode.t_started for episode in chunks], np.int64),
            [episode.agent_id for episode in chunks] if has_agents else None,
        ),
        trees.stack([final for _, final, _ in numpy]),
        None if states[0] is None else trees.stack(states),
        infos,
    )


def views(
    cls: Any, rollout: Rollout, *, observation_space: Any, action_space: Any, module_id: str | None
) -> list[Any]:
    """An episode for each segment: see `SingleAgentEpisode.views_of`.

    Args:
        cls: `SingleAgentEpisode`. Its constructor, which checks what users give, is not called.
    """
    segments = rollout.segments
    count = len(segments)
    last_rows = segments.last_rows
    observations = with_extra_row(rollout.columns[Columns.OBS], rollout.final_obs, last_rows, before=False)
    starts, lengths = segments.starts.tolist(), segments.lengths.tolist()
    outputs = {
        name: column
        for name, column in rollout.columns.items()
        if name not in (Columns.OBS, Columns.ACTIONS, Columns.REWARDS)
    }
    states = None
    if rollout.state_in is not None and Columns.STATE_OUT in outputs:
        # The state before a segment's first row is the lookback of what the module gave.
        states = with_extra_row(
            outputs.pop(Columns.STATE_OUT), rollout.state_in, segments.starts, before=True
        )
    episodes = []
    for number in range(count):
        start, steps = starts[number], lengths[number]
        rows, with_one_more = (
            slice(start, start + steps),
            slice(start + number, start + number + steps + 1),
        )
        episode = cls.__new__(cls)
        episode.id_ = segments.episode_ids[number]
        episode.agent_id = None if segments.agent_ids is None else segments.agent_ids[number]
        episode.module_id, episode.multi_agent_episode_id = module_id, None
        episode.observations = InfiniteLookbackBuffer(
            trees.take(observations, with_one_more), 0, observation_space
        )
        actions = _read_only(trees.take(rollout.columns[Columns.ACTIONS], rows))
        episode.actions = InfiniteLookbackBuffer(actions, 0, action_space)
        episode.rewards = InfiniteLookbackBuffer(_read_only(rollout.columns[Columns.REWARDS][rows]))
        episode.extra_model_outputs = {
            name: InfiniteLookbackBuffer(_read_only(trees.take(column, rows)))
            for name, column in outputs.items()
        }
        if states is not None:
            episode.extra_model_outputs[Columns.STATE_OUT] = InfiniteLookbackBuffer(
                trees.take(states, with_one_more), 1
            )
        episode._infos = None if rollout.infos is None else InfiniteLookbackBuffer([{}, *rollout.infos[rows]])
        episode._observation_space, episode._action_space = observation_space, action_space
        episode.is_terminated = bool(segments.terminated[number])
        episode.is_truncated = bool(segments.truncated[number])
        episode.t_started = int(segments.t_started[number])
        episode.t = episode.t_started + steps
        episode._custom_data = {}
        episode._start_time = episode._last_step_time = None
        episodes.append(episode)
    return episodes


def data_dict(episode: Any) -> dict[str, Any]:
    """See `SingleAgentEpisode.get_data_dict`."""
    steps = len(episode)
    terminateds, truncateds = [False] * steps, [False] * steps
    if steps:
        terminateds[-1], truncateds[-1] = episode.is_terminated, episode.is_truncated
    rows: dict[str, Any] = {
        Columns.T: [*range(episode.t_started, episode.t)],
        Columns.EPS_ID: [episode.id_] * steps,
        Columns.TERMINATEDS: terminateds,
        Columns.TRUNCATEDS: truncateds,
    }
    if episode.is_numpy:
        rows = {name: np.array(values) for name, values in rows.items()}
    return {
        **rows,
        Columns.OBS: episode.get_observations(slice(0, steps)),
        Columns.INFOS: episode.get_infos(slice(0, steps)),
        Columns.ACTIONS: episode.get_actions(),
        Columns.REWARDS: episode.get_rewards(),
        **episode.get_extra_model_outputs(),
    }


def _columns_of(episode: Any, initial_state: Any) -> tuple[dict[str, Any], Any, Any]:
    """Its columns, its last observation and the state before its first step."""
    steps = len(episode)

    def arrays(buffer: InfiniteLookbackBuffer, rows: slice) -> Any:
        values = buffer.get(rows)
        return trees.narrowed(trees.stack(values) if isinstance(values, list) else values)

    columns = {
        Columns.OBS: arrays(episode.observations, slice(0, steps)),
        Columns.ACTIONS: arrays(episode.actions, slice(0, steps)),
        Columns.REWARDS: np.asarray(arrays(episode.rewards, slice(0, steps)), np.float32),
        **{name: arrays(values, slice(0, steps)) for name, values in episode.extra_model_outputs.items()},
    }
    final = trees.narrowed(episode.observations.get(steps))
    outs = episode.extra_model_outputs.get(Columns.STATE_OUT)
    if outs is None:
        return columns, final, None
    if outs.lookback:
        return columns, final, outs.get(-1, neg_index_as_lookback=True)
    zero = trees.tree_map(np.zeros_like, outs.get(0))
    return columns, final, zero if initial_state is None else initial_state


def with_extra_row(rows: Any, extra: Any, at: np.ndarray, *, before: bool) -> Any:
    """The rows, with an extra one before or behind each of the rows `at`; copies."""

    def joined(column: np.ndarray, more: np.ndarray) -> np.ndarray:
        result = np.empty((len(column) + len(more), *column.shape[1:]), column.dtype)
        places = at + np.arange(len(at)) + (0 if before else 1)
        mask = np.ones(len(result), bool)
        mask[places] = False
        result[mask] = column
        result[places] = more
        return result

    return trees.tree_map(joined, rows, extra)


def _read_only(view: Any) -> Any:
    """Views, which `InfiniteLookbackBuffer` copies before it writes."""
    for leaf in trees.leaves(view):
        leaf.flags.writeable = False
    return view
