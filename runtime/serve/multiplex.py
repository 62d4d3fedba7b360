"""`@serve.multiplexed`: a replica that keeps the models that are used most recently."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from runtime.serve import context, metrics
from runtime.serve._endings import call_when_unused
from runtime.serve._event_loops import running_loop

logger = logging.getLogger("ray.serve")

_ATTRIBUTE = "__serve_multiplexed__"
_LATENCIES_MS = [1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000]

changed: Callable[[list[str]], None] | None = None
"""Is called with the ids of all models of this process when they change; set by the replica."""
_caches: set[Models] = set()
_ends: set[asyncio.Task[None]] = set()  # an event loop does not keep its tasks


class Models:
    """The models that one function has loaded for one instance.

    Args:
        load: takes a model's id.
        most: models at a time; -1 for no limit.
    """

    def __init__(self, load: Callable[[str], Any], most: int) -> None:
        self._load = load
        self._most = most
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Any]] = {}
        self._turn = asyncio.Lock()  # one at a time: each may need the memory of all
        self._loads = metrics.Counter("serve_multiplexed_models_load_counter", "Models that were loaded.")
        self._unloads = metrics.Counter(
            "serve_multiplexed_models_unload_counter", "Models that were unloaded."
        )
        self._asked = metrics.Counter("serve_multiplexed_get_model_requests_counter", "Requests for a model.")
        self._count = metrics.Gauge("serve_num_multiplexed_models", "Models that are loaded.")
        self._registered = metrics.Gauge(
            "serve_registered_multiplexed_model_id",
            "1 for each model that is loaded.",
            tag_keys=("model_id",),
        )
        self._load_ms = metrics.Histogram(
            "serve_multiplexed_model_load_latency_ms", "Time to load a model.", boundaries=_LATENCIES_MS
        )
        self._unload_ms = metrics.Histogram(
            "serve_multiplexed_model_unload_latency_ms", "Time to unload a model.", boundaries=_LATENCIES_MS
        )
        _caches.add(self)

    @property
    def ids(self) -> list[str]:
        """Models that are loaded or being loaded."""
        return [*self._models, *(model for model in self._loading if model not in self._models)]

    async def get(self, model_id: Any) -> Any:
        """A model, loaded if need be. The one that was not used for the longest time goes first.

        Raises:
            TypeError: the id is not a string.
            ValueError: it is empty: the request names no model.
            Exception: what the user's function raises; the next request tries again.
        """
        if not isinstance(model_id, str):
            raise TypeError(f"The model ID must be a string, got {type(model_id)}.")
        if not model_id:
            raise ValueError(
                "The model ID cannot be empty. Requests name a model by the header `serve_multiplexed_model_id` or "
                "`handle.options(multiplexed_model_id=...)`."
            )
        self._asked.inc()
        if model_id in self._models:
            self._models.move_to_end(model_id)
            return self._models[model_id]
        loading = self._loading.get(model_id)
        if loading is None:
            # In a task of its own: a request that is cancelled does not take the model from the others that wait.
            loading = self._loading[model_id] = asyncio.ensure_future(self._bring(model_id))
            loading.add_done_callback(functools.partial(self._loaded, model_id))
            _tell()
        return await asyncio.shield(loading)

    async def _bring(self, model_id: str) -> Any:
        async with self._turn:
            while 0 < self._most <= len(self._models):
                await self.unload()
            begin = time.perf_counter()
            self._loads.inc()
            self._models[model_id] = model = await self._load(model_id)
            self._load_ms.observe(max(1e-3, (time.perf_counter() - begin) * 1000))
            self._registered.set(1, {"model_id": model_id})
            self._count.set(len(self._models))
            return model

    def _loaded(self, model_id: str, loading: asyncio.Future[Any]) -> None:
        self._loading.pop(model_id, None)
        if not loading.cancelled() and loading.exception() is not None:
            logger.error("Failed to load model '%s': %r", model_id, loading.exception())
        _tell()

    async def unload(self) -> None:
        """Unloads the model that was not used for the longest time: its `__del__`, sync or async, runs now, or when no
        request uses it any more."""
        model_id, model = self._models.popitem(last=False)
        begin = time.perf_counter()
        destroy = getattr(type(model), "__del__", None)
        last = [model]
        del model
        if inspect.iscoroutinefunction(destroy):
            ends = _end_when_unused(last[0], destroy)
            last.clear()
            if ends:  # no request uses it
                await asyncio.wait(ends)
        elif destroy is not None:
            # Of a model that no request uses any more `__del__` runs here; it may take long.
            await asyncio.get_running_loop().run_in_executor(None, last.clear)
        last.clear()
        self._unloads.inc()
        self._unload_ms.observe(max(1e-3, (time.perf_counter() - begin) * 1000))
        self._registered.set(0, {"model_id": model_id})
        self._count.set(len(self._models))
        _tell()

    async def close(self) -> None:
        """Unloads all."""
        while self._models:
            try:
                await self.unload()
            except Exception:
                logger.exception("A model's __del__ failed.")
        _caches.discard(self)


def _end_when_unused(
    model: Any, destroy: Callable[[Any], Coroutine[Any, Any, None]]
) -> list[asyncio.Task[None]]:
    """Runs an async `__del__` on this loop once nothing refers to the model; it is in the result when it runs."""
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Task[None]] = []

    def begin(model: Any) -> None:
        task = loop.create_task(destroy(model))
        _ends.add(task)
        task.add_done_callback(_has_ended)
        ends.append(task)

    def unused(model: Any) -> None:
        if running_loop() is loop:
            begin(model)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(begin, model)

    if not call_when_unused(model, unused):
        begin(model)
    return ends


def _has_ended(task: asyncio.Task[None]) -> None:
    _ends.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logger.error("A model's __del__ failed.", exc_info=task.exception())


def _tell() -> None:
    if changed is not None:
        changed(loaded_models())


def loaded_models() -> list[str]:
    """The ids of all models of this process."""
    return list(dict.fromkeys(model for cache in _caches for model in cache.ids))


async def unload_all(instance: Any) -> None:
    """Unloads the models of an instance."""
    caches: Iterable[Models] = (
        vars(instance).get(_ATTRIBUTE, {}).values() if hasattr(instance, "__dict__") else ()
    )
    for cache in list(caches):
        await cache.close()


def multiplexed(func: Callable[..., Any] | None = None, max_num_models_per_replica: int = 3) -> Any:
    """Decorates the `async def` function or method that loads a model, given its id.

    A call returns the model, which is loaded the first time. If a replica has too many models, the one that was not
    used for the longest time is unloaded: nothing refers to it any more, and its `__del__` frees what it has. Requests
    for a model go to replicas that have it, if they can take it.

    Args:
        max_num_models_per_replica: how many models a replica keeps; -1 for no limit.

    Raises:
        TypeError: the function is not `async def`, or does not take exactly a model's id.
        ValueError: the number is neither positive nor -1.
    """
    if func is not None:
        if not callable(func):
            raise TypeError("The `multiplexed` decorator must be used with a function or method.")
        _check(func)
    if not isinstance(max_num_models_per_replica, int) or isinstance(max_num_models_per_replica, bool):
        raise TypeError("max_num_models_per_replica must be an integer.")
    if max_num_models_per_replica != -1 and max_num_models_per_replica <= 0:
        raise ValueError("max_num_models_per_replica must be positive.")

    def decorate(load: Callable[..., Any]) -> Callable[..., Any]:
        _check(load)
        is_method = len(inspect.signature(load).parameters) == 2

        @functools.wraps(load)
        async def get(*args: Any) -> Any:
            if len(args) != 1 + is_method:
                raise TypeError(
                    "Functions decorated with `@serve.multiplexed` must be called with exactly one argument, the "
                    f"model ID (str), but got {len(args) - is_method}."
                )
            owner = args[0] if is_method else get
            caches = vars(owner).setdefault(_ATTRIBUTE, {})
            cache = caches.get(load.__name__)
            if cache is None:
                if context.current_replica() is None:
                    raise RuntimeError("`@serve.multiplexed` can only be used in a replica of a deployment.")
                bound = load.__get__(args[0]) if is_method else load
                cache = caches[load.__name__] = Models(bound, max_num_models_per_replica)
            return await cache.get(args[-1])

        get.__serve_multiplexed__ = {}  # type: ignore[attr-defined]
        return get

    return decorate(func) if func is not None else decorate


def _check(load: Callable[..., Any]) -> None:
    if not inspect.iscoroutinefunction(load):
        raise TypeError("@serve.multiplexed can only be used to decorate async functions or methods.")
    if not 1 <= len(inspect.signature(load).parameters) <= 2:
        raise TypeError(
            "@serve.multiplexed can only be used to decorate functions or methods with one 'model_id: str' argument."
        )
