"""Calls by a handle."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from runtime.serve._replica import streams
from runtime.serve._replica.running import Running
from runtime.serve._replica.user_code import Method
from runtime.serve._wire import values
from runtime.serve._wire.messages import Call, End, Item, Result

if TYPE_CHECKING:
    from runtime.serve._replica.service import Peer, Service


class RunningCall(Running):
    """A call that is answered by a value, or by a stream of values."""

    __slots__ = ("_call",)

    method = "CALL"

    def __init__(self, service: Service, peer: Peer, call: Call) -> None:
        super().__init__(service, peer, call.number, call.meta)
        self._call = call

    @property
    def target(self) -> str:
        """The method that was called."""
        return self._call.method

    async def _answer(self) -> None:
        call = self._call
        if values.is_address(call.body):
            args, kwargs = await self.service.loop.run_in_executor(None, values.load_arguments, call.body)
        else:
            args, kwargs = values.load_arguments(call.body)
        method = self.service.user.method(call.method)
        if call.stream:
            await self._stream(method, args, kwargs)
            return
        if method.is_generator or method.is_async_generator:
            raise _returned_generator(method)
        result = await self.service.user.call(method, args, kwargs)
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise _returned_generator(method)
        dumped = values.dump(result)
        if dumped.kept is not None:
            self.peer.kept.sent(self.number, dumped)
            self.peer.kept.ended(self.number)
        self.send(Result(self.number, dumped.body, self.finish("OK")))

    async def _stream(self, method: Method, args: Any, kwargs: Any) -> None:
        items = await items_of(self.service, method, args, kwargs, values.dump)
        if items is None:
            raise TypeError(
                f"Called method '{method.name}' with `handle.options(stream=True)` but it did not return a generator."
            )
        try:
            async for dumped in items:
                self.peer.kept.sent(self.number, dumped)
                await self.send_counted(Item(self.number, dumped.body), len(dumped.body))
        finally:
            await items.aclose()
        self.peer.kept.ended(self.number)
        self.send(End(self.number, self.finish("OK")))


async def items_of(
    service: Service, method: Method, args: Any, kwargs: Any, convert: Any
) -> AsyncGenerator[Any, None] | None:
    """The converted items of what a method yields; None if it returns no generator.

    Raises: what the user's code raises, also while the items are read.
    """
    if method.is_generator:
        return streams.iterate(service.threads, lambda: method.function(*args, **kwargs), convert)
    if method.is_async_generator:
        return _converted(method.function(*args, **kwargs), convert)
    return generated(service, await service.user.call(method, args, kwargs), convert)


def generated(service: Service, result: Any, convert: Any) -> AsyncGenerator[Any, None] | None:
    """The converted items of a generator, sync or async; None for any other value."""
    if inspect.isgenerator(result):
        return streams.iterate(service.threads, lambda: result, convert)
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
