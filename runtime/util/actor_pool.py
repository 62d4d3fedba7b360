"""Distributes work over a set of actors, one item per actor at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from runtime import api, exceptions

Submit = Callable[[Any, Any], Any]


class ActorPool:
    """Passes each submitted value to an idle actor; values wait in the pool while no actor is idle.

    Args:
        actors: handles of the actors.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self._idle_actors = list(actors)
        self._running: dict[Any, tuple[int, Any]] = {}  # what a call returned -> its number, its actor
        self._by_number: dict[int, Any] = {}
        self._next_number = 0
        self._next_to_return = 0
        self._pending_submits: list[tuple[Submit, Any]] = []

    def map(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Submits all values now; returns their results in order.

        Args:
            fn: called with an actor and a value; returns what the actor's method returned (`actor.f.remote(value)`).
            values: arguments of the calls.
        """
        self._submit_all(fn, values)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next()

        return results()

    def map_unordered(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Like `map`, with the results in the order of completion."""
        self._submit_all(fn, values)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next_unordered()

        return results()

    def _submit_all(self, fn: Submit, values: Iterable[Any]) -> None:
        while self._running:  # results of earlier submissions belong to nobody now
            _, (number, actor) = self._running.popitem()
            del self._by_number[number]
            self._free(actor)
        self._next_to_return = self._next_number
        for value in values:
            self.submit(fn, value)

    def submit(self, fn: Submit, value: Any) -> None:
        """Calls `fn(actor, value)` with an idle actor, as soon as there is one."""
        if not self._idle_actors:
            self._pending_submits.append((fn, value))
            return
        actor = self._idle_actors.pop()
        returned = fn(actor, value)
        key = tuple(returned) if isinstance(returned, list) else returned
        self._running[key] = (self._next_number, actor)
        self._by_number[self._next_number] = returned
        self._next_number += 1

    def has_next(self) -> bool:
        """Whether results are outstanding."""
        return bool(self._running)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in the order of submission.

        Args:
            timeout: seconds to wait; None: no limit.
            ignore_if_timedout: after a timeout, discard this result and treat its actor as idle.

        Raises:
            StopIteration: no result is left.
            TimeoutError: it was not ready in time.
            ValueError: `get_next_unordered` was called before.
        """
        if not self.has_next():
            raise StopIteration("No more results to get")
        if self._next_to_return >= self._next_number:
            raise ValueError("It is not allowed to call get_next() after get_next_unordered().")
        returned = self._by_number[self._next_to_return]
        late = False
        if timeout is not None:
            waitable = returned[0] if isinstance(returned, list) else returned
            late = not api.wait([waitable], timeout=timeout)[0]
            if late and not ignore_if_timedout:
                raise TimeoutError(_LATE)
        key = tuple(returned) if isinstance(returned, list) else returned
        _, actor = self._running.pop(key)
        del self._by_number[self._next_to_return]
        self._next_to_return += 1
        return self._result(returned, actor, late)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The first result to be ready. See `get_next`.

        Raises:
            StopIteration: no result is left.
            TimeoutError: none was ready in time.
        """
        if not self.has_next():
            raise StopIteration("No more results to get")
        first_of = {key[0] if isinstance(key, tuple) else key: key for key in self._running}
        ready = api.wait(list(first_of), num_returns=1, timeout=timeout)[0]
        if not ready and not ignore_if_timedout:
            raise TimeoutError(_LATE)
        key = first_of[ready[0]] if ready else next(iter(self._running))
        number, actor = self._running.pop(key)
        del self._by_number[number]
        self._next_to_return = max(self._next_to_return, number + 1)
        return self._result(list(key) if isinstance(key, tuple) else key, actor, late=not ready)

    def _result(self, returned: Any, actor: Any, late: bool) -> Any:
        if late:
            self._free(actor)
            raise TimeoutError(f"{_LATE}. The task {returned} is ignored.")
        alive = True
        try:
            return api.get(returned)
        except exceptions.ActorDiedError:
            alive = False
            raise
        finally:
            if alive:
                self._free(actor)
            else:
                self._submit_waiting()

    def _free(self, actor: Any) -> None:
        self._idle_actors.append(actor)
        self._submit_waiting()

    def _submit_waiting(self) -> None:
        if self._pending_submits and self._idle_actors:
            self.submit(*self._pending_submits.pop(0))

    def has_free(self) -> bool:
        """Whether an actor is idle and no value waits for one."""
        return bool(self._idle_actors) and not self._pending_submits

    def pop_idle(self) -> Any | None:
        """Removes an idle actor from the pool and returns it; None if all are busy."""
        return self._idle_actors.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor, which takes the next waiting value.

        Raises:
            ValueError: the actor is already in the pool.
        """
        busy = [one for _, one in self._running.values()]
        if actor in self._idle_actors or actor in busy:
            raise ValueError("Actor already belongs to current ActorPool")
        self._free(actor)


_LATE = "Timed out waiting for result"
