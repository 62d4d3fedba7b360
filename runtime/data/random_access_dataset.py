"""`RandomAccessDataset`: rows by a key, from blocks that actors hold."""

from __future__ import annotations

import bisect
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.data._plan.nodes import GivenBlock

Row = dict[str, Any]


class RandomAccessDataset:
    """Finds rows by the values of a column. Made by `Dataset.to_random_access_dataset`.

    Actors read the sorted blocks in place. A block belongs to all actors of its node, or to one if there is none.
    """

    def __init__(self, sorted_blocks: Sequence[GivenBlock], key: str, num_workers: int) -> None:
        """
        Args:
            sorted_blocks: blocks in the order of the key, nulls last.
        """
        import runtime

        if num_workers < 1:
            raise ValueError(f"num_workers is {num_workers}, but there is at least one.")
        begun = time.perf_counter()
        self._blocks = [block for block in sorted_blocks if block.rows]
        worker = runtime.remote(num_cpus=0)(_Worker)
        self._workers = [worker.remote(key) for _ in range(num_workers)]
        self._holders = self._assign()
        held: dict[int, dict[int, tuple[Any, int, int]]] = defaultdict(dict)
        for number, holders in enumerate(self._holders):
            block = self._blocks[number]
            for holder in holders:
                # In a list, so that the reference arrives rather than the block.
                held[holder][number] = ([block.ref], block.start, block.rows)
        bounds: dict[int, tuple[Any, Any] | None] = {}
        for each in runtime.get([self._workers[n].hold.remote(blocks) for n, blocks in held.items()]):
            bounds.update(each)
        # Blocks of nulls have no bounds. They are the last ones.
        self._bounds = [bound for _, bound in sorted(bounds.items()) if bound is not None]
        self._upper = [high for _, high in self._bounds]
        self._build_s = time.perf_counter() - begun

    def _assign(self) -> list[list[int]]:
        """The workers that hold each block."""
        import runtime
        from runtime import experimental

        nodes = runtime.get([worker.node.remote() for worker in self._workers])
        by_node: dict[str, list[int]] = defaultdict(list)
        for number, node in enumerate(nodes):
            by_node[node].append(number)
        refs = [block.ref for block in self._blocks]
        locations = experimental.get_object_locations(refs) if refs else {}
        assigned = []
        for number, ref in enumerate(refs):
            near = [w for node in locations.get(ref, {}).get("node_ids", ()) for w in by_node.get(node, ())]
            assigned.append(near or [number % len(self._workers)])
        return assigned

    def get_async(self, key: Any) -> Any:
        """A reference to the row with this key, or to None."""
        import runtime

        number = self._block_of(key)
        if number is None:
            return runtime.put(None)
        return self._worker_of(number).get.remote(number, key)

    def multiget(self, keys: Sequence[Any]) -> list[Row | None]:
        """The row for each key; None where there is none."""
        import runtime

        places: dict[int, list[int]] = defaultdict(list)
        for place, key in enumerate(keys):
            number = self._block_of(key)
            if number is not None:
                places[number].append(place)
        asked = [
            self._worker_of(number).multiget.remote(number, [keys[place] for place in wanted])
            for number, wanted in places.items()
        ]
        found: list[Row | None] = [None] * len(keys)
        for wanted, rows in zip(places.values(), runtime.get(asked), strict=True):
            for place, row in zip(wanted, rows, strict=True):
                found[place] = row
        return found

    def stats(self) -> str:
        """Workers, their blocks and accesses, and the time that these took."""
        import runtime

        told: list[Mapping[str, Any]] = runtime.get([worker.stats.remote() for worker in self._workers])
        blocks = [each["num_blocks"] for each in told]
        accesses = [each["num_accesses"] for each in told]
        mean_us = sum(each["total_time"] for each in told) / max(1, sum(accesses)) * 1e6
        return (
            "RandomAccessDataset:\n"
            f"- Build time: {self._build_s:.2f}s\n"
            f"- Num workers: {len(told)}\n"
            f"- Blocks per worker: {_spread(blocks)}\n"
            f"- Accesses per worker: {_spread(accesses)}\n"
            f"- Mean access time: {mean_us:.0f}us\n"
        )

    def _worker_of(self, number: int) -> Any:
        return self._workers[random.choice(self._holders[number])]

    def _block_of(self, key: Any) -> int | None:
        """The first block that may hold the key."""
        number = bisect.bisect_left(self._upper, key)
        if number == len(self._upper) or key < self._bounds[number][0]:
            return None
        return number


def _spread(numbers: Sequence[int]) -> str:
    return f"{min(numbers)} min, {max(numbers)} max, {sum(numbers) // len(numbers)} mean"


class _Worker:
    """Holds blocks, and finds rows in them."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._tables: dict[int, Any] = {}
        self._keys: dict[int, Any] = {}
        self._accesses = 0
        self._took_s = 0.0

    def node(self) -> str:
        import runtime

        return runtime.get_runtime_context().get_node_id()

    def hold(self, blocks: Mapping[int, tuple[list[Any], int, int]]) -> dict[int, tuple[Any, Any] | None]:
        """Takes the blocks. Returns the least and the greatest key of each; None for a block of nulls."""
        import runtime

        bounds: dict[int, tuple[Any, Any] | None] = {}
        for number, ((ref,), start, rows) in blocks.items():
            table = runtime.get(ref).slice(start, rows)
            self._tables[number] = table
            keys = self._keys[number] = _values(table.column(self._key).drop_null())
            bounds[number] = (_plain(keys[0]), _plain(keys[-1])) if len(keys) else None
        return bounds

    def get(self, number: int, key: Any) -> Row | None:
        return self.multiget(number, [key])[0]

    def multiget(self, number: int, keys: Sequence[Any]) -> list[Row | None]:
        from runtime.data._block.batch import rows

        begun = time.perf_counter()
        held, table = self._keys[number], self._tables[number]
        found: list[Row | None] = []
        for key in keys:
            row = bisect.bisect_left(held, key)
            there = row < len(held) and held[row] == key
            found.append(next(rows(table.slice(row, 1))) if there else None)
        self._took_s += time.perf_counter() - begun
        self._accesses += 1
        return found

    def stats(self) -> dict[str, Any]:
        return {
            "num_blocks": len(self._tables),
            "num_accesses": self._accesses,
            "total_time": self._took_s,
        }


def _values(column: Any) -> Any:
    """The keys in order, to be looked up one by one: numbers as a view of the block."""
    from runtime.data._block.batch import column_to_list, column_to_numpy, is_viewable

    return column_to_numpy(column) if is_viewable(column) else column_to_list(column)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
