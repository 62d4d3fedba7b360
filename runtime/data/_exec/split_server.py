"""`streaming_split`: an actor runs the plan once for each epoch, and gives its blocks to whoever asks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from runtime.data._iteration.prefetch import Cancellation
from runtime.data._plan.nodes import Given, GivenBlock
from runtime.data.context import DataContext
from runtime.data.iterator import DataIterator

from . import waiting
from .epoch import Block, Epoch, Held, Part

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.data._api.plan_holder import PlanHolder
    from runtime.data._api.schema import Schema

log = logging.getLogger(__name__)
SLOW_S = 10.0
"""After readers have waited so long for others, that is logged; then after twice as long, and so on."""
LOCATED_S = 1.0
"""A block whose owner does not say in time where it lies goes to whoever asks."""


class SplitServer:
    """An actor that runs a data set for several readers. Threads call it side by side.

    Args:
        homes: the ids of the nodes of readers, as far as known; see `Epoch`.
    """

    def __init__(self, dataset: Any, parts: int, equal: bool, homes: Sequence[str | None] = ()) -> None:
        self._homes = homes
        self._dataset = dataset
        self._parts = parts
        self._equal = equal
        self._lock = threading.Lock()
        self._taken = threading.Condition(self._lock)
        self._epochs: dict[int, Epoch] = {}
        self._epoch_of = [0] * parts
        self._taken_s = 0.0
        self._report_after_s = SLOW_S

    def next(self, part: int, epoch: int) -> list[Part]:
        """The next rows of a part; none at its end.

        Raises:
            ValueError: the part has begun a later epoch.
        """
        with self._lock:
            if epoch < self._epoch_of[part]:
                raise ValueError(
                    f"Part {part} of a streaming_split has begun epoch {self._epoch_of[part]}, and cannot be read in "
                    f"epoch {epoch} any more: a pass ends the one before it."
                )
            running = self._epochs.get(epoch)
            if running is None:
                running = self._epochs[epoch] = Epoch(
                    self._begin(), self._parts, self._equal, self._most_bytes(), self._homes
                )
            if epoch > self._epoch_of[part]:
                self._epoch_of[part] = epoch
                for number, earlier in self._epochs.items():
                    if number < epoch:
                        earlier.leave(part)
                self._note_taken()
            while (found := running.next(part)) is Held.BY_OTHERS:
                self._wait(running, part)
            if found is None:
                for number in [number for number, each in self._epochs.items() if each.is_over]:
                    if number < max(self._epochs):
                        del self._epochs[number]
                return []
            self._note_taken()
            return [found]

    def _note_taken(self) -> None:
        self._taken_s = time.monotonic()
        self._report_after_s = SLOW_S
        self._taken.notify_all()

    def _wait(self, running: Epoch, part: int) -> None:
        """Waits until a reader has taken something."""
        self._taken.wait(self._report_after_s)
        waited_s = time.monotonic() - self._taken_s
        if waited_s < self._report_after_s:
            return
        self._report_after_s *= 2
        log.warning(
            "streaming_split: for %.0f s nothing was read of part %s, for which %d MiB wait. Part %d waits for that: "
            "all parts must be read at the same time.",
            waited_s,
            ", ".join(map(str, running.slow)),
            running.waiting_bytes >> 20,
            part,
        )

    def _most_bytes(self) -> int:
        """What may wait for readers: as much as the execution may hold."""
        from . import sizing
        from .driver import facts

        limit = self._dataset._context.execution_options.resource_limits.object_store_memory
        return sizing.budget(facts(), limit)

    def _begin(self) -> Iterator[Block]:
        from runtime.data._plan.rules import optimize

        for ref, bundle in self._dataset._bundles(optimize(self._dataset._node), ahead=self._parts):
            if bundle.rows:
                nodes = _nodes_of(ref) if self._homes else ()
                yield Block(
                    ref, bundle.rows, bundle.start, 0 if bundle.is_given else bundle.size_bytes, nodes
                )

    def stats(self) -> str:
        """See `Dataset.stats`."""
        return str(self._dataset.stats())

    def schema(self) -> Schema | None:
        """See `Dataset.schema`."""
        return self._dataset.schema()  # type: ignore[no-any-return]


def _used(homes: Sequence[str | None], equal: bool, context: DataContext) -> Sequence[str | None]:
    """The homes of readers that blocks are dealt by: none if all are one, or if parts have the same rows in each run,
    so that they can be resumed."""
    is_fixed = equal and context.execution_options.preserve_order
    return () if is_fixed or len(set(homes)) < 2 else homes


def _nodes_of(ref: Any) -> tuple[str, ...]:
    from runtime._extension.store import locations
    from runtime.exceptions import GetTimeoutError

    try:
        found = locations([ref], LOCATED_S).get(ref)
    except GetTimeoutError:
        return ()
    return found.node_ids if found is not None else ()


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
        ref = self._server.next.remote(self._part, epoch)
        if cancellation is None:
            return partial(waiting.result, ref.future())
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


def iterators(dataset: Any, parts: int, equal: bool, homes: Sequence[str | None] = ()) -> list[DataIterator]:
    """An iterator for each part; the actor ends with the last of them. `homes`: see `SplitServer`."""
    import runtime

    homes = _used(homes, equal, dataset._context)
    actor = runtime.remote(num_cpus=0, max_concurrency=parts + 2)(SplitServer)
    server = actor.remote(dataset, parts, equal, homes)
    return [
        SplitIterator(server, part, parts, equal, dataset._context, dataset._kept) for part in range(parts)
    ]
