"""What a task does: it reads or slices its input, runs the steps of its stage, and yields blocks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runtime._extension.streams import Described

from . import heap
from .bundles import Order
from .steps import Attempt, Ready, Step, UdfStep

if TYPE_CHECKING:
    import pyarrow as pa

Finish = Callable[["pa.Table", Order], Iterator[Ready]]
"""Makes what leaves the task of a block, e.g. orders it by partition. The second argument is the block's own place: of
its task, and its number in it."""
KEPT = 32
"""Programs that a process remembers."""
_programs: dict[str, Program] = {}


class Program:
    """The code of a stage. Processes unpickle it once.

    Args:
        steps: in order. With a read task as the only argument of its work, it reads that first.
        target_bytes: how large blocks should be.
        finish: see `Finish`.
        heap_bytes: see `DataContext.kept_heap_bytes`.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        target_bytes: int,
        finish: Finish | None = None,
        heap_bytes: int = 0,
    ) -> None:
        self.name = name
        self._steps = tuple(steps)
        self._target_bytes = target_bytes
        self._finish = finish
        self._heap_bytes = heap_bytes
        self._id = uuid.uuid4().hex
        self._packed: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is None:
            from runtime import cloudpickle

            content = (self.name, self._steps, self._target_bytes, self._finish, self._heap_bytes)
            self._packed = cloudpickle.dumps(content)
        return _unpickled, (self._id, self._packed)

    def prepare(self) -> None:
        """Constructs the user's classes."""
        with exit_is_error(self.name):
            for step in self._steps:
                if isinstance(step, UdfStep):
                    step.prepare()

    def run(
        self,
        layout: Sequence[tuple[int, int]],
        args: tuple[Any, ...],
        skip: int,
        order: tuple[int, ...],
        blocks: Sequence[Any],
    ) -> Iterator[Described]:
        """The blocks of a task. See `bundles.Work`; `layout` has the first row and the number of rows of each input."""
        begun, cpu, paused = time.perf_counter(), time.process_time(), 0.0
        with exit_is_error(self.name):
            for number, ready in enumerate(self._named(self._outputs(layout, args, order, blocks))):
                if number < skip:
                    continue
                table, now = ready.table, time.perf_counter()
                times = {"task_s": now - begun, "cpu_s": time.process_time() - cpu, "paused_s": paused}
                yield Described(
                    table, {"rows": table.num_rows, "bytes": table.nbytes, **times, **ready.metadata}
                )
                begun, cpu = time.perf_counter(), time.process_time()
                paused = begun - now

    def _named(self, outputs: Iterator[Ready]) -> Iterator[Ready]:
        """The same; errors say where they happened."""
        try:
            yield from outputs
        except Exception as error:
            error.add_note(f"In the operator {self.name}.")
            raise

    def _outputs(
        self,
        layout: Sequence[tuple[int, int]],
        args: tuple[Any, ...],
        order: tuple[int, ...],
        blocks: Sequence[Any],
    ) -> Iterator[Ready]:
        tables: Iterator[Any] = _sliced(layout, blocks) if layout else iter(args[0]())
        attempt = Attempt(order, args)
        for step in self._steps:
            tables = step(tables, attempt)
        for number, each in enumerate(shaped(tables, self._target_bytes)):
            if self._finish is not None and not each.metadata:
                yield from self._finish(each.table, (*order, number))
            else:
                yield each


@contextmanager
def exit_is_error(name: str) -> Iterator[None]:
    """A function that calls `sys.exit` has failed: otherwise its worker would end, and the task would run again."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"{name}: the function has called sys.exit({error.code!r}).") from error


def _sliced(layout: Sequence[tuple[int, int]], blocks: Sequence[Any]) -> Iterator[pa.Table]:
    for (start, rows), table in zip(layout, blocks, strict=True):
        yield table if start == 0 and rows == table.num_rows else table.slice(start, rows)


def shaped(tables: Iterator[Any], target_bytes: int) -> Iterator[Ready]:
    """Blocks of about the target size: small tables are put together, large ones are cut. An empty one only if there
    is no other."""
    from runtime.data._block.schema_diff import concat

    parts: list[pa.Table] = []
    size_bytes = 0
    last: pa.Table | None = None
    gave = False
    for each in tables:
        if isinstance(each, Ready):
            gave = True
            yield each
            continue
        if not each.num_rows:
            last = each
            continue
        parts.append(each)
        size_bytes += each.nbytes
        if size_bytes >= target_bytes:
            for table in _cut(concat(parts), size_bytes, target_bytes):
                yield Ready(table)
            parts, size_bytes, gave = [], 0, True
    if parts:
        yield Ready(concat(parts))
    elif last is not None and not gave:
        yield Ready(last)


def _cut(table: pa.Table, size_bytes: int, target_bytes: int) -> Iterator[pa.Table]:
    """A table in parts of at most one and a half times the target, as far as rows allow."""
    if 2 * size_bytes <= 3 * target_bytes:
        yield table
        return
    parts = min(table.num_rows, max(1, round(size_bytes / target_bytes)))
    for part in range(parts):
        start, end = table.num_rows * part // parts, table.num_rows * (part + 1) // parts
        yield table.slice(start, end - start)


def _unpickled(program_id: str, packed: bytes) -> Program:
    known = _programs.get(program_id)
    if known is None:
        from runtime import cloudpickle

        known = Program(*cloudpickle.loads(packed))
        known._id, known._packed = program_id, packed
        if known._heap_bytes:
            heap.keep(known._heap_bytes)
        while len(_programs) >= KEPT:
            del _programs[next(iter(_programs))]
        _programs[program_id] = known
    return known


def run(
    program: Program,
    layout: Sequence[tuple[int, int]],
    args: tuple[Any, ...],
    skip: int,
    order: tuple[int, ...],
    *blocks: Any,
) -> Iterator[Described]:
    """A task of a stage."""
    yield from program.run(layout, args, skip, order, blocks)


class Host:
    """An actor that runs the tasks of a stage, with the user's classes constructed once. If that fails, its tasks raise
    the error, so that the user gets it as it is."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._error: Exception | None = None
        try:
            program.prepare()
        except Exception as error:
            error.add_note(f"In the operator {program.name}.")
            self._error = error

    def __repr__(self) -> str:
        return self._program.name

    def run(
        self,
        layout: Sequence[tuple[int, int]],
        args: tuple[Any, ...],
        skip: int,
        order: tuple[int, ...],
        *blocks: Any,
    ) -> Iterator[Described]:
        if self._error is not None:
            raise self._error
        yield from self._program.run(layout, args, skip, order, blocks)
