"""`streaming_split`: an actor runs the plan once for each epoch, and gives its blocks to whoever asks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from runtime.data._iteration.prefetch import Cancellation
from runtime.data._plan.nodes import Given, GivenBlock
from runtime.data.context import DataContext
from runtime.data.iterator import DataIterator

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.data._api.plan_holder import PlanHolder
    from runtime.data._api.schema import Schema

Part = tuple[Any, int, int]
"""The reference to a block, the first of its rows, and their number."""


class _Epoch:
    """One pass over the data set. Its methods are called under the server's lock."""

    def __init__(self, blocks: Iterator[Part], parts: int, equal: bool) -> None:
        self._blocks = blocks
        self._equal = equal
        self._queues: list[deque[Part]] = [deque() for _ in range(parts)]
        self._carried: list[Part] = []
        self._readers = set(range(parts))

    def next(self, part: int) -> Part | None:
        queue = self._queues[part]
        while not queue:
            block = next(self._blocks, None)
            if block is None:
                self._readers.discard(part)
                return None
            if self._equal:
                self._deal(block)
            else:
                queue.append(block)
        return queue.popleft()

    @property
    def is_over(self) -> bool:
        return not self._readers

    def _deal(self, block: Part) -> None:
        """Gives every part as many rows of a block; what is left waits for the next block."""
        pieces = [*self._carried, block]
        share = sum(rows for _, _, rows in pieces) // len(self._queues)
        for queue in self._queues:
            wanted = share
            while wanted:
                ref, start, rows = pieces.pop(0)
                taken = min(rows, wanted)
                queue.append((ref, start, taken))
                wanted -= taken
                if taken < rows:
                    pieces.insert(0, (ref, start + taken, rows - taken))
        self._carried = pieces


class SplitServer:
    """An actor that runs a data set for several readers. Threads call it side by side."""

    def __init__(self, dataset: Any, parts: int, equal: bool) -> None:
        self._dataset = dataset
        self._parts = parts
        self._equal = equal
        self._lock = threading.Lock()
        self._epochs: dict[int, _Epoch] = {}

    def next(self, part: int, epoch: int) -> list[Part]:
        """The next rows of a part; none at its end."""
        with self._lock:
            running = self._epochs.get(epoch)
            if running is None:
                running = self._epochs[epoch] = _Epoch(self._begin(), self._parts, self._equal)
            found = running.next(part)
            if found is None:
                for number in [number for number, each in self._epochs.items() if each.is_over]:
                    if number < max(self._epochs):
                        del self._epochs[number]
                return []
            return [found]

    def _begin(self) -> Iterator[Part]:
        from runtime.data._plan.rules import optimize

        for ref, bundle in self._dataset._bundles(optimize(self._dataset._node), ahead=self._parts):
            if bundle.rows:
                yield ref, bundle.start, bundle.rows

    def stats(self) -> str:
        """See `Dataset.stats`."""
        return str(self._dataset.stats())

    def schema(self) -> Schema | None:
        """See `Dataset.schema`."""
        return self._dataset.schema()  # type: ignore[no-any-return]


class SplitIterator(DataIterator):
    """One part. It may travel to another process; each pass there is the next epoch of the part."""

    def __init__(
        self,
        server: Any,
        part: int,
        parts: int,
        is_equal: bool,
        context: DataContext,
        kept: type[PlanHolder],
    ) -> None:
        self._kept = kept
        self._server = server
        self._part = part
        self._parts = parts
        self._is_equal = is_equal
        self._context = context

    def __repr__(self) -> str:
        return f"DataIterator(part {self._part} of {self._parts})"

    def _blocks(
        self, ahead: int, cancellation: Cancellation | None = None, epoch: int | None = None, skip: int = 0
    ) -> Iterator[pa.Table]:
        import runtime

        if epoch is None:
            epoch = self._where().begin(None).epoch
        asked = self._ask(epoch, cancellation)
        while True:
            found = asked()
            if not found or (cancellation is not None and cancellation.is_set):
                return
            asked = self._ask(epoch, cancellation)
            ((ref, start, rows),) = found
            if skip >= rows:
                skip -= rows
                continue
            start, rows, skip = start + skip, rows - skip, 0
            table = runtime.get(ref)
            yield table if start == 0 and rows == table.num_rows else table.slice(start, rows)

    def _ask(self, epoch: int, cancellation: Cancellation | None) -> Callable[[], list[Part]]:
        """Asks for the next rows; what this returns waits for them."""
        import runtime

        ref = self._server.next.remote(self._part, epoch)
        if cancellation is None:
            return lambda: runtime.get(ref)
        future: Future[list[Part]] = ref.future()
        cancellation.on_set(future.cancel)
        return future.result

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not self._is_equal:
            raise ValueError(
                "Only parts of streaming_split(equal=True) can be resumed: otherwise blocks go to whoever asks first."
            )
        super().load_state_dict(state)

    def world_size(self) -> int:
        """How many parts there are."""
        return self._parts

    def materialize(self) -> Any:
        import runtime

        blocks = [GivenBlock(runtime.put(table), table.num_rows, table.nbytes) for table in self._blocks(1)]
        return self._kept(Given(tuple(blocks)), self._context)

    def schema(self) -> Schema | None:
        import runtime

        return runtime.get(self._server.schema.remote())  # type: ignore[no-any-return]

    def stats(self) -> str:
        import runtime

        return str(runtime.get(self._server.stats.remote()))

    def get_context(self) -> DataContext:
        return self._context


def iterators(dataset: Any, parts: int, equal: bool) -> list[DataIterator]:
    """An iterator for each part; the actor ends with the last of them."""
    import runtime

    server = runtime.remote(num_cpus=0, max_concurrency=parts + 2)(SplitServer).remote(dataset, parts, equal)
    return [
        SplitIterator(server, part, parts, equal, dataset._context, dataset._kept) for part in range(parts)
    ]
