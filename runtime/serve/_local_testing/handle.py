"""Handles and responses of local testing mode."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, ClassVar, NoReturn, Protocol

from runtime.serve import context
from runtime.serve.exceptions import RequestCancelledError
from runtime.serve.handle import (
    DeploymentHandle,
    DeploymentResponse,
    DeploymentResponseGenerator,
    refuse_on_loop,
)

_NO_REFERENCES = "Converting DeploymentResponses to ObjectRefs is not supported in local testing mode."


class Callee(Protocol):
    """The replica of a deployment in this process."""

    def call(
        self, method: str, args: Any, kwargs: Any, request: context.RequestContext
    ) -> concurrent.futures.Future[Any]:
        """Begins a call."""

    def stream(
        self, method: str, args: Any, kwargs: Any, request: context.RequestContext, put: Callable[[Any], None]
    ) -> concurrent.futures.Future[Any]:
        """Begins a call whose items go to `put`."""


class LocalHandle(DeploymentHandle[Any]):
    """Calls a deployment in this process. It pickles within the process.

    Args:
        run: which call of `run_locally` it belongs to.
    """

    replicas: ClassVar[dict[tuple[int, str, str], Callee]] = {}

    def __init__(self, deployment_name: str, app_name: str, run: int, handle_options: Any = None) -> None:
        super().__init__(deployment_name, app_name, handle_options)
        self._run = run

    @property
    def is_initialized(self) -> bool:
        """True."""
        return True

    def running_replicas_populated(self) -> bool:
        """True."""
        return True

    def options(self, **options: Any) -> LocalHandle:
        """See `DeploymentHandle.options`."""
        other = super().options(**options)
        return LocalHandle(self.deployment_name, self.app_name, self._run, other._options)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """See `DeploymentHandle.remote`."""
        meta = self._meta()
        request = context.RequestContext(
            meta.route,
            meta.request_id,
            meta.request_id,
            meta.app,
            meta.model_id,
            meta.session_id,
            trace=meta.trace,
        )
        replica = self.replicas[self._run, self.app_name, self.deployment_name]
        kind = LocalResponseGenerator if self._options.stream else LocalResponse
        return kind(replica, self._options.method_name, args, kwargs, request)

    def broadcast(self, method_name: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises a RuntimeError: there is one replica."""
        raise RuntimeError(
            "handle.broadcast() is not supported in local testing mode: call the method itself."
        )

    def _init(self, **_options: Any) -> None:
        pass

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalHandle, (self.deployment_name, self.app_name, self._run, self._options)


class LocalResponse(DeploymentResponse[Any]):
    """The result of a call in this process. Errors are those of the code itself."""

    def __init__(
        self, replica: Callee, method: str, args: Any, kwargs: Any, request: context.RequestContext
    ) -> None:
        self._request = request
        self._future = replica.call(method, args, kwargs, request)

    @property
    def request_id(self) -> str:
        """As in logs."""
        return self._request.request_id or str(uuid.UUID(int=0))

    def cancel(self) -> None:
        """See `DeploymentResponse.cancel`."""
        self._future.cancel()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._future.cancelled()

    def result(self, *, timeout_s: float | None = None, _skip_asyncio_check: bool = False) -> Any:
        """See `DeploymentResponse.result`."""
        if not _skip_asyncio_check:
            refuse_on_loop("`await response`")
        try:
            return self._future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise RequestCancelledError(self.request_id) from None
        except TimeoutError:
            if self._future.done():
                raise
            raise TimeoutError(f"Request {self.request_id} has no result after {timeout_s} s.") from None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._value().__await__()

    async def _value(self) -> Any:
        try:
            return await asyncio.wrap_future(self._future)
        except asyncio.CancelledError:
            if not self._future.cancelled():
                self._future.cancel()
                raise
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RequestCancelledError(self.request_id) from None

    async def _to_object_ref(self) -> NoReturn:
        raise RuntimeError(_NO_REFERENCES)

    def _to_object_ref_sync(
        self, _timeout_s: float | None = None, _allow_running_in_asyncio_loop: bool = False
    ) -> NoReturn:
        raise RuntimeError(_NO_REFERENCES)


class LocalResponseGenerator(DeploymentResponseGenerator[Any]):
    """The items of a call in this process."""

    def __init__(
        self, replica: Callee, method: str, args: Any, kwargs: Any, request: context.RequestContext
    ) -> None:
        self._request = request
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_over = False
        self._future = replica.stream(method, args, kwargs, request, lambda item: self._items.put((item,)))
        self._future.add_done_callback(self._items.put)

    @property
    def request_id(self) -> str:
        """As in logs."""
        return self._request.request_id

    def cancel(self) -> None:
        """Ends the stream."""
        self._future.cancel()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._future.cancelled()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        refuse_on_loop("`async for`")
        if self._is_over:
            raise StopIteration
        item = self._items.get()
        if isinstance(item, tuple):
            return item[0]
        self._is_over = True
        self._check()
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._is_over:
            raise StopAsyncIteration
        try:
            item = await asyncio.get_running_loop().run_in_executor(None, self._items.get)
        except asyncio.CancelledError:
            self.cancel()  # its end also releases the thread
            raise
        if isinstance(item, tuple):
            return item[0]
        self._is_over = True
        self._check()
        raise StopAsyncIteration

    def _check(self) -> None:
        try:
            self._future.result()
        except concurrent.futures.CancelledError:
            raise RequestCancelledError(self.request_id) from None

    def __del__(self) -> None:
        self._future.cancel()
