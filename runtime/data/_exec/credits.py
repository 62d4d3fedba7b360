"""Byte credits: what an execution holds in object stores, and what it may add. Pure.

Three things count against the budget: blocks that wait or are read by running tasks (held), one block for each running
task, which lies in its stream until it is taken, and one for each block that was asked for and has not come (both
reserved, with the size of the largest block that the operator has made so far).

Blocks that a barrier collects (parked) do not count: a sort or a join has to keep all of its input, and the stores move
it to disk when they are full.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime._controllers.controller import Key

from .bundles import Bundle


@dataclass(slots=True)
class _Block:
    size_bytes: int = 0
    counted: int = 0
    parked: int = 0


class Ledger:
    """What one execution holds.

    Args:
        budget_bytes: its limit.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        self.reserved_bytes = 0
        self.peak_bytes = 0
        self._blocks: dict[Key, _Block] = {}

    def hold(self, bundle: Bundle) -> None:
        """One more holder of a block. The first bundle of a block is all of it."""
        block = self._block(bundle)
        block.counted += 1
        if block.counted == 1:
            self.held_bytes += block.size_bytes
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def park(self, bundle: Bundle) -> None:
        """One more holder that does not count."""
        self._block(bundle).parked += 1

    def release(self, bundle: Bundle) -> bool:
        """One holder less. Whether it was the last one: nobody needs the block any more."""
        return self._drop(bundle.key, is_parked=False)

    def unpark(self, bundle: Bundle) -> bool:
        """As `release`, of a holder that does not count."""
        return self._drop(bundle.key, is_parked=True)

    def clear(self) -> list[Key]:
        """Lets go of everything. Returns the blocks."""
        keys = list(self._blocks)
        self._blocks.clear()
        self.held_bytes = self.reserved_bytes = 0
        return keys

    def reserve(self, size_bytes: int) -> None:
        """Sets bytes aside for a block to come; a negative number gives them back."""
        self.reserved_bytes += size_bytes

    def fits(self, size_bytes: int) -> bool:
        """Whether so much more stays within the budget."""
        return self.held_bytes + self.reserved_bytes + size_bytes <= self.budget_bytes

    def _block(self, bundle: Bundle) -> _Block:
        size_bytes = 0 if bundle.is_given else bundle.size_bytes
        return self._blocks.setdefault(bundle.key, _Block(size_bytes))

    def _drop(self, key: Key, is_parked: bool) -> bool:
        block = self._blocks[key]
        if is_parked:
            block.parked -= 1
        else:
            block.counted -= 1
            if not block.counted:
                self.held_bytes -= block.size_bytes
        if block.counted or block.parked:
            return False
        del self._blocks[key]
        return True


class Prediction:
    """How large the next block of an operator is: as large as its largest so far.

    Args:
        first_bytes: before there was one.
    """

    def __init__(self, first_bytes: int) -> None:
        self._bytes = first_bytes
        self._is_known = False

    @property
    def block_bytes(self) -> int:
        return self._bytes

    def seen(self, size_bytes: int) -> None:
        """An operator has made a block of this size."""
        self._bytes = max(self._bytes, size_bytes) if self._is_known else size_bytes
        self._is_known = True
