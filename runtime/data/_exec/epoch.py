"""One pass of a `streaming_split` over its data set: whose turn it is to get which rows. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

HELD_FOR_HOMES = 2
"""With `equal`, so many blocks for each reader wait at most until a reader on their node is the next to get one."""
Part = tuple[Any, int, int]
"""The reference to a block, the first of its rows, and their number."""


class Held(Enum):
    """Why there is nothing for a reader, although its epoch goes on."""

    BY_OTHERS = "too many rows wait for readers that do not take them"


@dataclass(slots=True)
class Block:
    """A block of the result. `size_bytes`: what it takes while somebody needs it; 0 if it exists anyway."""

    ref: Any
    rows: int
    start: int = 0
    size_bytes: int = 0
    nodes: Sequence[str] = ()
    """Those that have it, if anybody wants to know."""
    pieces: int = 0
    """How many wait for their readers."""


@dataclass(slots=True)
class _Piece:
    block: Block
    start: int
    rows: int


class Epoch:
    """Deals the rows of blocks to readers.

    Args:
        blocks: those of the result; waited for in `next`.
        parts: how many readers there are.
        equal: whether each gets as many rows: an equal share of each block, or with `homes` whole blocks where that can
            be levelled out. Otherwise a block goes to whoever asks, unless it lies on the node of another reader that
            has none waiting.
        most_bytes: no block is dealt while blocks of so many bytes wait for readers.
        homes: the node of each reader, as far as known; none: it does not matter where blocks are.
    """

    def __init__(
        self,
        blocks: Iterator[Block],
        parts: int,
        equal: bool,
        most_bytes: int,
        homes: Sequence[str | None] = (),
    ) -> None:
        self._homes = homes
        self._blocks = blocks
        self._equal = equal
        self._most_bytes = most_bytes
        self._queues: list[deque[_Piece]] = [deque() for _ in range(parts)]
        self._carried: list[_Piece] = []
        self._dealt = [0] * parts  # rows, with `equal`
        self._readers = set(range(parts))
        self.waiting_bytes = 0

    def next(self, part: int) -> Part | Held | None:
        """The next rows of a part; None at its end."""
        queue = self._queues[part]
        while not queue:
            if part not in self._readers:
                return None
            if self.waiting_bytes >= self._most_bytes:
                if self._equal:
                    return Held.BY_OTHERS
                return self._take(self._longest())
            block = next(self._blocks, None)
            if block is None:
                if self._equal:
                    self._deal_evenly()
                elif longest := self._longest():
                    return self._take(longest)
                if queue:
                    break
                self._readers.discard(part)
                return None
            piece = _Piece(block, block.start, block.rows)
            if self._equal:
                self._carried.append(piece)
                self._deal()
            else:
                self._give(self._near(block, part), piece)
        return self._take(queue)

    def _longest(self) -> deque[_Piece]:
        """What waits for a reader that does not come, or comes late, others may have."""
        return max(self._queues, key=len)

    def _near(self, block: Block, asking: int) -> int:
        """The reader that gets a block: one on its node, if the one that asks is elsewhere."""
        near = [part for part, home in enumerate(self._homes) if home in block.nodes]
        if asking in near:
            return asking
        return next((part for part in near if part in self._readers and not self._queues[part]), asking)

    def leave(self, part: int) -> None:
        """The reader of a part needs nothing more of this pass."""
        self._readers.discard(part)
        if self._equal or not self._readers:  # otherwise others take what waits
            for queue in self._queues if not self._readers else [self._queues[part]]:
                while queue:
                    self._take(queue)

    @property
    def is_over(self) -> bool:
        """Whether all readers have come to their ends."""
        return not self._readers

    @property
    def slow(self) -> list[int]:
        """The parts whose rows wait for their readers."""
        return [part for part, queue in enumerate(self._queues) if queue]

    def _deal(self) -> None:
        """Gives parts rows of what is carried: whole blocks on their nodes, the part with the fewest rows first. If too
        much is carried, the first block goes to a part elsewhere; equal shares if the rows that are left could not make
        the parts equal after that."""
        while self._homes and self._carried:
            part = min(range(len(self._dealt)), key=self._dealt.__getitem__)
            home, is_full = self._homes[part], self._carries_enough()
            near = (i for i, piece in enumerate(self._carried) if home in piece.block.nodes)
            chosen = next(near, 0 if is_full else None)
            if chosen is None:
                return
            if not self._can_level(part, self._carried[chosen].rows):
                if is_full:
                    break
                return
            self._give(part, self._carried.pop(chosen))
        self._deal_evenly()

    def _carries_enough(self) -> bool:
        carried_bytes = sum(piece.block.size_bytes for piece in self._carried)
        return (
            len(self._carried) >= HELD_FOR_HOMES * len(self._queues)
            or self.waiting_bytes + carried_bytes >= self._most_bytes
        )

    def _can_level(self, part: int, rows: int) -> bool:
        """Whether what is carried then still makes all parts equal, if a part gets `rows` of it."""
        dealt = [*self._dealt]
        dealt[part] += rows
        missing = max(dealt) * len(dealt) - sum(dealt)
        return sum(piece.rows for piece in self._carried) - rows >= missing

    def _deal_evenly(self) -> None:
        """Makes the numbers of rows that parts have got equal; fewer rows than there are parts stay carried."""
        most, pieces = max(self._dealt), self._carried
        missing = [most - dealt for dealt in self._dealt]
        share = (sum(each.rows for each in pieces) - sum(missing)) // len(missing)
        for part, extra in enumerate(missing):
            wanted = extra + share
            while wanted:
                first = pieces[0]
                taken = min(first.rows, wanted)
                self._give(part, _Piece(first.block, first.start, taken))
                wanted -= taken
                if taken < first.rows:
                    pieces[0] = _Piece(first.block, first.start + taken, first.rows - taken)
                else:
                    pieces.pop(0)

    def _give(self, part: int, piece: _Piece) -> None:
        self._dealt[part] += piece.rows
        if part not in self._readers:
            return
        if not piece.block.pieces:
            self.waiting_bytes += piece.block.size_bytes
        piece.block.pieces += 1
        self._queues[part].append(piece)

    def _take(self, queue: deque[_Piece]) -> Part:
        piece = queue.popleft()
        piece.block.pieces -= 1
        if not piece.block.pieces:
            self.waiting_bytes -= piece.block.size_bytes
        return piece.block.ref, piece.start, piece.rows
