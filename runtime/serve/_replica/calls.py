"""Calls by a handle, or by the gRPC ingress."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from runtime.serve import context
from runtime.serve._replica import streams
from runtime.serve._replica.running import Peer, RequestHost, Running
from runtime.serve._replica.threads import Threads
from runtime.serve._replica.user_code import Method, UserCode
from runtime.serve._wire import values
from runtime.serve._wire.messages import Call, Chunk, End, Item, Result

if TYPE_CHECKING:
    from runtime.serve.grpc_util import RayServegRPCContext


class RunningCall(Running):
    """A call that is answered by a value, or by a stream of values."""

    __slots__ = ("_call", "_cancelled", "_inputs", "_users")

    method = "CALL"

    def __init__(self, service: RequestHost, peer: Peer, call: Call) -> None:
        super().__init__(service, peer, call.number, call.meta)
        self._call = call
        self._users: RayServegRPCContext | None = None  # of a gRPC request
        self._inputs: asyncio.Queue[Chunk] | None = None
        self._cancelled: asyncio.Event | None = None
        if call.inputs:
            self._inputs, self._cancelled = asyncio.Queue(), asyncio.Event()

    @property
    def target(self) -> str:
        """The method that was called."""
        return self._call.method

    async def _answer(self) -> None:
        call = self._call
        method = self.service.user.method(call.method)
        dump: Callable[[Any], values.Dumped] = values.dump
        if call.context:
            args, kwargs = self._grpc_arguments(method)
            dump = _dump_grpc
        elif values.is_address(call.body):
            args, kwargs = await self.service.loop.run_in_executor(None, values.load_arguments, call.body)
        else:
            args, kwargs = values.load_arguments(call.body)
        if call.stream:
            await self._stream(method, args, kwargs, dump)
            return
        if method.is_generator or method.is_async_generator:
            raise _returned_generator(method)
        result = await self.service.user.call(method, args, kwargs)
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise _returned_generator(method)
        dumped = dump(result)
        if dumped.kept is not None:
            self.peer.kept.sent(self.number, dumped)
            self.peer.kept.ended(self.number)
        users = self.dumped_context()
        self.send(Result(self.number, dumped.body, self.finish("OK"), users))

    async def _stream(
        self, method: Method, args: Any, kwargs: Any, dump: Callable[[Any], values.Dumped]
    ) -> None:
        items = await items_of(self.service.threads, self.service.user, method, args, kwargs, dump)
        if items is None:
            raise TypeError(
                f"Called method '{method.name}' with `handle.options(stream=True)` but it did not return a generator."
            )
        try:
            async for dumped in items:
                await self.send_counted(Item(self.number, dumped.body), len(dumped.body))
                self.peer.kept.sent(self.number, dumped)
        finally:
            await items.aclose()
        self.peer.kept.ended(self.number)
        users = self.dumped_context()
        self.send(End(self.number, self.finish("OK"), users))

    # ------------------------------------------------------------ gRPC

    def _grpc_arguments(self, method: Method) -> tuple[Any, dict[str, Any]]:
        from runtime.serve import grpc_util

        call = self._call
        self._users = users = grpc_util.load_context(call.context)
        request = msgspec.structs.replace(context.current_request(), grpc_context=users)
        context._serve_request_context.set(request)
        if self._cancelled is not None:
            args: Any = (grpc_util.input_stream(self._next_input, self._cancelled),)
        else:
            args = values.load_arguments(call.body)[0]
        return args, {grpc_util.CONTEXT_ARGUMENT: users} if grpc_util.takes_context(method.function) else {}

    async def _next_input(self) -> bytes:
        assert self._inputs is not None
        chunk = await self._inputs.get()
        self.consumed(len(chunk.body))
        return chunk.body

    def chunk(self, message: Chunk) -> None:
        """The next message of a client that streams."""
        if self._inputs is None:
            super().chunk(message)
        else:
            self._inputs.put_nowait(message)

    def cancel(self) -> None:
        """Its caller does not wait any more, or the replica stops."""
        if self._cancelled is not None:
            self._cancelled.set()
        super().cancel()

    def dumped_context(self) -> bytes:
        """What the method has set in the context of a gRPC request; b"" of other calls."""
        if self._users is None:
            return b""
        from runtime.serve import grpc_util

        return grpc_util.dump_context(self._users)


def _dump_grpc(message: Any) -> values.Dumped:
    from runtime.serve import grpc_util

    return values.Dumped(grpc_util.dump_response(message), None)


async def items_of(
    threads: Threads, user: UserCode, method: Method, args: Any, kwargs: Any, convert: Callable[[Any], Any]
) -> AsyncGenerator[Any, None] | None:
    """The converted items of what a method yields; None if it returns no generator.

    Raises: what the user's code raises, also while the items are read.
    """
    if method.is_generator:
        return streams.iterate(threads, lambda: method.function(*args, **kwargs), convert)
    if method.is_async_generator:
        return _converted(method.function(*args, **kwargs), convert)
    return generated(threads, await user.call(method, args, kwargs), convert)


def generated(
    threads: Threads, result: Any, convert: Callable[[Any], Any]
) -> AsyncGenerator[Any, None] | None:
    """The converted items of a generator, sync or async; None for any other value."""
    if inspect.isgenerator(result):
        return streams.iterate(threads, lambda: result, convert)
    return _converted(result, convert) if inspect.isasyncgen(result) else None


async def _converted(items: Any, convert: Any) -> AsyncGenerator[Any, None]:
    try:
        async for item in items:
            yield convert(item)
    finally:
        await items.aclose()


def _returned_generator(method: Method) -> TypeError:
    return TypeError(
        f"Method '{method.name}' returned a generator. You must use `handle.options(stream=True)` to call "
        "generators on a deployment."
    )
