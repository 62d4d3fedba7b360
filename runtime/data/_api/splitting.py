"""Methods of `Dataset` that make several of one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

from runtime.data._exec.slicing import in_parts
from runtime.data._exec.split_server import iterators
from runtime.data.iterator import DataIterator

from .summarizing import Summarizing

_IN_TEST = "__in_test"


class Splitting(Summarizing):
    """See `Dataset`."""

    def split(
        self, n: int, *, equal: bool = False, locality_hints: Sequence[Any] | None = None
    ) -> list[Self]:
        """Materializes the rows in `n` parts.

        Args:
            equal: every part has the same number of rows; the last few rows may be left out.
            locality_hints: no effect.
        """
        if n < 1:
            raise ValueError(f"split needs a number of parts, not {n}.")
        _check_hints(locality_hints, n)
        whole = self.materialize()
        rows = whole.count()
        if equal:
            return self._cut(whole, [rows // n * i for i in range(1, n)], end=rows // n * n)
        blocks = whole._given_blocks()
        if len(blocks) < n:
            return self._cut(whole, [rows * i // n for i in range(1, n)])
        each, more = divmod(len(blocks), n)  # the first parts get one block more
        firsts = [each * i + min(i, more) for i in range(1, n)]
        return self._cut(whole, [sum(block.rows for block in blocks[:first]) for first in firsts])

    def split_at_indices(self, indices: Sequence[int]) -> list[Self]:
        """Materializes the rows in parts that begin at 0 and at each index.

        Raises:
            ValueError: the indices are empty, negative or not in order.
        """
        if not indices or any(index < 0 for index in indices) or list(indices) != sorted(indices):
            raise ValueError(f"split_at_indices needs indices in order, not {list(indices)}.")
        return self._cut(self.materialize(), indices)

    def split_proportionately(self, proportions: Sequence[float]) -> list[Self]:
        """Materializes the rows in parts of these shares, and one more with what is left.

        Raises:
            ValueError: a share is not positive, they make 1 or more together, or a part would be empty.
        """
        if not proportions or any(share <= 0 for share in proportions) or sum(proportions) >= 1:
            raise ValueError(
                f"split_proportionately needs shares of less than 1 together, not {list(proportions)}."
            )
        whole = self.materialize()
        rows = whole.count()
        borders = [int(rows * share) for share in itertools.accumulate(proportions)]
        for i in range(len(borders) - 1, 0, -1):  # no part is empty
            borders[i - 1] = min(borders[i - 1], borders[i] - 1)
        if borders[0] < 1:
            raise ValueError(f"{rows} rows are too few for the shares {list(proportions)}.")
        return self._cut(whole, borders)

    def train_test_split(
        self,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[Self, Self]:
        """Materializes the rows in two parts, the second of `test_size` rows, or of this share.

        Args:
            test_size: a number of rows, or a share between 0 and 1.
            shuffle, seed: whether to shuffle the rows first, and how.
            stratify: a column. The last rows of each of its values are in the second part: the same share of each,
                rounded down.

        Raises:
            TypeError: `test_size` is no number.
            ValueError: `test_size` is not between 0 and all rows, or `stratify` was given with `shuffle`.
        """
        if isinstance(test_size, bool) or not isinstance(test_size, (int, float)):
            raise TypeError(f"test_size must be a number, not {type(test_size).__name__}.")
        if shuffle and stratify is not None:
            raise ValueError("train_test_split takes shuffle=True or stratify, not both.")
        if isinstance(test_size, float) and not 0 < test_size < 1:
            raise ValueError(f"test_size must be between 0 and 1, or a number of rows, not {test_size}.")
        whole = (self.random_shuffle(seed=seed) if shuffle else self).materialize()
        rows = whole.count()
        share: float | Fraction
        if isinstance(test_size, float):
            share, border = test_size, int(rows * (1 - test_size))
        else:
            if not 0 < test_size < rows:
                raise ValueError(
                    f"test_size must be between 0 and {rows}, the number of rows, not {test_size}."
                )
            share, border = Fraction(test_size, rows), rows - test_size
        if stratify is not None:
            return self._cut_groups(whole, stratify, share)
        train, test = self._cut(whole, [border])
        return train, test

    def _cut_groups(self, whole: Self, column: str, share: float | Fraction) -> tuple[Self, Self]:
        """The first rows of each group, and this share of them, the last."""
        import pyarrow as pa

        from runtime.data.expressions import col

        def marked(group: pa.Table) -> pa.Table:
            test_rows = int(group.num_rows * share)
            flags = [False] * (group.num_rows - test_rows) + [True] * test_rows
            return group.append_column(_IN_TEST, pa.array(flags, pa.bool_()))

        rows = whole.groupby(column).map_groups(marked, batch_format="pyarrow").materialize()
        parts = [rows.filter(expr=each).drop_columns([_IN_TEST]) for each in (~col(_IN_TEST), col(_IN_TEST))]
        return parts[0].materialize(), parts[1].materialize()

    def _cut(self, whole: Self, borders: Sequence[int], end: int | None = None) -> list[Self]:
        parts = in_parts(whole._given_blocks(), [0, *borders, whole.count() if end is None else end])
        return [self._kept_with(part) for part in parts]

    def streaming_split(
        self, n: int, *, equal: bool = False, locality_hints: Sequence[Any] | None = None
    ) -> list[DataIterator]:
        """Iterators over `n` parts that are computed while they are read, e.g. one for each worker of a training.

        Each pass of an iterator is one epoch; the plan runs once for each. An epoch begins as soon as one iterator
        begins it. Blocks go to whoever asks, so that a slow or dead reader blocks nobody.

        Args:
            equal: every part gets the same number of rows; up to `n` - 1 rows are left out. All parts must be read at
                the same time: readers wait for one that has stopped, as its rows may take no more than the data set
                may hold.
            locality_hints: the id of the node of each iterator's reader. Blocks on it go to it, unless one waits for it
                already. With `equal` only if `execution_options.preserve_order` is False: otherwise each part has the
                same rows in every run.
        """
        if n < 1:
            raise ValueError(f"streaming_split needs a number of parts, not {n}.")
        _check_hints(locality_hints, n)
        return iterators(self, n, equal, list(locality_hints or ()))


def _check_hints(hints: Sequence[Any] | None, parts: int) -> None:
    if hints is not None and len(hints) != parts:
        raise ValueError(f"locality_hints has {len(hints)} entries for {parts} parts.")
