"""A pool of actors with the interface of `multiprocessing.Pool`."""

from __future__ import annotations

import logging
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runtime import api
from runtime._api.cluster_view import cluster_resources
from runtime._system import settings
from runtime.util.debug import log_once

from .results import AsyncResult, IMapIterator, Raised

log = logging.getLogger("runtime")
Batch = list[tuple[Sequence[Any], Mapping[str, Any]]]
Calls = Iterable[tuple[Sequence[Any], Mapping[str, Any]]]


class _PoolProcess:
    """The actor that stands for one process of the pool."""

    def __init__(self, initializer: Callable[..., object] | None, initargs: Iterable[Any] | None) -> None:
        if initializer is not None:
            initializer(*(initargs or ()))

    def ping(self) -> None:
        """Returns once the initializer has run."""

    def run_batch(self, func: Callable[..., Any], batch: Batch) -> list[Any]:
        """The results of the calls, in order."""
        results: list[Any] = []
        for args, kwargs in batch:
            try:
                results.append(func(*args, **kwargs))
            except Exception as error:
                results.append(Raised(error, traceback.format_exc()))
        return results


class Pool:
    """Runs functions in actors of the cluster. Starts a local cluster if this program is not connected.

    Args:
        processes: how many actors; default: the CPUs of the cluster.
        initializer: runs in each actor when it starts, with `initargs`.
        initargs: see `initializer`.
        maxtasksperchild: batches after which an actor is replaced.
        context: without effect.
        ray_address: cluster to connect to; see `init`.
        ray_remote_args: options of the actors.

    Raises:
        ValueError: `processes` is below 1, or more than the cluster has CPUs.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._closed = True  # until everything is there
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if context is not None and log_once("pool context"):
            log.warning("The 'context' argument of Pool has no meaning here: actors run the calls.")
        self._connect(processes, ray_address)
        cpus = int(cluster_resources().get("CPU", 0))
        count = cpus if processes is None else processes
        if count <= 0:
            raise ValueError("Processes in the pool must be >0.")
        if cpus < count:
            raise ValueError(
                f"A pool with {count} processes wants a CPU for each, but there are only {cpus} CPUs in the cluster."
            )
        actor_class: Any = api.remote(num_cpus=0)(_PoolProcess)
        self._actor_class = actor_class.options(**ray_remote_args) if ray_remote_args else actor_class
        self._initializer = initializer
        self._initargs = tuple(initargs or ())
        self._max_batches = maxtasksperchild or -1
        self._next = 0
        self._iterators: weakref.WeakSet[IMapIterator] = weakref.WeakSet()
        self._stopping: list[Any] = []  # references of actors that end after their last batch
        self._stopped = False
        self._actor_pool: list[tuple[Any, int]] = [self._new_actor() for _ in range(count)]
        api.get([actor.ping.remote() for actor, _ in self._actor_pool])
        self._closed = False

    @staticmethod
    def _connect(processes: int | None, address: str | None) -> None:
        if api.is_initialized():
            return
        address = address or settings.RAY_ADDRESS.get() or None
        if address and address != "local":
            api.init(address=address)
        else:
            api.init(address=address, num_cpus=processes)

    # ------------------------------------------------------------ the actors

    @property
    def process_count(self) -> int:
        """How many actors there are."""
        return len(self._actor_pool)

    def _new_actor(self) -> tuple[Any, int]:
        return self._actor_class.remote(self._initializer, self._initargs), 0

    def run_batch(self, process: int, func: Callable[..., Any], batch: Batch) -> Any:
        """Sends calls to one actor; returns a reference to their results."""
        actor, count = self._actor_pool[process]
        ref = actor.run_batch.remote(func, batch)
        count += 1
        if count == self._max_batches:
            self._stop(actor)
            actor, count = self._new_actor()
        self._actor_pool[process] = (actor, count)
        return ref

    def _stop(self, actor: Any) -> None:
        if self._stopping:
            self._stopping = api.wait(self._stopping, num_returns=len(self._stopping), timeout=0)[1]
        self._stopping.append(actor.__ray_terminate__.remote())

    def iterator_ended(self) -> None:
        """Called when an iterator has sent its last batch; a closed pool may then end."""
        if self._closed and not self._stopped and all(one.exhausted for one in self._iterators):
            self._stopped = True
            for actor, _ in self._actor_pool:
                self._stop(actor)

    # ------------------------------------------------------------ calls

    def apply(
        self,
        func: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs one call and returns its result."""
        return self.apply_async(func, args, kwargs).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
    ) -> AsyncResult:
        """Starts one call.

        Args:
            func, args, kwargs: the call.
            callback: called with the result.
            error_callback: called with the exception, if the call raised.

        Raises:
            ValueError: the pool is closed.
        """
        self._check_running()
        self._next = (self._next + 1) % len(self._actor_pool)
        ref = self.run_batch(self._next, func, [(tuple(args or ()), dict(kwargs or {}))])
        return AsyncResult([ref], callback, error_callback, single_result=True)

    def map(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """Calls `func` for every item; returns the results in order."""
        results: list[Any] = self.map_async(func, iterable, chunksize).get()
        return results

    def map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[list[Any]], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
    ) -> AsyncResult:
        """Starts a call of `func` for every item.

        Args:
            func: a function of one argument.
            iterable: the items, all read now.
            chunksize: items per batch; default: four batches per process.
            callback: called with the list of results.
            error_callback: gets the first exception instead, if there is one.

        Raises:
            ValueError: the pool is closed.
        """
        calls: Calls = (((item,), {}) for item in iterable)
        return self._start(func, calls, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """Calls `func(*item)` for every item; returns the results in order."""
        results: list[Any] = self.starmap_async(func, iterable, chunksize=chunksize).get()
        return results

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        callback: Callable[[list[Any]], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
        chunksize: int | None = None,
    ) -> AsyncResult:
        """Starts a call `func(*item)` for every item; see `map_async`."""
        calls: Calls = ((tuple(item), {}) for item in iterable)
        return self._start(func, calls, chunksize, callback, error_callback)

    def imap(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """Calls `func` for every item; yields the results in order while it still reads items.

        Raises:
            ValueError: the pool is closed.
        """
        return self._iterate(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """Like `imap`, with the results in the order of completion."""
        return self._iterate(func, iterable, chunksize, ordered=False)

    def _start(
        self,
        func: Callable[..., Any],
        calls: Calls,
        chunksize: int | None,
        callback: Callable[[list[Any]], object] | None,
        error_callback: Callable[[Exception], object] | None,
    ) -> AsyncResult:
        self._check_running()
        batch = list(calls)
        size = self._chunksize(len(batch)) if chunksize is None else chunksize
        if size < 1:
            size = 1
        refs = [
            self.run_batch(number % len(self._actor_pool), func, batch[start : start + size])
            for number, start in enumerate(range(0, len(batch), size))
        ]
        return AsyncResult(refs, callback, error_callback)

    def _iterate(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None, ordered: bool
    ) -> IMapIterator:
        self._check_running()
        if chunksize is None:
            chunksize = self._chunksize(len(iterable)) if isinstance(iterable, Sequence) else 1
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize}")
        iterator = IMapIterator(self, func, iterable, chunksize, ordered)
        self._iterators.add(iterator)
        return iterator

    def _chunksize(self, count: int) -> int:
        return -(-count // (len(self._actor_pool) * 4)) or 1

    def _check_running(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Refuses further calls; the actors end after their present ones."""
        self._closed = True
        self.iterator_ended()

    def terminate(self) -> None:
        """Ends the actors at once; unfinished calls fail."""
        self._closed = True
        self._stopped = True
        for actor, _ in self._actor_pool:
            self._stop(actor)
            api.kill(actor)

    def join(self) -> None:
        """Waits until the actors of a closed pool have ended.

        Raises:
            ValueError: the pool is not closed.
        """
        if not self._closed:
            raise ValueError("Pool is still running")
        if not self._stopped:
            for iterator in list(self._iterators):
                iterator.send_rest()
            self.iterator_ended()
        if self._stopping:
            api.wait(self._stopping, num_returns=len(self._stopping))
            self._stopping = []

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_error: object) -> None:
        self.terminate()
