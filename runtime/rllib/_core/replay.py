"""A ring of rows of experience, from which transitions, n-step transitions and sequences are drawn.

Rows lie in slots of arrays that are allocated once. Each row knows the slot that follows it in its episode, so the
observation after a row is the `obs` of the following slot and no observation is held twice. After the last row of an
episode, so far as it is known, there is one slot that holds only an observation (a tail). When the episode goes on,
its next row takes the tail's slot.

Slots are numbered without end, `number % slots` is the place in the arrays. A following slot has a larger number, so it
is overwritten later, and a row in the ring can always reach the end of its episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import trees
from .rollout import Rollout
from .sum_tree import SumTree
from .trees import Tree

_Key = tuple[str, Any]  # an episode and an agent


@dataclasses.dataclass(slots=True)
class Drawn:
    """A batch drawn from a ring.

    columns: arrays [B, ...], or [B, T, ...] of sequences.
    rows: int64 [B] or [B, T], the numbers of the slots, for `ReplayRing.set_priorities`; -1 where padded.
    """

    columns: dict[str, Tree]
    rows: np.ndarray


class ReplayRing:
    """Room for `capacity` rows; the oldest are overwritten.

    Args:
        capacity: rows, with one more per episode for the observation after its end.
        names: the columns to keep besides "obs", "actions" and "rewards".
        alpha: exponent of priorities; None draws all rows with the same probability and keeps no priorities.
        rng: where random numbers come from.
    """

    def __init__(
        self,
        capacity: int,
        *,
        names: Sequence[str] = (),
        alpha: float | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        if capacity < 2:
            raise ValueError(f"A replay buffer needs a capacity of at least 2 rows, not {capacity}")
        self.slots = capacity
        self.rng = rng or np.random.default_rng()
        self.alpha = alpha
        self.names = ("obs", "actions", "rewards", *names)
        self.rows = 0  # rows that can be drawn
        self.rows_added = 0
        self.episodes_ended = 0
        self.max_priority = 1.0
        self.columns: dict[str, Tree] = {}  # trees of arrays [slots, ...]
        self.state_in: Tree | None = None  # tree of arrays [slots, ...], known at the first rows of segments
        self._head = 0  # the number of the next slot
        self._valid = np.zeros(capacity, bool)  # a row, not a tail
        self._following = np.zeros(capacity, np.int64)  # number of the slot after this one in its episode
        self._segment_start = np.zeros(capacity, np.int64)  # number of the first slot of the row's segment
        self._terminated = np.zeros(capacity, bool)
        self._truncated = np.zeros(capacity, bool)
        self._open: dict[_Key, tuple[int, int]] = {}  # tails of episodes that go on: slot number, time step
        self._tree = None if alpha is None else SumTree(capacity)

    def __len__(self) -> int:
        return self.rows

    @property
    def stretches(self) -> int:
        """Stretches of episodes without a gap in the ring; each has one tail."""
        return min(self._head, self.slots) - self.rows

    # Adding.

    def add(self, rollout: Rollout, priority: float | None = None) -> None:
        """Append a rollout's rows; `priority` is that of new rows (default: the largest one so far)."""
        segments = rollout.segments
        if rollout.rows + len(segments) > self.slots:
            for i in range(len(segments)):
                part = rollout.take_segments([i]) if len(segments) > 1 else rollout
                self._add(_last_rows(part, self.slots - 1), priority)
        elif len(segments):
            self._add(rollout, priority)
        self.rows_added += rollout.rows
        self.episodes_ended += int(np.count_nonzero(segments.terminated | segments.truncated))

    def _add(self, rollout: Rollout, priority: float | None) -> None:
        if not self.columns:
            self._allocate(rollout)
        segments = rollout.segments
        numbers, tails, starts = self._place(rollout)
        places, tail_places = numbers % self.slots, tails % self.slots
        taken = np.concatenate([places, tail_places])
        self.rows -= int(np.count_nonzero(self._valid[taken]))
        self._valid[taken] = False
        self._valid[places] = True
        self.rows += len(places)
        last_rows = segments.last_rows
        following = np.empty_like(numbers)
        following[:-1] = numbers[1:]
        following[last_rows] = tails
        self._following[places] = following
        self._segment_start[places] = starts
        self._terminated[places] = False
        self._truncated[places] = False
        last_places = places[last_rows]
        self._terminated[last_places] = segments.terminated
        self._truncated[last_places] = segments.truncated
        for name, column in self.columns.items():
            _write(column, places, rollout.columns[name])
        _write(self.columns["obs"], tail_places, rollout.final_obs)
        first_places = places[segments.starts]
        if rollout.state_in is not None:
            if self.state_in is None:  # the rollouts before had lost theirs
                self.state_in = self._empty(rollout.state_in)
            _write(self.state_in, first_places, rollout.state_in)
        elif self.state_in is not None:
            for leaf in trees.leaves(self.state_in):
                leaf[first_places] = 0  # not what an overwritten segment began with
        if self._tree is not None:
            priority = self.max_priority if priority is None else priority
            weights = np.zeros(len(taken))
            weights[: len(places)] = priority ** (self.alpha or 0.0)
            self._tree.set(taken, weights)

    def _place(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Slot numbers of the rows [rows], of the tails [S], and of each row's segment's first row [rows]."""
        segments = rollout.segments
        agents = segments.agent_ids or [None] * len(segments)
        numbers = np.empty(rollout.rows, np.int64)
        tails = np.empty(len(segments), np.int64)
        starts = np.empty(rollout.rows, np.int64)
        total = rollout.rows + len(segments)
        head, row = self._head, 0
        for i, (length, t, ended) in enumerate(
            zip(
                segments.lengths.tolist(),
                segments.t_started.tolist(),
                (segments.terminated | segments.truncated).tolist(),
                strict=True,
            )
        ):
            key = (segments.episode_ids[i], agents[i])
            tail = self._open.pop(key, None)
            end = row + length
            # A tail may be about to be overwritten, or rows between it and this segment may be missing.
            if tail is not None and tail[1] == t and tail[0] >= self._head + total - self.slots:
                numbers[row] = tail[0]
                numbers[row + 1 : end] = np.arange(head, head + length - 1)
                head += length - 1
            else:
                numbers[row:end] = np.arange(head, head + length)
                head += length
            starts[row:end] = numbers[row]
            tails[i] = head
            if not ended:
                self._open[key] = (head, t + length)
            head += 1
            row = end
        self._head = head
        if len(self._open) > 2 * len(segments) + 64:  # episodes whose runner was lost never go on
            self._open = {key: tail for key, tail in self._open.items() if tail[0] >= head - self.slots}
        return numbers, tails, starts

    def _allocate(self, rollout: Rollout) -> None:
        missing = [name for name in self.names if name not in rollout.columns]
        if missing:
            raise KeyError(f"The rollout has no column {missing[0]!r}; it has {sorted(rollout.columns)}")
        self.columns = {name: self._empty(rollout.columns[name]) for name in self.names}

    def _empty(self, tree: Tree) -> Tree:
        """Room for all rows. The system gives memory to what is used of it, but may refuse more than it has."""
        try:
            return trees.tree_map(lambda leaf: np.zeros((self.slots, *leaf.shape[1:]), leaf.dtype), tree)
        except MemoryError as error:
            row_bytes = sum(leaf[:1].nbytes for leaf in trees.leaves(tree))
            raise MemoryError(
                f"A replay buffer of {self.slots} rows of {row_bytes} bytes needs {self.slots * row_bytes / 2**30:.1f} "
                "GiB, which this machine does not have: set a smaller capacity in replay_buffer_config"
            ) from error

    # Drawing.

    def draw(
        self,
        count: int,
        *,
        n_step: int | tuple[int, int] = 1,
        gamma: float = 0.99,
        beta: float = 0.0,
    ) -> Drawn:
        """Draw transitions.

        Args:
            count: B, how many; a row may be drawn more than once.
            n_step: steps between "obs" and "new_obs", or the bounds (both included) between which each row's number is
                drawn. Fewer where the episode, so far as it is known, ends before.
            gamma: discount of the rewards that are summed up.
            beta: exponent of the importance weights.

        Returns:
            "obs", "actions", the other kept columns of the first row, "rewards" (the discounted sum over the steps),
            "new_obs", "terminateds", "truncateds" (of the last step), "n_step" (int64, missing if all are 1), and with
            priorities "weights" (float32): (N P(row)) ** -beta, divided by the largest of all rows.

        Raises:
            ValueError: the ring has no rows.
        """
        rows = self._draw_rows(count)
        places = rows % self.slots
        columns = {name: _read(column, places) for name, column in self.columns.items()}
        last = places
        if n_step != 1:
            rewards, steps, last = self._n_step(places, n_step, gamma)
            columns["rewards"] = rewards
            columns["n_step"] = steps
        columns["new_obs"] = _read(self.columns["obs"], self._following.take(last) % self.slots)
        columns["terminateds"] = self._terminated.take(last)
        columns["truncateds"] = self._truncated.take(last)
        if self._tree is not None:
            columns["weights"] = self._importance(places, beta)
        return Drawn(columns, rows)

    def draw_sequences(self, count: int, length: int, *, beta: float = 0.0) -> Drawn:
        """Draw stretches of episodes for recurrent modules.

        The sequence starts at the row drawn, or at the first row of its segment if that is less than `length` rows
        before: there the module's state is known. Elsewhere "state_in" is zero.

        Args:
            count: B, sequences.
            length: T, rows of a sequence; where the episode ends before, the rest is padding.
            beta: exponent of the importance weights.

        Returns:
            The columns of `draw` with n_step=1, arrays [B, T, ...]; "loss_mask" bool [B, T], False where padded;
            "state_in" [B, ...] if the rollouts have states.
        """
        drawn = self._draw_rows(count)
        starts = self._segment_start.take(drawn % self.slots)
        near = (drawn - starts < length) & (starts >= self._head - self.slots)
        first = np.where(near, starts, drawn)
        numbers = np.empty((count, length), np.int64)
        mask = np.empty((count, length), bool)
        number, alive = first, np.ones(count, bool)
        for t in range(length):
            numbers[:, t] = number
            mask[:, t] = alive
            following = self._following.take(number % self.slots)
            alive = alive & self._valid.take(following % self.slots)
            number = np.where(alive, following, number)
        places = numbers % self.slots
        columns = {name: _read(column, places) for name, column in self.columns.items()}
        columns["new_obs"] = _read(self.columns["obs"], self._following.take(places) % self.slots)
        columns["terminateds"] = self._terminated.take(places)
        columns["truncateds"] = self._truncated.take(places)
        columns["loss_mask"] = mask
        if self.state_in is not None:
            known = self._segment_start.take(first % self.slots) == first
            columns["state_in"] = trees.tree_map(
                lambda leaf: leaf * known.reshape(-1, *(1,) * (leaf.ndim - 1)).astype(leaf.dtype),
                _read(self.state_in, first % self.slots),
            )
        if self._tree is not None:
            columns["weights"] = np.repeat(self._importance(drawn % self.slots, beta)[:, None], length, 1)
        return Drawn(columns, np.where(mask, numbers, -1))

    def _draw_rows(self, count: int) -> np.ndarray:
        """Numbers of `count` rows."""
        if not self.rows:
            raise ValueError("The replay buffer is empty: add rollouts before drawing from it")
        oldest = max(self._head - self.slots, 0)
        if self._tree is not None:
            places = self._tree.draw(count, self.rng)
            return oldest + (places - oldest) % self.slots
        numbers = self.rng.integers(oldest, self._head, count)
        while True:
            tails = np.flatnonzero(~self._valid.take(numbers % self.slots))
            if not len(tails):
                return numbers
            numbers[tails] = self.rng.integers(oldest, self._head, len(tails))

    def _n_step(
        self, places: np.ndarray, n_step: int | tuple[int, int], gamma: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Discounted sums of rewards [B], steps in them [B], places of their last rows [B]."""
        if isinstance(n_step, int):
            most, wanted = n_step, np.full(len(places), n_step)
        else:
            most, wanted = n_step[1], self.rng.integers(n_step[0], n_step[1] + 1, len(places))
        rewards = self.columns["rewards"].take(places)
        steps = np.ones(len(places), np.int64)
        last = places
        goes_on = np.ones(len(places), bool)
        for k in range(1, most):
            following = self._following.take(last) % self.slots
            goes_on = goes_on & (wanted > k) & self._valid.take(following)
            if not goes_on.any():
                break
            last = np.where(goes_on, following, last)
            more = np.where(goes_on, gamma**k * self.columns["rewards"].take(last), 0)
            rewards = rewards + more.astype(rewards.dtype)
            steps += goes_on
        return rewards, steps, last

    def _importance(self, places: np.ndarray, beta: float) -> np.ndarray:
        assert self._tree is not None
        # (N p / sum) ** -beta / (N p_min / sum) ** -beta: the number of rows and the sum cancel out.
        return ((self._tree.get(places) / self._tree.smallest) ** -beta).astype(np.float32)

    # Priorities.

    def set_priorities(self, rows: np.ndarray, priorities: np.ndarray) -> None:
        """Set priorities of rows that were drawn; rows that were overwritten since are left out.

        Args:
            rows: `Drawn.rows`.
            priorities: as many numbers above 0.
        """
        if self._tree is None:
            return
        rows, priorities = rows.reshape(-1), np.asarray(priorities, np.float64).reshape(-1)
        there = rows >= max(self._head - self.slots, 0)
        if not there.all():
            rows, priorities = rows[there], priorities[there]
        if len(rows):
            self._tree.set(rows % self.slots, priorities ** (self.alpha or 0.0))
            self.max_priority = max(self.max_priority, float(priorities.max()))

    # State.

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays; only the used slots. They are views: copy or pickle them before more is added."""
        used = min(self._head, self.slots)
        state = {name: getattr(self, name)[:used] for name in _ARRAYS}
        state |= {name: getattr(self, name) for name in _SCALARS}
        state["_open"] = dict(self._open)
        state["columns"] = {name: trees.take(column, slice(used)) for name, column in self.columns.items()}
        state["state_in"] = None if self.state_in is None else trees.take(self.state_in, slice(used))
        state["priorities"] = None if self._tree is None else self._tree.get(np.arange(used))
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over what `get_state` of a ring of the same capacity gave.

        Raises:
            ValueError: the capacity is another.
        """
        if state["slots"] != self.slots:
            raise ValueError(
                f"The state is that of a buffer of {state['slots']} rows; this one has {self.slots}"
            )
        used = len(state["_valid"])
        for name in _ARRAYS:
            getattr(self, name)[:used] = state[name]
            if name == "_valid":
                self._valid[used:] = False
        for name in _SCALARS:
            setattr(self, name, state[name])
        self._open = dict(state["_open"])
        self.columns = {name: self._filled(column) for name, column in state["columns"].items()}
        self.state_in = None if state["state_in"] is None else self._filled(state["state_in"])
        if self._tree is not None:
            self._tree = SumTree(self.slots)
            if state["priorities"] is not None:
                self._tree.set(np.arange(used), state["priorities"])

    def _filled(self, tree: Tree) -> Tree:
        empty = self._empty(tree)
        _write(empty, slice(len(next(trees.leaves(tree)))), tree)
        return empty


_ARRAYS = ("_valid", "_following", "_segment_start", "_terminated", "_truncated")
_SCALARS = ("slots", "rows", "rows_added", "episodes_ended", "max_priority", "_head")


def _read(tree: Tree, places: np.ndarray) -> Tree:
    if isinstance(tree, np.ndarray):
        return tree.take(places, 0)
    return trees.tree_map(lambda leaf: leaf.take(places, 0), tree)


def _write(tree: Tree, places: Any, values: Tree) -> None:
    if isinstance(tree, np.ndarray):
        tree[places] = values
    else:
        trees.tree_map(lambda leaf, new: leaf.__setitem__(places, new), tree, values)


def _last_rows(rollout: Rollout, rows: int) -> Rollout:
    """The last `rows` rows of a rollout of one segment."""
    if rollout.rows <= rows:
        return rollout
    segments = rollout.segments.take([0])
    segments.t_started = segments.t_started + (rollout.rows - rows)
    segments.lengths = np.array([rows])
    return Rollout(
        {name: trees.take(column, slice(-rows, None)) for name, column in rollout.columns.items()},
        segments,
        rollout.final_obs,
    )
