"""Starts all deployments of an application in this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from runtime import cloudpickle
from runtime.serve import context
from runtime.serve._build import build
from runtime.serve._core.specs import DeploymentOptions
from runtime.serve._local_testing.handle import LocalHandle
from runtime.serve._replica.calls import items_of
from runtime.serve._replica.threads import Threads
from runtime.serve._replica.user_code import UserCode
from runtime.serve.deployment import Application

logger = logging.getLogger("ray.serve")

_numbers = itertools.count(1)
_running: dict[str, _Loop] = {}


def run_locally(target: Application, name: str) -> LocalHandle:
    """Runs an application; constructors run now. An application of the same name that runs already is ended.

    Returns:
        A handle of its ingress deployment.

    Raises: what constructors raise.
    """
    _stop(name)
    run = next(_numbers)
    built = build(target, name, None, lambda deployment, app: LocalHandle(deployment, app, run))
    loop = _running[name] = _Loop()
    for spec in built.spec.deployments:
        _warn(spec.name, spec.options)
        code = built.deployments[spec.name].func_or_class
        replica = LocalReplica(loop, name, spec.name, code, cloudpickle.loads(spec.init), spec.options)
        LocalHandle.replicas[run, name, spec.name] = replica
        loop.replicas.append(replica)
        try:
            replica.start()
        except BaseException:
            _stop(name)
            raise
    handle = built.handles[built.spec.ingress]
    assert isinstance(handle, LocalHandle)
    return handle


def stop_all() -> None:
    """Ends all applications: `__del__` runs, requests that run are cancelled."""
    for name in list(_running):
        _stop(name)


def _stop(name: str) -> None:
    loop = _running.pop(name, None)
    if loop is not None:
        for key in [key for key, replica in LocalHandle.replicas.items() if replica in loop.replicas]:
            del LocalHandle.replicas[key]
        loop.stop()


def _warn(name: str, options: DeploymentOptions) -> None:
    if "num_gpus" in options.ray_actor_options:
        logger.warning("Deployment %s has num_gpus: local testing mode assigns no GPUs.", name)
    if "runtime_env" in options.ray_actor_options:
        logger.warning("Deployment %s has a runtime_env: local testing mode ignores it.", name)


class _Loop:
    """The event loop of all deployments of one application, on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.replicas: list[LocalReplica] = []
        self._thread = threading.Thread(target=self._run, name="serve-local", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(
        self, work: Coroutine[Any, Any, Any], frame: contextvars.Context
    ) -> concurrent.futures.Future[Any]:
        """Runs a coroutine there, in a context."""
        return frame.run(asyncio.run_coroutine_threadsafe, work, self.loop)

    def stop(self) -> None:
        """Ends the replicas and the thread."""
        try:
            self.submit(self._end(), contextvars.copy_context()).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        for replica in self.replicas:
            try:
                await replica.user.end()
            except Exception:
                logger.exception("The end of deployment %s failed.", replica.user.name)
            replica.threads.close()


class LocalReplica:
    """The only replica of a deployment.

    Args:
        code: the class or function.
        init: the arguments of the constructor.
    """

    def __init__(
        self,
        loop: _Loop,
        app: str,
        deployment: str,
        code: Any,
        init: tuple[Any, Any],
        options: DeploymentOptions,
    ) -> None:
        self._loop = loop
        self._options = options
        self.threads = Threads(options.max_ongoing_requests)
        self.user = UserCode(deployment, code, init, self.threads)
        self._context = context.ReplicaContext(
            context.ReplicaID("local", context.DeploymentID(deployment, app)),
            None,
            context.ReplicaRank(0),
            1,
            max_ongoing_requests=options.max_ongoing_requests,
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its code runs."""
        return self._loop.loop

    def start(self) -> None:
        """Runs the constructor and `reconfigure`.

        Raises: what they raise.
        """
        self._loop.submit(self._start(), self._frame(context.RequestContext())).result()

    async def _start(self) -> None:
        await self.user.construct()
        self._context.servable_object = self.user.instance
        await self.user.start_app()
        if self._options.user_config is not None:
            await self.user.reconfigure(self._options.user_config, self._context.rank)

    def _frame(self, request: context.RequestContext) -> contextvars.Context:
        frame = contextvars.copy_context()
        frame.run(context.set_local_replica, self._context)
        frame.run(context._serve_request_context.set, request)
        frame.run(context._serve_batch_request_context.set, [])
        return frame

    def call(
        self, method: str, args: Any, kwargs: Any, request: context.RequestContext
    ) -> concurrent.futures.Future[Any]:
        """Begins a call. Arguments are copied as if they travelled."""
        return self._loop.submit(self._call(method, args, kwargs), self._frame(request))

    async def _call(self, name: str, args: Any, kwargs: Any) -> Any:
        args, kwargs = await _arrived(args, kwargs)
        method = self.user.method(name)
        is_generator = method.is_generator or method.is_async_generator
        result = None if is_generator else await self.user.call(method, args, kwargs)
        if is_generator or inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError(
                f"Method '{name}' returned a generator. You must use `handle.options(stream=True)` to call generators "
                "on a deployment."
            )
        return result

    def stream(
        self,
        method: str,
        args: Any,
        kwargs: Any,
        request: context.RequestContext,
        put: Callable[[Any], None],
    ) -> concurrent.futures.Future[Any]:
        """Begins a call whose items go to `put`, on the event loop's thread; the future ends with the stream."""
        return self._loop.submit(self._stream(method, args, kwargs, put), self._frame(request))

    async def _stream(self, name: str, args: Any, kwargs: Any, put: Callable[[Any], None]) -> None:
        args, kwargs = await _arrived(args, kwargs)
        items = await items_of(
            self.threads, self.user, self.user.method(name), args, kwargs, lambda item: item
        )
        if items is None:
            raise TypeError(
                f"Called method '{name}' with `handle.options(stream=True)` but it did not return a generator."
            )
        try:
            async for item in items:
                put(item)
        finally:
            await items.aclose()


async def _arrived(args: Any, kwargs: Any) -> tuple[Any, Any]:
    from runtime.serve.handle import DeploymentResponse

    async def value(arg: Any) -> Any:
        return await arg if isinstance(arg, DeploymentResponse) else arg

    arrived = [await value(arg) for arg in args], {key: await value(arg) for key, arg in kwargs.items()}
    return cloudpickle.loads(cloudpickle.dumps(arrived))  # type: ignore[no-any-return]
