"""Runs an execution in a thread of this process, and gives its blocks to the consumer."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from runtime._controllers.cluster import ClusterEngine
from runtime._controllers.controller import Effect, Store
from runtime._controllers.loop import Ended, Loop
from runtime.data._plan.nodes import Node
from runtime.data._plan.rules import fused
from runtime.data.context import DataContext
from runtime.exceptions import ObjectReconstructionFailedError

from . import sizing, waiting
from .bundles import Bundle, Order
from .compiling import Compiler
from .operators import Sink
from .requests import Close, Delivered, Next, Resize
from .sizing import Facts
from .state import MOST_RUNS, Execution, Limits

log = logging.getLogger(__name__)
_executions: list[Running] = []
"""Those of this process, which share the budget."""
_lock = threading.Lock()


def facts() -> Facts:
    """What there is in the cluster; connects to one if this process has none."""
    import runtime
    from runtime._extension.store import stores

    if not runtime.is_initialized():
        runtime.init()
    cpus_of = {each["NodeID"]: each["Resources"].get("CPU", 0.0) for each in runtime.nodes() if each["Alive"]}
    return Facts(sum(cpus_of.values()) or 1.0, sum(store.capacity_bytes for store in stores()), cpus_of)


class _Compiled(Execution):
    """Makes its operators with a compiler, and stores the programs of their stages first."""

    def __init__(
        self, compiler: Callable[[], Compiler], sink: Callable[[Compiler], Sink], limits: Limits
    ) -> None:
        self._programs: dict[Any, Any] = {}

        def make() -> Sink:
            made = compiler()
            operators = sink(made)
            self._programs = made.programs
            return operators

        super().__init__(make, limits)

    def step(self, event: Any, now: float) -> list[Effect]:
        effects = super().step(event, now)
        stored: list[Effect] = [Store(key, program) for key, program in self._programs.items()]
        self._programs = {}
        return [*stored, *effects]


class Running:
    """One execution.

    Args:
        node: its plan, after the logical rules.
        is_ordered: whether bundles come in the order of the result; by default as the options say.
    """

    def __init__(self, node: Node, context: DataContext, is_ordered: bool | None = None) -> None:
        options = context.execution_options
        excluded = options.exclude_resources
        cluster = facts()
        self._facts = sizing.without(cluster, excluded.cpu, excluded.object_store_memory)
        self._limit = options.resource_limits.object_store_memory
        with _lock:
            budget_bytes = self._budget(len(_executions) + 1)
        stages = fused(node)
        cpus = sizing.task_slots(cluster, self._facts, options.resource_limits.cpu)
        self.execution = _Compiled(
            lambda: Compiler(context, self._facts, budget_bytes),
            lambda compiler: compiler.sink(stages, is_ordered),
            Limits(budget_bytes, cpus, context.max_errored_blocks),
        )
        self._begin()

    def _begin(self) -> None:
        engine = ClusterEngine()
        self.now = engine.now
        self._loop = Loop(self.execution, engine, "data set")
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="data set", daemon=True)
        with _lock:
            _executions.append(self)
        self._thread.start()
        for other in self._others():
            other.resize()

    def _budget(self, executions: int) -> int:
        return sizing.budget(self._facts, self._limit, executions)

    def _others(self) -> list[Running]:
        with _lock:
            return [each for each in _executions if each is not self]

    def resize(self) -> None:
        """There are more or fewer executions than before."""
        self._loop.request(Resize(self._budget(max(1, len(_executions)))))

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:
            self._error = error
        finally:
            self._leave()
            for other in self._others():
                other.resize()

    def _leave(self) -> None:
        with _lock:
            if self in _executions:
                _executions.remove(self)

    def bundles(
        self, ahead: int = 2, holds: bool = True, fetch: Callable[[Any, Bundle], Any] | None = None
    ) -> Iterator[tuple[Any, Bundle]]:
        """Each bundle with the reference to its block.

        Args:
            ahead: how many are asked for before they are needed.
            holds: whether a bundle counts against the budget until the next but `ahead` is asked for.
            fetch: what stands in the place of the reference. What it could not get, as the block is gone for good, is
                made again.

        Raises:
            BaseException: that of the execution, or of `fetch`.
        """
        asked: deque[Future[Any]] = deque()
        done: list[int] = []
        try:
            while True:
                while len(asked) <= ahead:
                    asked.append(self._loop.request(Next(tuple(done))))
                    done.clear()
                answer = self._answer(asked.popleft())
                if answer is None:
                    return
                delivered, value = answer
                if fetch is not None:
                    try:
                        value = fetch(value, delivered.bundle)
                    except ObjectReconstructionFailedError as error:
                        self._begin_again(delivered.bundle.order, asked, error)
                        asked.clear()
                        done.clear()
                        continue
                if not holds:
                    done.append(delivered.number)
                yield value, delivered.bundle
                if holds:
                    done.append(delivered.number)
        finally:
            self.close()

    def _begin_again(self, lost: Order, asked: Iterable[Future[Any]], error: BaseException) -> None:
        """The consumer cannot read a bundle. What it has `asked` for since then counts as lost as well."""
        self.close()
        if self.execution.runs >= MOST_RUNS:
            raise error
        log.warning("Blocks were lost and cannot be rebuilt: the data set runs again. %s", error)
        answers = [each.result() for each in asked if each.exception() is None]
        self.execution.reopen([lost, *(answer[0].bundle.order for answer in answers if answer is not None)])
        self._begin()

    def _answer(self, future: Future[Any]) -> tuple[Delivered, Any] | None:
        try:
            return waiting.result(future)  # type: ignore[no-any-return]
        except Ended:
            self._thread.join()
            if self._error is not None:
                raise self._error.with_traceback(None) from None  # its frames are the engine's
            return None

    def close(self) -> None:
        """Ends the execution, if it has not ended, and waits for that."""
        if self._thread.is_alive():
            self._loop.request(Close())
        self._thread.join()
