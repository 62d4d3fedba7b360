"""Steps of a vector environment become segments of episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.rllib._core.lanes import Finished, Lanes
from runtime.rllib._core.rollout import Rollout


class World:
    """N environments with episodes of known lengths; observations are (lane, episode, step)."""

    def __init__(self, lengths: Sequence[Sequence[int]], next_step: bool) -> None:
        self.lengths, self.next_step = lengths, next_step
        self.episode, self.t = [0] * len(lengths), [0] * len(lengths)
        self.resetting = np.zeros(len(lengths), bool)
        self.lanes = Lanes(len(lengths))
        self.lanes.start(self.observations(), 0.0)
        self.clock = 0.0

    def observations(self) -> np.ndarray:
        return np.array(
            [(lane, self.episode[lane], self.t[lane]) for lane in range(len(self.lengths))], np.float32
        )

    def step(self) -> None:
        count = len(self.lengths)
        over, finals = np.zeros(count, bool), {}
        dropped = self.resetting if self.resetting.any() else None
        rewards = np.zeros(count, np.float32)
        for lane in range(count):
            if self.resetting[lane]:
                self.episode[lane] += 1
                self.t[lane] = 0
                continue
            self.t[lane] += 1
            rewards[lane] = self.t[lane]
            over[lane] = self.t[lane] == self.lengths[lane][self.episode[lane] % len(self.lengths[lane])]
        observations = self.observations()
        self.resetting = over if self.next_step else np.zeros(count, bool)
        if not self.next_step:
            for lane in np.flatnonzero(over).tolist():
                finals[lane] = observations[lane]
                self.episode[lane] += 1
                self.t[lane] = 0
            observations = self.observations()
        self.clock += 1.0
        columns = {"actions": np.arange(count), "rewards": rewards}
        even = np.array([episode % 2 == 0 for episode in self.episode]) ^ (not self.next_step)
        self.lanes.add(columns, observations, over & even, over & ~even, self.clock, dropped, finals)

    def collect(self, rows: int) -> tuple[Rollout, Finished]:
        while self.lanes.rows < rows:
            self.step()
        rollout, finished = self.lanes.cut()
        assert rollout is not None
        return rollout, finished


lengths_of_lanes = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4)


def check(rollout: Rollout, lengths: Sequence[Sequence[int]]) -> None:
    """Every segment is a stretch of one episode, with its last observation and end."""
    segments = rollout.segments
    assert segments.lengths.sum() == rollout.rows == len(rollout.columns["obs"])
    for number, (start, steps) in enumerate(zip(segments.starts, segments.lengths, strict=True)):
        rows = rollout.columns["obs"][start : start + steps]
        lane, episode, first = rows[0].astype(int)
        assert first == segments.t_started[number]
        expected = [(lane, episode, first + i) for i in range(steps)]
        assert rows.tolist() == [list(row) for row in expected]
        assert rollout.columns["rewards"][start : start + steps].tolist() == [
            first + 1 + i for i in range(steps)
        ]
        assert rollout.columns["actions"][start : start + steps].tolist() == [lane] * steps
        assert rollout.final_obs[number].tolist() == [lane, episode, first + steps]
        is_over = first + steps == lengths[lane][episode % len(lengths[lane])]
        assert bool(segments.terminated[number] or segments.truncated[number]) == is_over
        assert not (segments.terminated[number] and segments.truncated[number])


@settings(max_examples=60, deadline=None)
@given(lengths_of_lanes, st.lists(st.integers(1, 25), min_size=1, max_size=4), st.booleans())
def test_segments_are_stretches_of_episodes(
    lengths: list[list[int]], rows: list[int], next_step: bool
) -> None:
    world = World(lengths, next_step)
    seen: dict[str, float] = {}
    for wanted in rows:
        rollout, finished = world.collect(wanted)
        assert wanted <= rollout.rows < wanted + len(lengths)
        check(rollout, lengths)
        for name, steps, first in zip(
            rollout.segments.episode_ids, rollout.segments.lengths, rollout.segments.t_started, strict=True
        ):
            assert seen.get(name, 0) == first  # chunks of an episode have its id, and follow one another
            seen[name] = first + steps
        for name, total, length in zip(finished.ids, finished.returns, finished.lengths, strict=True):
            assert length == seen.pop(name)
            assert total == length * (length + 1) / 2


@settings(max_examples=40, deadline=None)
@given(lengths_of_lanes, st.integers(1, 30))
def test_both_kinds_of_autoreset_give_the_same_segments(lengths: list[list[int]], wanted: int) -> None:
    def episodes(next_step: bool) -> dict[tuple[int, int], list[list[float]]]:
        rollout, _ = World(lengths, next_step).collect(wanted * len(lengths))
        segments = rollout.segments
        return {
            tuple(rollout.columns["obs"][start, :2].astype(int).tolist()): rollout.columns["obs"][
                start : start + steps
            ].tolist()
            for start, steps in zip(segments.starts, segments.lengths, strict=True)
        }

    one, other = episodes(True), episodes(False)
    for key in one.keys() & other.keys():  # the last episode of a lane may be longer in one
        steps = min(len(one[key]), len(other[key]))
        assert one[key][:steps] == other[key][:steps]
    assert all((lane, 0) in one and (lane, 0) in other for lane in range(len(lengths)))


def test_episodes_are_exactly_as_many_as_wanted_in_the_order_of_their_ends() -> None:
    world = World([[5], [2], [2]], next_step=False)
    for _ in range(5):
        world.step()
    rollout, finished = world.lanes.cut(episodes=3)
    assert rollout is not None
    assert rollout.segments.lengths.tolist() == [2, 2, 2]
    assert sorted(finished.lengths) == [2, 2, 2]
    check(rollout, world.lengths)


def test_no_episode_is_given_if_none_has_ended() -> None:
    world = World([[5]], next_step=False)
    world.step()
    rollout, finished = world.lanes.cut(episodes=1)
    assert rollout is None
    assert finished.lengths == []


@pytest.mark.parametrize("next_step", [True, False])
@pytest.mark.parametrize("steps_before", [0, 1, 2, 3, 4])
def test_a_failure_loses_only_the_episodes_that_run(next_step: bool, steps_before: int) -> None:
    world = World([[3], [2]], next_step)
    for _ in range(steps_before):
        world.step()
    ended = [key for key in ((0, 3), (1, 2)) if steps_before >= key[1]]
    world.episode, world.t = [e + 10 for e in world.episode], [0, 0]  # new environments
    world.resetting = np.zeros(2, bool)
    world.lanes.drop_open(world.observations(), world.clock)
    for _ in range(3):
        world.step()
    rollout, _ = world.lanes.cut()
    assert rollout is not None
    check(rollout, world.lengths)
    old = rollout.columns["obs"][rollout.segments.starts][:, 1] < 10
    assert old.sum() >= len(ended)
    assert (rollout.columns["obs"][rollout.segments.starts][old][:, 2] == 0).all()
    assert rollout.segments.terminated[old].sum() + rollout.segments.truncated[old].sum() == old.sum()
    assert len(set(rollout.segments.episode_ids)) == len(rollout.segments.episode_ids)


def test_the_state_before_a_segment_is_that_of_the_last_cut_or_the_initial_one() -> None:
    lanes = Lanes(1)
    initial = {"h": np.zeros(1, np.float32)}
    lanes.start(np.zeros((1, 1), np.float32), 0.0, initial)
    state = 0
    for t in range(3):
        over = t == 1
        state = state + 1
        lanes.add(
            {
                "actions": np.zeros(1),
                "rewards": np.zeros(1, np.float32),
                "state_out": {"h": np.full((1, 1), state)},
            },
            np.zeros((1, 1)),
            np.array([over]),
            np.array([False]),
            0.0,
            final_obs={0: np.zeros(1)} if over else None,
        )
        state = 0 if over else state
    rollout, _ = lanes.cut(state={"h": np.full((1, 1), state, np.float32)})
    assert rollout is not None
    assert rollout.state_in is not None
    assert rollout.state_in["h"].tolist() == [[0], [0]]
    lanes.add(
        {"actions": np.zeros(1), "rewards": np.zeros(1, np.float32), "state_out": {"h": np.full((1, 1), 2)}},
        np.zeros((1, 1)),
        np.array([False]),
        np.array([False]),
        0.0,
    )
    rollout, _ = lanes.cut(state={"h": np.full((1, 1), 2.0)})
    assert rollout is not None
    assert rollout.state_in is not None
    assert rollout.state_in["h"].tolist() == [[1]]
    assert rollout.segments.t_started.tolist() == [1]


def test_a_rollout_does_not_change_with_later_steps() -> None:
    world = World([[4], [4]], next_step=False)
    rollout, _ = world.collect(6)
    before = {name: column.copy() for name, column in rollout.columns.items()}
    final = rollout.final_obs.copy()
    world.collect(6)
    assert all(np.array_equal(before[name], rollout.columns[name]) for name in before)
    assert np.array_equal(final, rollout.final_obs)


def test_other_columns_after_a_cut_leave_no_trace_of_those_before() -> None:
    world = World([[4]], next_step=False)
    world.collect(2)
    world.lanes.add(
        {"actions": np.zeros(1), "rewards": np.ones(1, np.float32), "action_logp": np.ones(1)},
        np.zeros((1, 3)),
        np.array([False]),
        np.array([False]),
        9.0,
    )
    rollout, _ = world.lanes.cut()
    assert rollout is not None
    assert set(rollout.columns) == {"obs", "actions", "rewards", "action_logp"}


def test_wide_observations_are_stored_with_32_bits() -> None:
    lanes = Lanes(1)
    lanes.start({"a": np.zeros((1, 2)), "b": np.zeros((1,), np.uint8)}, 0.0)
    assert lanes.observations["a"].dtype == np.float32
    assert lanes.observations["b"].dtype == np.uint8


@pytest.mark.parametrize("count", [1, 3])
def test_a_rollout_is_no_view_of_the_steps_to_come(count: int) -> None:
    """With one lane, the transposition to lanes moves nothing: there would be no copy."""
    world = World([[50]] * count, next_step=False)
    rollout, _ = world.collect(6 * count)
    before = {name: column.copy() for name, column in rollout.columns.items()}, rollout.final_obs.copy()
    world.collect(6 * count)
    for name, column in rollout.columns.items():
        np.testing.assert_array_equal(column, before[0][name])
    np.testing.assert_array_equal(rollout.final_obs, before[1])
