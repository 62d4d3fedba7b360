"""`@serve.batch`: calls one by one become calls of a function that takes many at once."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from runtime.serve import context, metrics

logger = logging.getLogger("ray.serve")

TURNS = 3
"""Turns of the event loop between the end of a batch and the begin of the next. A batch may have blocked the loop: the
calls that came meanwhile are first read from their sockets, so that they are in the next batch, too."""
_ENDS = (StopIteration, StopAsyncIteration)
"""A streaming function yields one of these for a call whose stream is over."""
_MILLISECONDS = [1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10_000, 60_000, 120_000]
_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
_PERCENT = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100]


class _Call:
    """One call that waits, or is part of a batch. `stream` takes what the function yields for it, of a generator."""

    __slots__ = ("args", "came", "future", "kwargs", "request", "stream")

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        future: asyncio.Future[Any],
        stream: asyncio.Queue[Any] | None,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.future = future
        self.stream = stream
        self.request = context.current_request()
        self.came = time.perf_counter()


class _Options:
    """Of one decorated function; changed at run time by its setters."""

    def __init__(
        self, most: int, wait_s: float, concurrent: int, size: Callable[[list[Any]], int] | None
    ) -> None:
        self.most = most
        self.wait_s = wait_s
        self.concurrent = concurrent
        self.size = size

    def check_room(self) -> None:
        """Warns of a replica that never has enough requests for a full batch."""
        replica = context.current_replica()
        if replica is None or self.size is not None:
            return
        if replica.max_ongoing_requests < self.most * self.concurrent:
            logger.warning(
                "max_batch_size (%d) * max_concurrent_batches (%d) exceeds max_ongoing_requests (%d), so batches are "
                "never full. Raise max_ongoing_requests of the deployment.",
                self.most,
                self.concurrent,
                replica.max_ongoing_requests,
            )


class _Metrics:
    """What is recorded of the batches of one function."""

    def __init__(self, function: str) -> None:
        self._tags = {"function_name": function}
        key = ("function_name",)
        self.wait_ms = metrics.Histogram(
            "serve_batch_wait_time_ms", "How long the first call of a batch waited.", _MILLISECONDS, key
        )
        self.execution_ms = metrics.Histogram(
            "serve_batch_execution_time_ms", "How long a batch ran.", _MILLISECONDS, key
        )
        self.queued = metrics.Gauge("serve_batch_queue_length", "Calls that wait for a batch.", key)
        self.utilization = metrics.Histogram(
            "serve_batch_utilization_percent", "Size of a batch in percent of max_batch_size.", _PERCENT, key
        )
        self.size = metrics.Histogram("serve_actual_batch_size", "Size of a batch.", _SIZES, key)
        self.processed = metrics.Counter("serve_batches_processed", "Batches that ran.", key)

    def begin(self, size: int, most: int, wait_s: float, queued: int) -> None:
        """A batch begins."""
        self.wait_ms.observe(wait_s * 1000, self._tags)
        self.queued.set(queued, self._tags)
        self.utilization.observe(100 * size / most, self._tags)
        self.size.observe(size, self._tags)
        self.processed.inc(1, self._tags)

    def end(self, execution_s: float) -> None:
        """A batch has ended."""
        self.execution_ms.observe(execution_s * 1000, self._tags)


class _Queue:
    """The calls of one function for one instance. It belongs to the event loop of its first call.

    A batch begins when it is full or its first call has waited long enough, and fewer than `concurrent` batches run.
    """

    def __init__(self, function: Callable[..., Any], options: _Options) -> None:
        self._function = function
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._calls: deque[_Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = 0
        self._metrics = _Metrics(function.__name__)
        self._streams = inspect.isasyncgenfunction(function)
        self._context = contextvars.copy_context()
        # A batch belongs to no single request.
        self._context.run(context._serve_request_context.set, context.RequestContext())
        options.check_room()

    def put(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        """Adds a call."""
        call = _Call(args, kwargs, self._loop.create_future(), asyncio.Queue() if self._streams else None)
        if self._options.size is not None and self._size([call]) > self._options.most:
            call.future.set_exception(
                RuntimeError(
                    "Size of item is greater than max_batch_size. Increase max_batch_size, or check what batch_size_fn "
                    "returns."
                )
            )
            return call
        self._calls.append(call)
        self._begin()
        return call

    def _size(self, calls: Sequence[_Call]) -> int:
        size = self._options.size
        return len(calls) if size is None else size([call.args[0] for call in calls])

    def _begin(self) -> None:
        """Begins what can begin now, and sets the timer for what cannot."""
        while self._calls and self._batches < self._options.concurrent:
            size = len(self._calls) if self._options.size is None else self._size(self._calls)
            left_s = self._calls[0].came + self._options.wait_s - time.perf_counter()
            if size < self._options.most and left_s > 0:
                if self._timer is None:
                    self._timer = self._loop.call_later(left_s, self._waited)
                return
            self._start(self._take())
        self._stop_timer()  # the end of a batch comes here again

    def _waited(self) -> None:
        self._timer = None
        self._begin()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self) -> list[_Call]:
        self._stop_timer()
        most = self._options.most
        batch: list[_Call] = []
        while self._calls:
            if self._options.size is None:
                if len(batch) >= most:
                    break
            elif batch and self._size([*batch, self._calls[0]]) > most:
                break
            call = self._calls.popleft()
            if not call.future.done():  # cancelled otherwise
                batch.append(call)
        return batch

    def _start(self, batch: list[_Call]) -> None:
        if not batch:
            return
        by_model: dict[str, list[_Call]] = {}
        for call in batch:
            by_model.setdefault(call.request.multiplexed_model_id, []).append(call)
        self._batches += 1
        left = [len(by_model)]
        for calls in by_model.values():
            frame = self._context.copy()
            frame.run(context._serve_batch_request_context.set, [call.request for call in calls])
            task = self._loop.create_task(self._run(calls), context=frame)
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._ended, left))

    def _ended(self, left: list[int], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        left[0] -= 1
        if not left[0]:
            self._has_room_after(TURNS)

    def _has_room_after(self, turns: int) -> None:
        """One batch less runs, after so many turns of the event loop."""
        if turns:
            self._loop.call_soon(self._has_room_after, turns - 1)
        else:
            self._batches -= 1
            self._begin()

    async def _run(self, batch: list[_Call]) -> None:
        begin = time.perf_counter()
        try:
            size = self._size(batch)
            self._metrics.begin(size, self._options.most, begin - batch[0].came, len(self._calls))
            args, kwargs = _columns(batch)
            if self._streams:
                await self._stream(self._function(*args, **kwargs), batch)
            else:
                results = await self._function(*args, **kwargs)
                _check_length(results, batch)
                for call, result in zip(batch, results, strict=True):
                    if not call.future.done():
                        call.future.set_result(result)
        except asyncio.CancelledError:
            for call in batch:
                if call.future.cancel() and call.stream is not None:
                    call.stream.put_nowait(call)
            raise
        except Exception as error:
            for call in batch:
                _fail(call, error)
        finally:
            self._metrics.end(time.perf_counter() - begin)

    async def _stream(self, generator: AsyncGenerator[Any, None], batch: list[_Call]) -> None:
        async for results in generator:
            _check_length(results, batch)
            for call, result in zip(batch, results, strict=True):
                assert call.stream is not None
                if any(result is end for end in _ENDS):
                    if not call.future.done():
                        call.future.set_result(None)
                        call.stream.put_nowait(call)
                elif not call.future.done():
                    call.stream.put_nowait((result,))
        for call in batch:
            assert call.stream is not None
            if not call.future.done():
                call.future.set_result(None)
                call.stream.put_nowait(call)


def _fail(call: _Call, error: Exception) -> None:
    if call.future.done():
        return
    call.future.set_exception(error)
    if call.stream is not None:
        call.stream.put_nowait(call)


def _columns(batch: list[_Call]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of all calls, each as a list."""
    first = batch[0]
    if any(len(call.args) != len(first.args) or call.kwargs.keys() != first.kwargs.keys() for call in batch):
        raise ValueError("All calls of one batch must pass the same parameters.")
    args = [[call.args[index] for call in batch] for index in range(len(first.args))]
    return args, {name: [call.kwargs[name] for call in batch] for name in first.kwargs}


def _check_length(results: Any, batch: list[_Call]) -> None:
    if not hasattr(results, "__len__") or len(results) != len(batch):
        returned = f"a list of length {len(results)}" if hasattr(results, "__len__") else f"{type(results)}"
        raise context.serve_error(
            f"Batched function doesn't preserve batch size. The input list has length {len(batch)} but the function "
            f"returned {returned}."
        )


class _Function:
    """A decorated function: its options, and its queue for each instance."""

    def __init__(self, function: Callable[..., Any], options: _Options) -> None:
        self.function = function
        self.options = options
        self._signature = inspect.signature(function)
        self._methods: dict[type, bool] = {}
        self._queues: dict[int, _Queue] = {}  # by the id of the instance, which need not be hashable
        self._queue: _Queue | None = None  # of a plain function

    def __reduce__(self) -> tuple[Any, ...]:
        return _Function, (self.function, self.options)

    def put(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        """Adds a call to the queue of its instance."""
        if not args or not self._is_method(type(args[0])):
            if self._queue is None:
                self._queue = _Queue(self.function, self.options)
            queue = self._queue
            args, kwargs = self._bound(args, kwargs)
        else:
            instance = args[0]
            found = self._queues.get(id(instance))
            if found is None:
                # The queue must not keep the instance, whose end is its own.
                method = _weak_method(self.function, instance)
                found = self._queues[id(instance)] = _Queue(method, self.options)
                weakref.finalize(instance, self._queues.__delitem__, id(instance)).atexit = False
            queue = found
            args, kwargs = self._bound(args, kwargs)
            args = args[1:]
        return queue.put(args, kwargs)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not kwargs:
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def _is_method(self, cls: type) -> bool:
        known = self._methods.get(cls)
        if known is None:
            name = self.function.__name__
            known = self._methods[cls] = any(
                name in vars(base) and _unwraps_to(vars(base)[name], self.function) for base in cls.__mro__
            )
        return known


def _unwraps_to(outer: Any, function: Callable[..., Any]) -> bool:
    while outer is not None and outer is not function:
        outer = getattr(outer, "__wrapped__", None)
    return outer is function


def _weak_method(function: Callable[..., Any], instance: Any) -> Callable[..., Any]:
    ref = weakref.ref(instance)
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            async for item in function(ref(), *args, **kwargs):
                yield item

        return stream

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(ref(), *args, **kwargs)

    return call


def batch(
    _func: Callable[..., Any] | None = None,
    /,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], int] | None = None,
) -> Any:
    """Decorates an `async def` function or method that takes a list of items and returns a list of the same length.

    It is called with one item. Calls are gathered into a batch, until there are enough or the first one has waited long
    enough; each gets its own result. An async generator yields such lists, and each call is a stream of its own; for a
    stream that is over it yields `StopIteration`. In a batch all requests are for the same multiplexed model.

    The function has setters, `set_max_batch_size` and `set_batch_wait_timeout_s`.

    Args:
        max_batch_size: items in a batch.
        batch_wait_timeout_s: how long the first item of a batch waits for others, in seconds.
        max_concurrent_batches: batches that run at the same time.
        batch_size_fn: the size of a list of items, if it is not their number: tokens, nodes of graphs.

    Raises:
        TypeError: the function is not `async def`, or an option has the wrong type.
        ValueError: an option is out of range.
    """
    if _func is not None:
        _check_function(_func)
    _check_size(max_batch_size)
    _check_wait(batch_wait_timeout_s)
    if not isinstance(max_concurrent_batches, int) or max_concurrent_batches < 1:
        raise TypeError(f"max_concurrent_batches must be an integer >= 1, got {max_concurrent_batches}")
    if batch_size_fn is not None and not callable(batch_size_fn):
        raise TypeError(f"batch_size_fn must be a callable or None, got {type(batch_size_fn)}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check_function(function)
        options = _Options(int(max_batch_size), batch_wait_timeout_s, max_concurrent_batches, batch_size_fn)
        return _wrap(_Function(function, options))

    return decorate(_func) if _func is not None else decorate


def _wrap(batched: _Function) -> Callable[..., Any]:
    options = batched.options
    if inspect.isasyncgenfunction(batched.function):

        @functools.wraps(batched.function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            call = batched.put(args, kwargs)
            if call.stream is None or (call.future.done() and call.stream.empty()):
                await call.future
                return
            try:
                while (item := await call.stream.get()) is not call:
                    yield item[0]
                await call.future
            finally:
                call.future.cancel()  # of a stream that is not read to its end

        wrapper: Any = stream
    else:

        @functools.wraps(batched.function)
        async def one(*args: Any, **kwargs: Any) -> Any:
            return await batched.put(args, kwargs).future

        wrapper = one

    def set_max_batch_size(new_max_batch_size: int) -> None:
        """Changes the size of the batches that begin from now on."""
        _check_size(new_max_batch_size)
        options.most = int(new_max_batch_size)
        options.check_room()

    def set_batch_wait_timeout_s(new_batch_wait_timeout_s: float) -> None:
        """Changes how long the first item of a batch waits, in seconds."""
        _check_wait(new_batch_wait_timeout_s)
        options.wait_s = new_batch_wait_timeout_s

    wrapper.set_max_batch_size = set_max_batch_size
    wrapper.set_batch_wait_timeout_s = set_batch_wait_timeout_s
    wrapper._get_max_batch_size = lambda: options.most
    wrapper._get_batch_wait_timeout_s = lambda: options.wait_s
    return wrapper  # type: ignore[no-any-return]


def _check_function(function: Any) -> None:
    if not callable(function):
        raise TypeError("@serve.batch can only be used to decorate functions or methods.")
    if not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        raise TypeError("Functions decorated with @serve.batch must be 'async def'")


def _check_size(size: Any) -> None:
    if not isinstance(size, int) and not (isinstance(size, float) and size.is_integer()):
        raise TypeError(f"max_batch_size must be integer >= 1, got {size}")
    if size < 1:
        raise ValueError(f"max_batch_size must be an integer >= 1, got {size}")


def _check_wait(wait_s: Any) -> None:
    if not isinstance(wait_s, float | int):
        raise TypeError(f"batch_wait_timeout_s must be a float >= 0, got {wait_s}")
    if wait_s < 0:
        raise ValueError(f"batch_wait_timeout_s must be a float >= 0, got {wait_s}")
