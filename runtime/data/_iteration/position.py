"""Where an iterator is in its epoch, and how another one goes on from there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class Position:
    """`rows`: how many the consumer got in the epoch. `seed`: of its local shuffle. `has_begun`: whether a pass runs;
    another pass after it is the next epoch."""

    epoch: int = 0
    rows: int = 0
    seed: int | None = None
    has_begun: bool = False

    def begin(self, seed: int | None) -> Position:
        """A pass begins. Returns where: at the epoch's first row, unless a state was loaded.

        Args:
            seed: of the local shuffle, if the user gave one.
        """
        if self.has_begun:  # and was left early
            self.end(self.epoch)
        self.has_begun = True
        if seed is not None or self.seed is None:
            self.seed = secrets.randbits(32) if seed is None else seed
        return Position(self.epoch, self.rows, self.seed)

    def advance(self, epoch: int, rows: int) -> None:
        """The consumer gets rows of an epoch. Only the pass that began last counts."""
        if epoch == self.epoch:
            self.rows += rows

    def end(self, epoch: int) -> None:
        """The consumer got all rows of an epoch."""
        if epoch == self.epoch:
            self.epoch, self.rows, self.seed, self.has_begun = epoch + 1, 0, None, False

    def state_dict(self) -> dict[str, Any]:
        """See `DataIterator.state_dict`."""
        return {"epoch": self.epoch, "rows": self.rows, "seed": self.seed}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Position:
        """The position of a `state_dict`.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(int(state["epoch"]), int(state["rows"]), state["seed"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"load_state_dict needs what state_dict returned, not {state!r:.200}.") from None


def without_first(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Tables without the first rows of all of them together."""
    for table in tables:
        if rows >= table.num_rows:
            rows -= table.num_rows
        elif rows:
            yield table.slice(rows, table.num_rows - rows)
            rows = 0
        else:
            yield table
