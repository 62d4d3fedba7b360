"""The ring of rows against episodes that are known row by row.

The observation of row t of episode e is 1000 e + t, so the row a batch came from is known from its observation.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.rllib._core.replay import ReplayRing
from runtime.rllib._core.rollout import Rollout, Segments, concatenate


def reward_of(obs: Any) -> Any:
    return np.float32(np.asarray(obs) % 7 + 0.25)


def segment(episode: int, t: int, length: int, end: str = "", state: bool = False) -> Rollout:
    obs = np.arange(1000 * episode + t, 1000 * episode + t + length)
    return Rollout(
        {"obs": obs, "actions": obs + 0.5, "rewards": reward_of(obs)},
        Segments(
            np.array([length]),
            np.array([end == "terminated"]),
            np.array([end == "truncated"]),
            [f"e{episode}"],
            np.array([t]),
        ),
        np.array([obs[-1] + 1]),
        {"h": obs[:1].astype(np.float32)} if state else None,
    )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[tuple[int, int, int, str]], bool]]:
    """Fragments of a few lanes: per fragment the segments (episode, t, length, end)."""
    lanes = draw(st.integers(1, 3))
    at = [[lane, 0] for lane in range(lanes)]
    new = lanes
    fragments = []
    for _ in range(draw(st.integers(1, 12))):
        parts = []
        for lane in range(lanes):
            for _ in range(draw(st.integers(0, 2))):
                length = draw(st.integers(1, 7))
                end = draw(st.sampled_from(["", "", "terminated", "truncated"]))
                lost = draw(st.integers(0, 9)) == 0  # a runner died with this fragment
                if not lost:
                    parts.append((*at[lane], length, end))
                at[lane][1] += length
                if end:
                    at[lane], new = [new, 0], new + 1
                else:
                    break
        if parts:
            fragments.append(parts)
    return fragments


def filled(ring: ReplayRing, fragments: Any) -> dict[int, tuple[bool, bool]]:
    """The ends (terminated, truncated) of each row that was added, by its observation."""
    rows = {}
    for parts in fragments:
        ring.add(concatenate([segment(*part) for part in parts]))
        for episode, t, length, end in parts:
            for i in range(length):
                last = i == length - 1
                rows[1000 * episode + t + i] = (last and end == "terminated", last and end == "truncated")
    return rows


@settings(max_examples=60)
@given(
    fragments=histories(),
    capacity=st.integers(4, 60),
    alpha=st.sampled_from([None, 0.6]),
    n_step=st.sampled_from([1, 3, (1, 4), (2, 5)]),
    seed=st.integers(0, 99),
)
def test_drawn_transitions_are_those_of_the_episodes(
    fragments: Any, capacity: int, alpha: float | None, n_step: Any, seed: int
) -> None:
    ring = ReplayRing(capacity, alpha=alpha, rng=np.random.default_rng(seed))
    ends = filled(ring, fragments)
    if not ends:
        return
    assert ring.rows_added == len(ends)
    assert 0 < len(ring) <= min(capacity, len(ends))
    batch = ring.draw(50, n_step=n_step, gamma=0.9).columns
    low, high = (n_step, n_step) if isinstance(n_step, int) else n_step
    for i in range(50):
        obs = int(batch["obs"][i])
        assert obs in ends
        assert batch["actions"][i] == obs + 0.5
        steps = int(batch["n_step"][i]) if "n_step" in batch else 1
        assert 1 <= steps <= high
        path = range(obs, obs + steps)
        # Nothing ended before the last row, all rows are known, and only an end or a gap makes fewer steps.
        assert all(step in ends for step in path)
        assert not any(any(ends[step]) for step in path[:-1])
        if steps < low:
            assert (
                any(ends[path[-1]]) or path[-1] + 1 not in ends or capacity < len(ends) + len(fragments) * 8
            )
        assert batch["new_obs"][i] == obs + steps
        assert (batch["terminateds"][i], batch["truncateds"][i]) == ends[path[-1]]
        expected = sum(0.9**k * reward_of(step) for k, step in enumerate(path))
        assert batch["rewards"][i] == pytest.approx(expected, rel=1e-5)


@settings(max_examples=40)
@given(fragments=histories(), capacity=st.integers(4, 60), seed=st.integers(0, 99))
def test_the_ring_holds_the_newest_rows(fragments: Any, capacity: int, seed: int) -> None:
    ring = ReplayRing(capacity, rng=np.random.default_rng(seed))
    ends = filled(ring, fragments)
    if not ends:
        return
    held = set(ring.draw(600).columns["obs"].tolist())
    order = [1000 * e + t + i for parts in fragments for e, t, n, _ in parts for i in range(n)]
    assert held <= set(order[-capacity:])
    assert order[-1] in held


@settings(max_examples=40)
@given(fragments=histories(), capacity=st.integers(8, 60), length=st.integers(1, 6), seed=st.integers(0, 99))
def test_sequences_follow_one_episode(fragments: Any, capacity: int, length: int, seed: int) -> None:
    ring = ReplayRing(capacity, rng=np.random.default_rng(seed))
    ends = filled(ring, fragments)
    if not ends:
        return
    batch = ring.draw_sequences(20, length).columns
    assert batch["obs"].shape == batch["loss_mask"].shape == (20, length)
    for obs, following, mask in zip(batch["obs"], batch["new_obs"], batch["loss_mask"], strict=True):
        count = int(mask.sum())
        assert mask[:count].all()
        assert count >= 1
        assert obs[:count].tolist() == list(range(obs[0], obs[0] + count))
        assert following[:count].tolist() == (obs[:count] + 1).tolist()
        assert not any(any(ends[step]) for step in obs[: count - 1])


def test_rollouts_without_states_do_not_get_those_of_overwritten_rows() -> None:
    ring = ReplayRing(8, rng=np.random.default_rng(1))
    ring.add(segment(1, 5, 7, "terminated", state=True))
    ring.add(segment(2, 0, 7, "terminated"))
    batch = ring.draw_sequences(20, 7).columns
    assert set(batch["obs"][:, 0].tolist()) == {2000}
    assert not batch["state_in"]["h"].any()


def test_a_rollout_larger_than_the_ring_may_come_first() -> None:
    ring = ReplayRing(8, rng=np.random.default_rng(1))
    ring.add(segment(1, 0, 20, "terminated", state=True))  # its first rows, and with them its state, are lost
    ring.add(segment(2, 3, 6, "terminated", state=True))
    states = {
        (int(obs), float(state))
        for batch in [ring.draw_sequences(40, 6).columns]
        for obs, state in zip(batch["obs"][:, 0], batch["state_in"]["h"], strict=True)
    }
    assert states == {(2003, 2003.0)}


def test_sequences_start_where_the_state_is_known_or_with_zeros() -> None:
    ring = ReplayRing(100, rng=np.random.default_rng(1))
    ring.add(concatenate([segment(1, 0, 10, state=True), segment(2, 0, 3, "truncated", state=True)]))
    batch = ring.draw_sequences(200, 4).columns
    starts, states = batch["obs"][:, 0], batch["state_in"]["h"]
    known = np.isin(starts, [1000, 2000])
    assert (states[known] == starts[known]).all()
    assert (states[~known] == 0).all()
    assert set(starts.tolist()) == {1000, 2000, *range(1004, 1010)}


def test_fragments_of_one_episode_use_one_slot_per_row() -> None:
    ring = ReplayRing(11, rng=np.random.default_rng(1))
    for t in range(10):
        ring.add(segment(1, t, 1))
    assert len(ring) == 10
    assert set(ring.draw(300, n_step=10, gamma=1.0).columns["new_obs"].tolist()) == {1010}


def test_a_segment_longer_than_the_ring_leaves_its_last_rows() -> None:
    ring = ReplayRing(8, rng=np.random.default_rng(1))
    ring.add(segment(1, 0, 30))
    assert set(ring.draw(200).columns["obs"].tolist()) == set(range(1023, 1030))
    ring.add(segment(1, 30, 1, "terminated"))
    batch = ring.draw(200).columns
    assert (batch["terminateds"] == (batch["obs"] == 1030)).all()


def test_nested_observations_keep_their_structure() -> None:
    rollout = segment(1, 0, 5, "terminated")
    for_obs = lambda obs: {"a": obs, "b": (np.stack([obs, obs], 1),)}  # noqa: E731
    rollout.columns["obs"], rollout.final_obs = for_obs(rollout.columns["obs"]), for_obs(rollout.final_obs)
    ring = ReplayRing(10, rng=np.random.default_rng(1))
    ring.add(rollout)
    batch = ring.draw(20).columns
    assert (batch["new_obs"]["a"] == batch["obs"]["a"] + 1).all()
    assert (batch["new_obs"]["b"][0] == batch["obs"]["b"][0] + 1).all()
    assert batch["obs"]["b"][0].shape == (20, 2)


def test_rows_are_drawn_in_proportion_to_their_priorities() -> None:
    ring = ReplayRing(50, alpha=0.5, rng=np.random.default_rng(1))
    ring.add(concatenate([segment(1, 0, 6, "terminated"), segment(2, 0, 4)]))
    drawn = ring.draw(200, beta=1.0)
    assert (drawn.columns["weights"] == 1).all()  # all have the same priority
    ring.set_priorities(drawn.rows, 1.0 + drawn.columns["obs"] % 1000)
    many = ring.draw(50_000, beta=0.7)
    counts = collections.Counter(many.columns["obs"].tolist())
    priorities = {1000 * e + t: (1.0 + t) ** 0.5 for e, n in ((1, 6), (2, 4)) for t in range(n)}
    total = sum(priorities.values())
    for obs, priority in priorities.items():
        assert counts[obs] / 50_000 == pytest.approx(priority / total, rel=0.02)
    probability = np.array([priorities[obs] / total for obs in many.columns["obs"].tolist()])
    weights = (10 * probability) ** -0.7
    largest = (10 * min(priorities.values()) / total) ** -0.7
    assert np.allclose(many.columns["weights"], weights / largest, rtol=1e-5)


def test_new_rows_have_the_largest_priority_or_the_given_one() -> None:
    ring = ReplayRing(50, alpha=1.0, rng=np.random.default_rng(1))
    ring.add(segment(1, 0, 2))
    ring.set_priorities(ring.draw(20).rows, np.full(20, 9.0))
    ring.add(segment(2, 0, 1))
    ring.add(segment(3, 0, 1), priority=3.0)
    counts = collections.Counter(ring.draw(30_000).columns["obs"].tolist())
    assert counts[2000] / 30_000 == pytest.approx(9 / 30, rel=0.02)
    assert counts[3000] / 30_000 == pytest.approx(3 / 30, rel=0.02)


def test_priorities_of_overwritten_rows_are_left_out() -> None:
    ring = ReplayRing(6, alpha=1.0, rng=np.random.default_rng(1))
    ring.add(segment(1, 0, 4))
    old = ring.draw(4).rows
    ring.add(segment(2, 0, 5))
    ring.set_priorities(old, np.full(4, 1e9))
    assert (ring.draw(20, beta=1.0).columns["weights"] == 1).all()


@pytest.mark.parametrize("alpha", [None, 0.6])
def test_a_ring_with_the_state_of_another_draws_the_same(alpha: float | None) -> None:
    first = ReplayRing(20, alpha=alpha, rng=np.random.default_rng(1))
    for t in range(0, 30, 3):
        first.add(
            concatenate([segment(1, t, 3, state=True), segment(10 + t, 0, 2, "terminated", state=True)])
        )
    second = ReplayRing(20, alpha=alpha, rng=np.random.default_rng(2))
    second.set_state(first.get_state())
    for ring in (first, second):
        ring.add(segment(1, 30, 2, "truncated", state=True))
        ring.rng = np.random.default_rng(3)
    one, two = first.draw(50, n_step=3), second.draw(50, n_step=3)
    assert (one.rows == two.rows).all()
    assert one.columns.keys() == two.columns.keys()
    assert all(np.array_equal(one.columns[name], two.columns[name]) for name in one.columns)
    with pytest.raises(ValueError, match="of a buffer of 20 rows"):
        ReplayRing(10).set_state(first.get_state())


def test_errors_say_what_is_missing() -> None:
    large = segment(1, 0, 2)
    large.columns["obs"], large.final_obs = np.zeros((2, 10**6)), np.zeros((1, 10**6))
    with pytest.raises(MemoryError, match="of 10000000 rows of 8000000 bytes needs 74505"):
        ReplayRing(10**7).add(large)
    with pytest.raises(ValueError, match="empty"):
        ReplayRing(10).draw(1)
    with pytest.raises(ValueError, match="at least 2"):
        ReplayRing(1)
    with pytest.raises(KeyError, match="no column 'vf_preds'"):
        ReplayRing(10, names=["vf_preds"]).add(segment(1, 0, 2))
