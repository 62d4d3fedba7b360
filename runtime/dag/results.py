"""What `CompiledDAG.execute` and `execute_async` return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any, NoReturn, Protocol


class Execution:
    """One execution and its results. Guarded by its graph's lock.

    Args:
        index: how many executions were before it.
        outputs: how many results it has.

    Attributes:
        values: the results, once they have come; None in place of those that were fetched or dropped.
        unfetched: how many results may still be asked for.
        dropped: the positions that nobody will ask for, if they had not come by then.
    """

    __slots__ = ("dropped", "index", "unfetched", "values")

    def __init__(self, index: int, outputs: int) -> None:
        self.index = index
        self.values: list[Any] | None = None
        self.unfetched = outputs
        self.dropped: tuple[int, ...] = ()


class Executions(Protocol):
    """The executions of a compiled graph."""

    def get_id(self) -> str:
        """Its id."""

    def result(self, execution: Execution, position: int, timeout: float | None) -> Any:
        """Waits for a result."""

    async def result_async(self, execution: Execution, position: int) -> Any:
        """The same for an event loop."""

    def dropped(self, execution: Execution, position: int) -> None:
        """Nobody will ask for the result."""


class _Result:
    """One result of one execution. It can be fetched once, and cannot be copied, pickled or passed on."""

    __slots__ = ("_dag", "_execution", "_is_only", "_position", "_was_fetched")

    def __init__(self, dag: Executions, execution: Execution, position: int, is_only: bool) -> None:
        self._dag = dag
        self._execution = execution
        self._position = position
        self._is_only = is_only
        self._was_fetched = False

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if (
            not self._was_fetched and not is_ending()
        ):  # then a thread that Python has stopped may hold the lock
            self._dag.dropped(self._execution, self._position)

    def __copy__(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be copied.")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be pickled.")

    def __str__(self) -> str:
        channel = None if self._is_only else self._position
        index = self._execution.index
        return (
            f"{type(self).__name__}({self._dag.get_id()}, execution_index={index}, channel_index={channel})"
        )


class CompiledDAGRef(_Result):
    """One result of `CompiledDAG.execute`: `get` it, once."""

    __slots__ = ()

    def get(self, timeout: float | None = None) -> Any:
        """The value.

        Args:
            timeout: seconds to wait; None: `DAGContext.get_timeout`; -1: no limit.

        Raises:
            ValueError: it was fetched before.
            RayChannelTimeoutError: it was not ready in time; ask again later.
            RayTaskError: a call raised; an instance of the class of that exception as well.
            ActorDiedError: an actor of the graph died.
            RayChannelError: the graph was torn down.
        """
        if self._was_fetched:
            raise ValueError(
                "ray.get() can only be called once on a CompiledDAGRef, and it was already called."
            )
        value = self._dag.result(self._execution, self._position, timeout)
        self._was_fetched = True
        return value

    _compiled_result = get  # what `runtime.get` calls


class CompiledDAGFuture(_Result):
    """One result of `CompiledDAG.execute_async`: `await` it, once."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Any]:
        if self._was_fetched:
            raise ValueError(
                "CompiledDAGFuture can only be awaited upon once: its value was already returned."
            )
        value = yield from self._dag.result_async(self._execution, self._position).__await__()
        self._was_fetched = True
        return value
