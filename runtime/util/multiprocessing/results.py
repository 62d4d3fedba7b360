"""Results of a pool's calls: single results, lists and iterators."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from typing import Any, Protocol

from runtime import api, exceptions
from runtime._owner.waiting import split
from runtime._process.core_worker import Core, current


class Raised:
    """Stands for the result of a call that raised."""

    def __init__(self, error: Exception, traceback_text: str) -> None:
        self._error = error
        self._traceback_text = traceback_text

    def error(self) -> Exception:
        """The exception, with the remote traceback as its cause."""
        self._error.__cause__ = RemoteTraceback(self._traceback_text)
        return self._error


def batch_of(core: Core, ref: Any) -> list[Any]:
    """The results of one batch; an exception in place of each call that raised, or one for a batch that was lost."""
    try:
        batch: list[Any] = core.reader.get((ref,), None)[0]
    except exceptions.RayError as error:
        return [error]
    return [one.error() if isinstance(one, Raised) else one for one in batch]


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class AsyncResult:
    """The result of `apply_async`, `map_async` or `starmap_async`."""

    def __init__(
        self,
        refs: list[Any],
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
        single_result: bool = False,
    ) -> None:
        self._refs = refs
        self._core = current()  # when the program has left the cluster, nobody may join another one for these
        self._single_result = single_result
        self._batches: list[list[Any]] | None = None
        self._caller: threading.Thread | None = None
        if callback is not None or error_callback is not None:
            self._caller = threading.Thread(
                target=self._call_back, args=(callback, error_callback), name="pool callback", daemon=True
            )
            self._caller.start()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the result is ready and callbacks have returned, or `timeout` seconds have passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._refs:
            self._core.waiter.wait(self._refs, len(self._refs), _left(deadline), True)
        if self._caller is not None:
            self._caller.join(_left(deadline))

    def ready(self) -> bool:
        """Whether the result is ready."""
        if self._caller is not None and self._caller.is_alive():
            return False
        count = len(self._refs)
        return not count or len(self._core.waiter.wait(self._refs, count, 0, True)) == count

    def successful(self) -> bool:
        """Whether no call raised.

        Raises:
            ValueError: the result is not ready.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return not any(isinstance(result, Exception) for result in self._results())

    def get(self, timeout: float | None = None) -> Any:
        """The result.

        Raises:
            multiprocessing.TimeoutError: it was not ready in time.
            Exception: a call raised it; if several did, the first in the order of the arguments.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        results = self._results()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results[0] if self._single_result else results

    def _results(self) -> list[Any]:
        if self._batches is None:
            self._batches = [batch_of(self._core, ref) for ref in self._refs]
        return list(itertools.chain.from_iterable(self._batches))

    def _call_back(
        self,
        callback: Callable[[Any], object] | None,
        error_callback: Callable[[Exception], object] | None,
    ) -> None:
        error = self._first_error()
        if error is not None:
            if error_callback is not None:
                error_callback(error)
        elif callback is not None:
            results = self._results()
            callback(results[0] if self._single_result else results)

    def _first_error(self) -> Exception | None:
        """Waits for the first call that raised, or for all."""
        core, waiting = self._core, self._refs
        while waiting:
            try:
                core.waiter.wait(waiting, 1, None, True)
                ready, waiting = split(waiting, core.waiter.wait(waiting, len(waiting), 0, True))
            except exceptions.RayError as error:  # the program has left the cluster
                return error
            for ref in ready:
                for result in batch_of(core, ref):
                    if isinstance(result, Exception):
                        return result
        return None


class Batches(Protocol):
    """The interface of `Pool` that an iterator needs."""

    @property
    def process_count(self) -> int:
        """How many processes run batches."""

    def run_batch(self, process: int, func: Callable[..., Any], batch: list[Any]) -> Any:
        """Sends calls to one process; returns a reference to their results."""

    def iterator_ended(self) -> None:
        """An iterator has sent its last batch."""


class IMapIterator:
    """The results of `imap` or `imap_unordered`. As in Ray, the exception of a call that raised is its result.

    One batch per process is in progress; when one is done, the next is read from the iterable and sent.
    """

    def __init__(
        self, pool: Batches, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int, ordered: bool
    ) -> None:
        self._pool = pool
        self._func = func
        self._iterator: Iterator[Any] | None = iter(iterable)
        self._chunksize = chunksize
        self._ordered = ordered
        self._lock = threading.Lock()
        self._running: dict[Any, tuple[int, int]] = {}  # reference -> number of the batch, process
        self._done: dict[int, list[Any]] = {}  # of batches that are not given out yet
        self._sent = 0
        self._given = 0
        self._results: deque[Any] = deque()
        self._error: BaseException | None = None  # what the iterable raised
        for process in range(pool.process_count):
            self._send(process)

    @property
    def exhausted(self) -> bool:
        """Whether all batches have been sent."""
        return self._iterator is None

    def send_rest(self) -> None:
        """Sends all remaining batches without waiting."""
        with self._lock:
            for process in itertools.cycle(range(self._pool.process_count)):
                if self._iterator is None:
                    return
                self._send(process)

    def _send(self, process: int) -> None:
        if self._iterator is None:
            return
        chunk: list[Any] = []
        try:
            for item in itertools.islice(self._iterator, self._chunksize):
                chunk.append(((item,), {}))
        except Exception as error:  # `next` raises it in place of the batch
            self._error = error
            chunk.clear()
        if len(chunk) < self._chunksize:
            self._iterator = None
        if chunk:
            ref = self._pool.run_batch(process, self._func, chunk)
            self._running[ref] = (self._sent, process)
            self._sent += 1
        if self._iterator is None:
            self._pool.iterator_ended()

    def next(self, timeout: float | None = None) -> Any:
        """The next result.

        Args:
            timeout: seconds to wait; None: no limit.

        Raises:
            StopIteration: no result is left.
            multiprocessing.TimeoutError: it was not ready in time.
        """
        with self._lock:
            if not self._results:
                self._collect(timeout)
            return self._results.popleft()

    def _collect(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            number = self._given if self._ordered else next(iter(self._done), -1)
            if number in self._done:
                self._results.extend(self._done.pop(number))
                self._given += 1
                return
            if not self._running:
                error, self._error = self._error, None
                raise error if error is not None else StopIteration
            ready = api.wait(list(self._running), num_returns=1, timeout=_left(deadline))[0]
            if not ready:
                raise TimeoutError
            number, process = self._running.pop(ready[0])
            self._done[number] = batch_of(current(), ready[0])
            self._send(process)

    def __iter__(self) -> IMapIterator:
        return self

    def __next__(self) -> Any:
        return self.next()
