"""The user's class or function: its construction, its methods and how to call them, its end."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from runtime.serve import asgi, multiplex
from runtime.serve._endings import finish
from runtime.serve._replica.asgi_app import AsgiApp
from runtime.serve._replica.threads import Threads
from runtime.serve.context import serve_error

CHECK = "check_health"
RECONFIGURE = "reconfigure"


class Method:
    """A method of the user's class, or the user's function.

    Attributes:
        function: what to call.
        is_sync: it blocks its thread; a generator function, too, if `is_generator`.
        is_async_generator: it is an `async def` with `yield`.
        takes_request: it has a parameter for the request.
    """

    __slots__ = ("function", "is_async_generator", "is_generator", "is_sync", "name", "takes_request")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        plain = _plain(function)
        self.is_async_generator = inspect.isasyncgenfunction(plain)
        self.is_generator = inspect.isgeneratorfunction(plain)
        self.is_sync = not (self.is_async_generator or inspect.iscoroutinefunction(plain))
        try:
            self.takes_request = bool(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # of a function without a signature, written in C
            self.takes_request = True


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 -- an instance with `__call__`


_ended: list[Any] = []
"""Objects whose `__del__` has run and would run again: they stay."""


class UserCode:
    """The code of one replica. `instance` is None until it is constructed.

    Args:
        name: of the deployment.
        target: its class or function.
        init: the arguments of the class's constructor.
        threads: where sync code runs.
    """

    def __init__(self, name: str, target: Any, init: tuple[Any, Any], threads: Threads) -> None:
        self.name = name
        self._target = target
        self._init = init
        self._threads = threads
        self._methods: dict[str, Method] = {}
        self._ended = False
        self.instance: Any = None
        self.app: AsgiApp | None = None
        """Of a class with `@serve.ingress`."""

    async def construct(self) -> None:
        """Runs the constructor, on the event loop: it may start tasks there.

        Raises: what the user's code raises.
        """
        if not inspect.isclass(self._target):
            self.instance = self._target
            return
        args, kwargs = self._init
        source = asgi.source_of(self._target)
        if inspect.iscoroutinefunction(self._target.__init__):
            self.instance = self._target.__new__(self._target)
            await self.instance.__init__(*args, **kwargs)
        else:
            self.instance = self._target(*args, **kwargs)
        if source is not None:
            self.app = AsgiApp(source, self.instance)

    async def start_app(self) -> None:
        """Starts the ASGI application, if there is one."""
        if self.app is not None:
            await self.app.start()

    def method(self, name: str) -> Method:
        """A method by its name; the function itself for any name.

        Raises:
            RayServeException: there is none.
        """
        method = self._methods.get(name)
        if method is None:
            if self.instance is self._target:
                function = self.instance
            else:
                function = getattr(self.instance, name, None)
                if not callable(function):
                    raise serve_error(self._no_method(name))
            method = self._methods[name] = Method(name, function)
        return method

    def _no_method(self, name: str) -> str:
        known = [
            other
            for other in dir(type(self.instance))
            if not other.startswith("__") and callable(getattr(type(self.instance), other, None))
        ]
        return (
            f"Tried to call a method '{name}' of deployment '{self.name}' that does not exist. Available "
            f"methods: {known}."
        )

    async def call(self, method: Method, args: Any, kwargs: Any) -> Any:
        """Calls a method that is no generator, and waits for its result.

        Raises: what the user's code raises.
        """
        if method.is_sync:
            result = await self._threads.run(method.function, *args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        return await method.function(*args, **kwargs)

    # ------------------------------------------------------------ configuration, health, end

    async def reconfigure(self, user_config: Any, rank: Any) -> None:
        """Hands the user's configuration to the method `reconfigure`, with the rank if it has a parameter for it.

        Raises:
            RayServeException: there is no such method.
            Exception: what it raises.
        """
        method = getattr(self.instance, RECONFIGURE, None)
        if not callable(method) or self.instance is self._target:
            raise serve_error(
                f"user_config was given, but deployment '{self.name}' has no method `{RECONFIGURE}` to take it."
            )
        kwargs = {"rank": rank} if self.wants_rank else {}
        await self.call(Method(RECONFIGURE, method), (user_config,), kwargs)

    @property
    def wants_rank(self) -> bool:
        """Whether `reconfigure` has a parameter `rank`."""
        method = getattr(self.instance, RECONFIGURE, None)
        if not callable(method) or self.instance is self._target:
            return False
        return "rank" in inspect.signature(method).parameters

    def optional(self, name: str) -> Method | None:
        """A method that a class may have."""
        if not inspect.isclass(self._target) or not callable(getattr(self.instance, name, None)):
            return None
        return Method(name, getattr(self.instance, name))

    async def end(self) -> None:
        """Stops the application, runs `__del__`, sync or async, and unloads models. Only the first call does.

        Raises: what the user's code raises.
        """
        if self.instance is None or self._ended:
            return
        self._ended = True
        try:
            if self.app is not None:
                await self.app.stop()
        finally:
            destroy = getattr(type(self.instance), "__del__", None)
            if destroy is not None and self.instance is not self._target:
                if not finish(self.instance):
                    _ended.append(self.instance)
                result = destroy(self.instance)
                if inspect.isawaitable(result):
                    await asyncio.shield(result)
            await multiplex.unload_all(self.instance)
