"""The ASGI application of a deployment: its routes that are methods, its lifespan."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection
from typing import Any

from runtime.serve import asgi

VERSIONS = {"version": "3.0", "spec_version": "2.4"}
"""Of ASGI. Since 2.4 applications need not watch for a disconnect while they send: `send` raises `OSError`."""


class AsgiApp:
    """An application with its lifespan. `app` is to be called; `state` belongs to the `scope` of each request.

    Args:
        source: of the class.
        instance: of the class; the `self` of routes.

    Raises:
        TypeError: the method that builds the application returns None.
        Exception: what the user's code raises.
    """

    def __init__(self, source: asgi.Source, instance: Any) -> None:
        self._source = source
        self._instance = instance
        self._lifespan: _Lifespan | None = None
        self.app: Any = None
        self.state: dict[str, Any] = {}

    @property
    def docs_path(self) -> str | None:
        """Where a FastAPI application shows its documentation."""
        path = getattr(self.app, "docs_url", None)
        return path if isinstance(path, str) else None

    async def start(self) -> None:
        """Builds the application and runs its startup.

        Raises:
            RuntimeError: the startup failed.
            Exception: what the function that builds it raises.
        """
        build = getattr(self._instance, asgi.BUILD_METHOD, None)
        if build is not None:
            app = build()
            app = await app if inspect.isawaitable(app) else app
            if app is None:
                raise TypeError(f"`{asgi.BUILD_METHOD}` must return an ASGI app.")
        else:
            app = self._source.app() if self._source.builds else self._source.app
        bind_methods(app, self._source.owners, self._instance)
        self.app = app
        self._lifespan = _Lifespan(app, self.state)
        await self._lifespan.start()

    async def stop(self) -> None:
        """Runs the application's shutdown.

        Raises:
            RuntimeError: it failed.
        """
        if self._lifespan is not None:
            await self._lifespan.stop()


def bind_methods(app: Any, owners: Collection[str], instance: Any) -> None:
    """Makes the routes whose endpoints are methods of the instance's class call the instance, and drops those of other
    classes with the same application. FastAPI analyses a route's parameters when it is made, so each is made anew, with
    the method bound to the instance: it has no `self`.

    Args:
        owners: names of the class and its bases, see `asgi.Source`.
    """
    dropped: list[tuple[list[Any], Any]] = []
    for routes, index, route in asgi.routes_of(app):
        function = getattr(route.endpoint, "__func__", route.endpoint)
        if asgi.owner_of(function) in owners:
            if not inspect.signature(function).parameters:
                raise TypeError(
                    f"{function.__qualname__} is a route, so it must have `self` as its first parameter."
                )
            routes[index] = _remade(route, function.__get__(instance))
        elif hasattr(function, asgi.METHOD_ATTRIBUTE):
            dropped.append((routes, route))
    for routes, route in dropped:
        routes.remove(route)


def _remade(route: Any, endpoint: Any) -> Any:
    """A route like another one, with another endpoint: by the parameters of its class, which it has as attributes."""
    arguments = {
        name: getattr(route, name)
        for name, parameter in inspect.signature(type(route).__init__).parameters.items()
        if name not in ("self", "endpoint")
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and hasattr(route, name)
    }
    return type(route)(endpoint=endpoint, **arguments)


class _Lifespan:
    """The lifespan protocol of ASGI: a task of the application that is told of the startup and of the shutdown."""

    def __init__(self, app: Any, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        self._task = asyncio.ensure_future(self._app(scope, self._told.get, self._answers.put))
        answer = await self._tell("lifespan.startup")
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            error = await self._error()
            raise RuntimeError(
                f"The startup of the ASGI application failed: {answer.get('message') or error!r}"
            ) from error
        # An application that ends or raises without an answer has no lifespan.

    async def stop(self) -> None:
        if self._task is None or self._task.done():
            return
        answer = await self._tell("lifespan.shutdown")
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            error = await self._error()
            raise RuntimeError(
                f"The shutdown of the ASGI application failed: {answer.get('message') or error!r}"
            ) from error
        await self._error()

    async def _tell(self, what: str) -> dict[str, Any] | None:
        assert self._task is not None
        self._told.put_nowait({"type": what})
        answer = asyncio.ensure_future(self._answers.get())
        try:
            await asyncio.wait([answer, self._task], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            self._task.cancelled() or self._task.exception()  # marks the exception as retrieved
            return None if self._answers.empty() else self._answers.get_nowait()
        finally:
            answer.cancel()

    async def _error(self) -> BaseException | None:
        assert self._task is not None
        await asyncio.wait([self._task])
        return None if self._task.cancelled() else self._task.exception()
