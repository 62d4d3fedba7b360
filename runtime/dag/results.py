"""What `CompiledDAG.execute` and `execute_async` return."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from typing import Any, NoReturn, Protocol


class Executions(Protocol):
    """The executions of a compiled graph."""

    def get_id(self) -> str:
        """Its id."""

    def result(self, index: int, position: int, timeout: float | None) -> Any:
        """Waits for a result."""

    async def result_async(self, index: int, position: int) -> Any:
        """The same for an event loop."""

    def dropped(self, index: int, position: int) -> None:
        """Nobody will ask for the result."""


class _Result:
    """One result of one execution. It can be fetched once, and cannot be copied, pickled or passed on."""

    def __init__(self, dag: Executions, index: int, position: int, is_only: bool) -> None:
        self._dag = dag
        self._index = index
        self._position = position
        self._is_only = is_only
        self._was_fetched = False
        self._finalizer = weakref.finalize(self, dag.dropped, index, position)
        self._finalizer.atexit = False

    def _fetched(self) -> None:
        self._was_fetched = True
        self._finalizer.detach()

    def __copy__(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be copied.")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be pickled.")

    def __str__(self) -> str:
        channel = None if self._is_only else self._position
        return f"{type(self).__name__}({self._dag.get_id()}, execution_index={self._index}, channel_index={channel})"


class CompiledDAGRef(_Result):
    """One result of `CompiledDAG.execute`: `get` it, once."""

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
        value = self._dag.result(self._index, self._position, timeout)
        self._fetched()
        return value

    _compiled_result = get  # what `runtime.get` calls


class CompiledDAGFuture(_Result):
    """One result of `CompiledDAG.execute_async`: `await` it, once."""

    def __await__(self) -> Generator[Any, None, Any]:
        if self._was_fetched:
            raise ValueError(
                "CompiledDAGFuture can only be awaited upon once: its value was already returned."
            )
        value = yield from self._dag.result_async(self._index, self._position).__await__()
        self._fetched()
        return value
