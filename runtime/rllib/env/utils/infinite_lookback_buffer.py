"""A sequence of time steps, some of which lie before its start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.trees import Tree, unbatch

Indices = int | slice | Sequence[int] | None


class Reading(TypedDict, total=False):
    """Keywords of `InfiniteLookbackBuffer.get`, which episodes' getters have, too."""

    neg_index_as_lookback: bool
    fill: Any


class ReadingOfSpace(Reading, total=False):
    """The same of items of a space."""

    one_hot_discrete: bool


class Writing(TypedDict, total=False):
    """Keywords of `InfiniteLookbackBuffer.set`, which episodes' setters have, too."""

    at_indices: Indices
    neg_index_as_lookback: bool


class InfiniteLookbackBuffer:
    """Items of an episode by time step. The first `lookback` items lie before time step 0.

    The items are a list, or, once `finalize` was called, a tree of arrays whose first dimension is time.

    Indices count from time step 0; negative ones from the end, or, with `neg_index_as_lookback`, from time step 0
    backwards into the lookback.
    """

    __slots__ = ("data", "finalized", "lookback", "space")

    def __init__(self, data: Any = None, lookback: int = 0, space: Any = None) -> None:
        """
        Args:
            data: a list of items, or a tree of arrays [time, ...].
            lookback: how many of them lie before time step 0; at most all.
            space: the gymnasium space of an item, needed for one-hot vectors.
        """
        self.data: Any = [] if data is None else data
        self.finalized = not isinstance(self.data, list)
        self.space = space
        self.lookback = 0
        self.lookback = min(lookback, self.len_incl_lookback()) if lookback else 0

    def len_incl_lookback(self) -> int:
        """The number of items, those of the lookback included."""
        if not self.finalized:
            return len(self.data)
        return len(self.data if isinstance(self.data, np.ndarray) else next(trees.leaves(self.data)))

    def __len__(self) -> int:
        return self.len_incl_lookback() - self.lookback

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InfiniteLookbackBuffer):
            return NotImplemented
        return (
            self.lookback == other.lookback
            and self.finalized == other.finalized
            and self.space == other.space
            and _equal(self.data, other.data)
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"InfiniteLookbackBuffer({self.data!r}, lookback={self.lookback})"

    def __getitem__(self, item: Any) -> Any:
        return self.get(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(value, at_indices=key)

    def __add__(self, other: Any) -> InfiniteLookbackBuffer:
        """A buffer with the items of a list or buffer at the end (without its lookback), or with a number added to
        every number."""
        if self.finalized:
            raise RuntimeError("A buffer of arrays cannot be added to: use extend()")
        if isinstance(other, int | float | complex):
            added = [item + other if isinstance(item, int | float | complex) else item for item in self.data]
        elif isinstance(other, InfiniteLookbackBuffer):
            added = [*self.data, *other.data[other.lookback :]]
        else:
            added = [*self.data, *other]
        return InfiniteLookbackBuffer(added, self.lookback, self.space)

    # ------------------------------------------------------------ growing

    def append(self, item: Any) -> None:
        """Adds one item to the end. With arrays that copies them all."""
        if self.finalized:
            self.data = trees.tree_map(
                lambda column, value: np.concatenate(
                    [room := _room_for(column, value), np.asarray(value, room.dtype)[None]]
                ),
                self.data,
                item,
            )
        else:
            self.data.append(item)

    def extend(self, items: Any) -> None:
        """Adds a list of items, or a tree of arrays [time, ...], to the end."""
        if not self.finalized:
            self.data.extend(items if isinstance(items, list) else unbatch(items))
        elif not isinstance(items, list):
            self.data = trees.concatenate([self.data, items])
        elif items:
            self.data = trees.concatenate([self.data, trees.stack(items)])

    def concat(self, other: InfiniteLookbackBuffer) -> None:
        """Adds the items of another buffer, without its lookback."""
        self.extend(other.get())

    def pop(self, index: int = -1) -> None:
        """Removes an item."""
        if not self.finalized:
            self.data.pop(index)
        elif index == -1:
            self.data = trees.take(self.data, slice(None, -1))
        else:
            self.data = trees.tree_map(lambda column: np.delete(column, index, axis=0), self.data)

    def finalize(self) -> None:
        """Makes arrays of the list. An empty list stays one."""
        if not self.finalized and self.data:
            self.data = trees.stack(self.data)
            self.finalized = True

    def to_list(self) -> None:
        """Makes a list of the arrays, which can grow."""
        if self.finalized:
            self.data, self.finalized = unbatch(self.data), False

    # ------------------------------------------------------------ reading

    def get(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: float | None = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Items.

        Args:
            indices: one, a range or a list of time steps; None gives all from time step 0 on.
            neg_index_as_lookback: see the class.
            fill: the value of items outside of the buffer, in every element.
            one_hot_discrete: whether discrete parts of the space become one-hot vectors (float32); those outside of
                the buffer are vectors of `fill`.

        Returns:
            An item for an int, else a list of items or a tree of arrays [len(indices), ...].

        Raises:
            IndexError: a single index is outside, and there is no `fill`. A range is cut instead.
        """
        if indices is None:
            indices = slice(None)
        if isinstance(indices, slice):
            positions = self._positions(indices, neg_index_as_lookback)
            length = self.len_incl_lookback()
            inside = range(length)
            if fill is None or not positions or (positions[0] in inside and positions[-1] in inside):
                return self._encoded(self._cut(positions, length), one_hot_discrete)
            return self._filled([*positions], fill, one_hot_discrete)
        if isinstance(indices, int | np.integer):
            position = self._position(int(indices), neg_index_as_lookback)
            return self._item(position, fill, one_hot_discrete)
        positions_of_list = [self._position(int(index), neg_index_as_lookback) for index in indices]
        return self._filled(positions_of_list, fill, one_hot_discrete)

    def part(self, start: int, stop: int, lookback: int) -> InfiniteLookbackBuffer:
        """The items of these time steps, with up to that many before them as the lookback; arrays are views."""
        lookback = min(lookback, self.lookback + start)
        cut = slice(self.lookback + start - lookback, self.lookback + stop)
        data = self.data[cut] if isinstance(self.data, list) else trees.take(self.data, cut)
        return InfiniteLookbackBuffer(data, lookback, self.space)

    def _position(self, index: int, neg_index_as_lookback: bool) -> int:
        """Where in the data an index is; it may be outside."""
        if index >= 0 or neg_index_as_lookback:
            return self.lookback + index
        return self.len_incl_lookback() + index

    def _positions(self, wanted: slice, neg_index_as_lookback: bool) -> range:
        step = 1 if wanted.step is None else wanted.step
        length = self.len_incl_lookback()
        first, last = (self.lookback, length) if step > 0 else (length - 1, self.lookback - 1)
        if wanted.start is not None:
            first = self._position(wanted.start, neg_index_as_lookback)
        if wanted.stop is not None:
            last = self._position(wanted.stop, neg_index_as_lookback)
        return range(first, last, step)

    def _cut(self, positions: range, length: int) -> Any:
        """The items at those of the positions that are inside."""
        if positions and not (0 <= positions[0] < length and 0 <= positions[-1] < length):
            kept = [position for position in positions if 0 <= position < length]
            positions = range(kept[0], kept[-1] + positions.step, positions.step) if kept else range(0)
        stop: int | None = positions.stop
        if positions.step < 0 and positions.stop < 0:
            stop = None
        cut = slice(positions.start, stop, positions.step) if positions else slice(0, 0)
        if isinstance(self.data, list | np.ndarray):
            return self.data[cut]
        return trees.take(self.data, cut)

    def _filled(self, positions: list[int], fill: float | None, one_hot_discrete: bool) -> Any:
        items = [self._item(position, fill, one_hot_discrete) for position in positions]
        if self.finalized and items:
            return trees.stack(items)
        return self._cut(range(0), 0) if self.finalized else items

    def _item(self, position: int, fill: float | None, one_hot_discrete: bool) -> Any:
        length = self.len_incl_lookback()
        if 0 <= position < length:
            if isinstance(self.data, list | np.ndarray):
                return self._encoded(self.data[position], one_hot_discrete)
            return self._encoded(trees.take(self.data, position), one_hot_discrete)
        if fill is None:
            raise IndexError(
                f"Time step {position - self.lookback} is outside of the {length} items of the buffer "
                f"({self.lookback} of them lookback): give `fill` to have a value there"
            )
        return self._outside(fill, one_hot_discrete)

    def _outside(self, fill: float, one_hot_discrete: bool) -> Any:
        """What an item outside of the buffer is."""
        if self.len_incl_lookback():
            known = self.data[0] if not self.finalized else trees.take(self.data, 0)
        elif self.space is not None:
            known = self.space.sample()
        else:
            return fill
        return trees.tree_map(_like(fill), self._encoded(known, one_hot_discrete))

    def _encoded(self, value: Tree, one_hot_discrete: bool) -> Tree:
        if not one_hot_discrete:
            return value
        if self.space is None:
            raise ValueError("`one_hot_discrete` needs the space of the items: set `space`")
        if isinstance(value, list):
            return [one_hot_by_space(item, self.space) for item in value]
        return one_hot_by_space(value, self.space)

    # ------------------------------------------------------------ writing

    def set(
        self,
        new_data: Any,
        *,
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrites items: with one for an int, else with a list of items or a tree of arrays of the same length.

        Raises:
            IndexError: an index is outside of the buffer.
            ValueError: the lengths differ.
        """
        if isinstance(at_indices, int | np.integer):
            self._put(self._position(int(at_indices), neg_index_as_lookback), new_data)
            return
        if at_indices is None or isinstance(at_indices, slice):
            positions = [*self._positions(at_indices or slice(None), neg_index_as_lookback)]
        else:
            positions = [self._position(int(index), neg_index_as_lookback) for index in at_indices]
        given = new_data if isinstance(new_data, list) else unbatch(new_data)
        if len(given) != len(positions):
            raise ValueError(f"{len(given)} new items cannot replace {len(positions)} items")
        for position, item in zip(positions, given, strict=True):
            self._put(position, item)

    def _put(self, position: int, item: Any) -> None:
        length = self.len_incl_lookback()
        if not 0 <= position < length:
            raise IndexError(
                f"Time step {position - self.lookback} is outside of the {length} items of the buffer "
                f"({self.lookback} of them lookback)"
            )
        if not self.finalized:
            self.data[position] = item
            return
        self.data = trees.tree_map(_room_for, self.data, item)
        trees.put(self.data, position, item)

    # ------------------------------------------------------------ state

    def get_state(self) -> dict[str, Any]:
        """What `from_state` makes an equal buffer of."""
        return {
            "data": [*self.data] if isinstance(self.data, list) else self.data,
            "lookback": self.lookback,
            "finalized": self.finalized,
            "space": self.space,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> InfiniteLookbackBuffer:
        """The buffer that gave this state."""
        data = state["data"]
        if state["finalized"] and isinstance(data, list):  # formats like msgpack have no tuples
            data = tuple(data)
        return cls(data, state["lookback"], state["space"])


def one_hot_by_space(value: Tree, space: Any) -> Tree:
    """The tree with one-hot vectors (float32) instead of the numbers of its discrete parts.

    Args:
        value: an item of the space, or a tree of arrays [..., item].
        space: a gymnasium space.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: one_hot_by_space(value[key], part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(one_hot_by_space(item, part) for item, part in zip(value, space.spaces, strict=True))
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[np.asarray(value, np.int64) - int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        numbers = np.asarray(value, np.int64) - np.asarray(space.start)
        flat = numbers.reshape(*numbers.shape[: numbers.ndim - space.nvec.ndim], space.nvec.size)
        parts = [np.eye(int(n), dtype=np.float32)[flat[..., i]] for i, n in enumerate(space.nvec.ravel())]
        return np.concatenate(parts, axis=-1)
    return value


def _like(fill: float) -> Any:
    def filled(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic):
            return np.full_like(leaf, fill) if np.ndim(leaf) else np.asarray(leaf).dtype.type(fill)
        return fill

    return filled


def _room_for(column: np.ndarray, value: Any) -> np.ndarray:
    """The column if the value can be written into it, else a copy. A column of integers becomes one of floats for the
    first float."""
    dtype = np.asarray(value).dtype
    if dtype.kind == "f" and column.dtype.kind in "iu":
        return column.astype(dtype)
    return column if column.flags.writeable else column.copy()


def _equal(one: Tree, other: Tree) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_equal(one[k], other[k]) for k in one)
        )
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(_equal, one, other))
    return bool(np.array_equal(one, other))
