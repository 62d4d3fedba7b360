"""Handles: calls of a deployment from Python code, in any process of the cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import warnings
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

import runtime
from runtime.exceptions import RaySystemError
from runtime.object_ref import ObjectRef
from runtime.serve._caller.caller import here
from runtime.serve._caller.exchange import Answer, Exchange, State
from runtime.serve._caller.queue import Queue
from runtime.serve._caller.reply import Reply, Stream
from runtime.serve._core.published import Targets
from runtime.serve._event_loops import running_loop
from runtime.serve._request_id import new_request_id
from runtime.serve._wire import values
from runtime.serve._wire.messages import ACKNOWLEDGE_BYTES, Call, End, Failure, Item, Meta, Result
from runtime.serve.context import DeploymentID, current_request
from runtime.serve.exceptions import DeploymentUnavailableError, RayServeException, RequestCancelledError

__all__ = [
    "DeploymentBroadcastResponse",
    "DeploymentHandle",
    "DeploymentResponse",
    "DeploymentResponseGenerator",
]

T = TypeVar("T")
R = TypeVar("R")
_UNSET: Any = msgspec.UNSET
_SERIALIZATIONS = ("cloudpickle", "pickle", "msgpack", "orjson")


class _Options(msgspec.Struct, frozen=True):
    """What `DeploymentHandle.options` sets."""

    method_name: str = "__call__"
    multiplexed_model_id: str = ""
    session_id: str = ""
    stream: bool = False


class DeploymentHandle(Generic[T]):
    """Calls a deployment: `handle.remote(...)`, `handle.method.remote(...)`. It pickles to its names and options, so
    tasks, actors and other deployments can get it as an argument.
    """

    def __init__(
        self, deployment_name: str, app_name: str = "default", handle_options: _Options | None = None
    ) -> None:
        self._deployment_id = DeploymentID(deployment_name, app_name)
        self._options = handle_options or _Options()
        self._queue: Queue | None = None

    @property
    def deployment_name(self) -> str:
        """The deployment that it calls."""
        return self._deployment_id.name

    @property
    def app_name(self) -> str:
        """The application of the deployment."""
        return self._deployment_id.app_name

    @property
    def deployment_id(self) -> DeploymentID:
        """Both names."""
        return self._deployment_id

    @property
    def is_initialized(self) -> bool:
        """Whether this process follows the deployment's replicas already."""
        return self._queue is not None

    def running_replicas_populated(self) -> bool:
        """Whether this process knows a replica of the deployment."""
        targets = self._own_queue().targets
        return targets is not None and bool(targets.replicas)

    def options(
        self,
        *,
        method_name: str = _UNSET,
        multiplexed_model_id: str = _UNSET,
        session_id: str = _UNSET,
        stream: bool = _UNSET,
        _prefer_local_routing: bool = _UNSET,
        _by_reference: bool = _UNSET,
        request_serialization: str = _UNSET,
        response_serialization: str = _UNSET,
    ) -> DeploymentHandle[T]:
        """A copy of the handle with other options.

        Args:
            method_name: the method to call.
            multiplexed_model_id: the model that the request is for.
            session_id: requests with the same one belong together, for routers that care.
            stream: the method yields: `remote` returns a `DeploymentResponseGenerator`.
            request_serialization, response_serialization: checked, and of no effect: values travel as cloudpickle.

        Raises:
            ValueError: no such serialization.
            TypeError: an option has a wrong type.
        """
        for chosen in (request_serialization, response_serialization):
            if chosen is not _UNSET and chosen not in _SERIALIZATIONS:
                raise ValueError(f"A serialization is one of {', '.join(_SERIALIZATIONS)}, not {chosen!r}.")
        if _prefer_local_routing is not _UNSET:
            warnings.warn(
                "Replicas on the same node come first anyway: leave `_prefer_local_routing` out.",
                stacklevel=2,
            )
        given = {
            "method_name": method_name,
            "multiplexed_model_id": multiplexed_model_id,
            "session_id": session_id,
            "stream": stream,
        }
        changes = {name: value for name, value in given.items() if value is not _UNSET}
        for name, value in changes.items():  # a replica closes a connection with messages that it cannot read
            if not isinstance(value, bool if name == "stream" else str):
                wanted = "True or False" if name == "stream" else "a string"
                raise TypeError(f"The option {name} of a handle must be {wanted}, not {value!r}.")
        handle: DeploymentHandle[T] = DeploymentHandle(
            self.deployment_name, self.app_name, msgspec.structs.replace(self._options, **changes)
        )
        handle._queue = self._queue
        return handle

    def __getattr__(self, name: str) -> DeploymentHandle[T]:
        if name.startswith("__"):  # of protocols, such as pickle's; a deployment's own goes by options()
            raise AttributeError(f"A DeploymentHandle has no attribute {name!r}.")
        handle = self.options(method_name=name)
        self.__dict__[name] = handle  # the next access finds it without this method
        return handle

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the deployment. Does not wait.

        Args:
            *args, **kwargs: anything that can be pickled. For a `DeploymentResponse` or an `ObjectRef` among them (not
                inside others) the deployment gets its value.

        Returns:
            A `DeploymentResponse`, or with the option `stream` a `DeploymentResponseGenerator`. Errors come with it.

        Raises:
            TypeError: an argument cannot be pickled.
        """
        if self._options.stream:
            return DeploymentResponseGenerator(self, args, kwargs)
        return DeploymentResponse(self, args, kwargs)

    def broadcast(self, method_name: str, *args: Any, **kwargs: Any) -> DeploymentBroadcastResponse:
        """Calls a method on every replica that runs now. On each it waits for a slot, as other calls do."""
        handle = self.options(method_name=method_name, stream=False)
        return DeploymentBroadcastResponse(handle, args, kwargs)

    def choose_replica(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Not supported: raises."""
        raise NotImplementedError(
            "choose_replica() and dispatch() are not supported. Write a RequestRouter (see serve.request_router) to "
            "choose replicas, or pass session_id or multiplexed_model_id to options()."
        )

    dispatch = choose_replica

    def shutdown(self) -> None:
        """Does nothing: the connections belong to the process, and end with it."""

    async def shutdown_async(self) -> None:
        """Likewise."""

    def _init(self, **_options: Any) -> None:
        self._own_queue()

    def _own_queue(self) -> Queue:
        queue = self._queue
        if queue is None or queue.is_dropped or queue.caller.is_closed:
            queue = self._queue = here().queue(self.app_name, self.deployment_name)
        return queue

    def _meta(self) -> Meta:
        request, options = current_request(), self._options
        return Meta(
            request.request_id or new_request_id(),
            request.app_name or self.app_name,
            request.route,
            options.multiplexed_model_id,
            0.0,
            request.trace,
            options.session_id,
        )

    def __repr__(self) -> str:
        return f"DeploymentHandle(deployment='{self.deployment_name}')"

    def __reduce__(self) -> tuple[Any, ...]:
        return DeploymentHandle, (self.deployment_name, self.app_name, self._options)


class _Response(Generic[R]):
    """A call that was made.

    Args:
        answers: takes the answer.
        replica: the only one for the call; "" for any.
    """

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answers: Reply | Stream,
        stream: bool,
        replica: str = "",
    ) -> None:
        self._answers = answers
        self._sink = answers.settle if isinstance(answers, Reply) else answers.add
        self._cancelled = False
        self._exchange: Exchange | None = None
        self._allowed = frozenset((replica,)) if replica else None
        self._queue = queue = handle._own_queue()
        self._meta = handle._meta()
        self._deadline = current_request()._deadline
        self._method = handle._options.method_name
        self._stream = stream
        if any(isinstance(arg, _Response) for arg in args) or (
            kwargs and any(isinstance(arg, _Response) for arg in kwargs.values())
        ):
            _on_loop(queue, self._send_when_ready(args, kwargs))
            return
        self._submit(args, kwargs, values.dump_arguments(args, kwargs))

    @property
    def request_id(self) -> str:
        """As in logs."""
        return self._meta.request_id

    def cancel(self) -> None:
        """Cancels the call, if it has not ended: a request that waits is not sent; the code of one that runs is
        cancelled. Whoever reads the answer gets a `RequestCancelledError`."""
        if self._cancelled:
            return
        self._cancelled = True
        loop = self._queue.loop
        if running_loop() is loop:
            self._cancel_now()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel_now)

    def cancelled(self) -> bool:
        """Whether `cancel` was called. The call may have ended before."""
        return self._cancelled

    async def _value(self) -> Any:
        """What another call gets in place of this response."""
        raise NotImplementedError

    def _cancel_now(self) -> None:
        if self._exchange is not None:
            self._exchange.cancel()
        else:
            self._sink(asyncio.CancelledError())

    async def _send_when_ready(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Waits for the responses among the arguments, then sends the call. On the caller's loop."""
        try:
            names = list(kwargs)
            arrived = await _arrived([*args, *kwargs.values()])
            args, kwargs = tuple(arrived[: len(args)]), dict(zip(names, arrived[len(args) :], strict=True))
            dumped = values.dump_arguments(args, kwargs)
        except Exception as error:
            self._sink(error)
            return
        except asyncio.CancelledError:  # the process leaves the cluster
            self._sink(
                RaySystemError(f"The process has left the cluster before request {self.request_id} was sent.")
            )
            raise
        if not self._cancelled:
            self._submit(args, kwargs, dumped)

    def _submit(self, args: tuple[Any, ...], kwargs: dict[str, Any], dumped: values.Dumped) -> None:
        call = Call(0, self._method, self._meta, dumped.body, self._stream)
        self._exchange = exchange = Exchange(self._queue, call, self._sink, (args, kwargs), self._allowed)
        exchange.kept, exchange.deadline = dumped.kept, self._deadline
        self._queue.submit(exchange)

    def _raise(self, outcome: Answer | BaseException) -> NoReturn:
        if isinstance(outcome, Failure):
            if outcome.kind == "cancelled":
                raise RequestCancelledError(self.request_id)
            raise values.load_failure(outcome.body)
        if isinstance(outcome, asyncio.CancelledError):
            raise RequestCancelledError(self.request_id)
        if isinstance(outcome, BaseException):
            raise outcome
        raise RayServeException(
            f"Method {self._method!r} of {self._queue.deployment_id} answers "
            + (
                "with a stream: call it with handle.options(stream=True)."
                if isinstance(outcome, Item | End)
                else f"with {type(outcome).__name__}, which a handle cannot take."
            )
        )

    def __reduce__(self) -> NoReturn:
        raise RayServeException(
            f"A {type(self).__name__} cannot be pickled. Pass it as an argument itself, not inside a list or another "
            "value, or await it and pass the value."
        )


async def _arrived(arguments: list[Any]) -> list[Any]:
    """The arguments, with values in place of responses."""
    return [await arg._value() if isinstance(arg, _Response) else arg for arg in arguments]


def _on_loop(queue: Queue, work: Coroutine[Any, Any, None]) -> None:
    if running_loop() is queue.loop:
        queue.spawn(work)
    else:
        queue.loop.call_soon_threadsafe(queue.spawn, work)


def refuse_on_loop(instead: str) -> None:
    """Raises a RuntimeError if an event loop runs in the calling thread, which is about to block.

    Args:
        instead: what async code should use.
    """
    if running_loop() is not None:
        raise RuntimeError(f"This would block the running event loop: use {instead} instead.")


class DeploymentResponse(_Response[R]):
    """The result of a call, some day. `await` it in async code, `result()` it elsewhere, or pass it to another call."""

    _answers: Reply

    def __init__(
        self, handle: DeploymentHandle[Any], args: tuple[Any, ...], kwargs: dict[str, Any], replica: str = ""
    ) -> None:
        self._value_loaded: Any = _UNSET
        super().__init__(handle, args, kwargs, Reply(), False, replica)

    def result(self, *, timeout_s: float | None = None, _skip_asyncio_check: bool = False) -> R:
        """Waits for the result.

        Args:
            timeout_s: how long; None: without a limit. The call goes on after a timeout, and may be waited for again.

        Raises:
            TimeoutError: there is no result in time.
            RequestCancelledError: the call was cancelled.
            RuntimeError: an event loop runs in this thread.
            Exception: what the deployment raised: an instance of its class and of `RayTaskError`; what `Queue.begin`
                raises.
        """
        if not _skip_asyncio_check:
            refuse_on_loop("`await response`")
        try:
            outcome = self._answers.wait(timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"Request {self.request_id} to {self._queue.deployment_id} has no result after {timeout_s} s. "
                + self._where()
            ) from None
        if self._value_loaded is not _UNSET:
            return self._value_loaded  # type: ignore[no-any-return]
        if not isinstance(outcome, Result):
            self._raise(outcome)
        assert self._exchange is not None
        value = self._value_loaded = self._exchange.load(outcome.body)
        return value  # type: ignore[no-any-return]

    def _where(self) -> str:
        """What the call waits for."""
        if self._exchange is None:
            return "It waits for the responses among its arguments."
        if self._exchange.state is State.WAITING:
            return self._queue.why_waiting()
        return f"It runs in {self._exchange.replica}."

    def __await__(self) -> Generator[Any, None, R]:
        """The result. If the awaiting task is cancelled, so is the call."""
        return self._value().__await__()

    async def _value(self) -> R:
        try:
            outcome = await self._answers.arrival()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._value_loaded is _UNSET:
            if not isinstance(outcome, Result):
                self._raise(outcome)
            assert self._exchange is not None
            loaded = await self._exchange.load_async(outcome.body)
            if self._value_loaded is _UNSET:
                self._value_loaded = loaded
        return self._value_loaded  # type: ignore[no-any-return]

    async def _to_object_ref(self) -> ObjectRef:
        """A reference to the result, for tasks and actors. Waits for the result, and raises what it raises."""
        return runtime.put(await self._value())

    def _to_object_ref_sync(
        self, _timeout_s: float | None = None, _allow_running_in_asyncio_loop: bool = False
    ) -> ObjectRef:
        """The same from a thread."""
        return runtime.put(
            self.result(timeout_s=_timeout_s, _skip_asyncio_check=_allow_running_in_asyncio_loop)
        )


class DeploymentResponseGenerator(_Response[R]):
    """The values that a call yields: iterate with `async for` in async code, with `for` elsewhere. When nobody has the
    generator any more, the call is cancelled."""

    _answers: Stream

    def __init__(self, handle: DeploymentHandle[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._is_over = False
        self._consumed = 0  # bytes that the exchange does not know of
        super().__init__(handle, args, kwargs, Stream(), True)

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        refuse_on_loop("`async for`")
        if self._is_over:
            raise StopIteration
        message = self._answers.take()
        if not isinstance(message, Item):
            self._ended(message)
            raise StopIteration
        assert self._exchange is not None
        value = self._exchange.load(message.body)
        self._used(message)
        return value  # type: ignore[no-any-return]

    def __aiter__(self) -> AsyncIterator[R]:
        return self

    async def __anext__(self) -> R:
        if self._is_over:
            raise StopAsyncIteration
        try:
            message = await self._answers.arrival()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if not isinstance(message, Item):
            self._ended(message)
            raise StopAsyncIteration
        assert self._exchange is not None
        value = await self._exchange.load_async(message.body)
        self._used(message)
        return value  # type: ignore[no-any-return]

    def __await__(self) -> NoReturn:
        raise TypeError("A DeploymentResponseGenerator cannot be awaited: use `async for`.")

    def result(self, *, timeout_s: float | None = None, _skip_asyncio_check: bool = False) -> NoReturn:
        """Raises a TypeError: a stream has no single result."""
        raise TypeError(
            "A DeploymentResponseGenerator has no result(): use `for`, or `async for` in async code."
        )

    def _ended(self, message: Answer | BaseException) -> None:
        self._is_over = True
        if isinstance(message, Result):
            raise RayServeException(
                f"Method {self._method!r} of {self._queue.deployment_id} returns one value: call it without "
                "stream=True."
            )
        if not isinstance(message, End):
            self._raise(message)

    def _used(self, message: Item) -> None:
        """Counts what was consumed. Only the loop may tell the exchange, so other threads collect some first."""
        exchange, loop = self._exchange, self._queue.loop
        assert exchange is not None
        self._consumed += len(message.body)
        if running_loop() is loop:
            exchange.used(self._consumed)
        elif self._consumed >= ACKNOWLEDGE_BYTES:
            loop.call_soon_threadsafe(exchange.used, self._consumed)
        else:
            return
        self._consumed = 0

    async def _value(self) -> NoReturn:
        raise RayServeException(
            "A DeploymentResponseGenerator cannot be an argument of a call: collect its values and pass them."
        )

    def __del__(self) -> None:
        if not self.__dict__.get("_is_over", True) and not self._queue.loop.is_closed():
            self.cancel()


class DeploymentBroadcastResponse:
    """The results of a method on all replicas."""

    def __init__(self, handle: DeploymentHandle[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._handle = handle
        self._arguments = args, kwargs
        self._responses: concurrent.futures.Future[list[DeploymentResponse[Any]]] = (
            concurrent.futures.Future()
        )
        self._queue = queue = handle._own_queue()
        if queue.targets is not None:
            self._send(queue.targets)
        else:  # the first call of this process
            _on_loop(queue, self._send_when_known())

    def _send(self, targets: Targets) -> None:
        args, kwargs = self._arguments
        responses: list[DeploymentResponse[Any]] = [
            DeploymentResponse(self._handle, args, kwargs, target.replica) for target in targets.replicas
        ]
        if responses:
            self._responses.set_result(responses)
        else:
            reason = targets.message or "it has no replica that serves"
            self._responses.set_exception(DeploymentUnavailableError(self._queue.deployment_id, reason))

    async def _send_when_known(self) -> None:
        try:
            self._send(await self._queue.first_targets())
        except asyncio.CancelledError:
            self._responses.set_exception(
                RaySystemError("The process has left the cluster before the broadcast.")
            )
            raise
        except Exception as error:
            self._responses.set_exception(error)

    def results(self, *, timeout_s: float | None = None, return_exceptions: bool = False) -> list[Any]:
        """One result per replica, in no particular order.

        Args:
            timeout_s: for all together.
            return_exceptions: put errors into the list instead of raising the first one.

        Raises:
            DeploymentUnavailableError: the deployment has no replica.
            TimeoutError: one is missing in time.
            ValueError: `timeout_s` is negative.
        """
        refuse_on_loop("`await response.results_async()`")
        deadline_s = _deadline(timeout_s)
        try:
            responses = self._responses.result(timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"The broadcast was not sent within {timeout_s} s. {self._queue.why_waiting()}"
            ) from None
        collected: list[Any] = []
        for response in responses:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            try:
                collected.append(response.result(timeout_s=left_s))
            except TimeoutError:
                raise
            except Exception as error:
                if not return_exceptions:
                    raise
                collected.append(error)
        return collected

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """`results` for async code."""
        _deadline(timeout_s)
        async with asyncio.timeout(timeout_s):
            responses = await asyncio.shield(asyncio.wrap_future(self._responses))
            return await asyncio.gather(
                *(response._value() for response in responses), return_exceptions=return_exceptions
            )


def _deadline(timeout_s: float | None) -> float | None:
    if timeout_s is not None and timeout_s < 0:
        raise ValueError(f"timeout_s is None or at least 0, not {timeout_s}.")
    return None if timeout_s is None else time.monotonic() + timeout_s
