"""The cluster as the engine of a loop: effects become tasks, calls and actors, and news become events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runtime._core.actors import ActorState
from runtime._extension import gangs, objects
from runtime._extension.events import Subscription, describe
from runtime._extension.news import (
    ActorChanged,
    ItemReady,
    KeyChanged,
    News,
    NodeChanged,
    ObjectReady,
    Posted,
)
from runtime._extension.streams import metadata_of
from runtime.exceptions import ActorDiedError
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator
from runtime.util.placement_group import placement_group
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Call,
    Cancel,
    CreateActor,
    CreateGang,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Item,
    Key,
    Kill,
    Noticed,
    Perform,
    Restart,
    ResultOf,
    Store,
    Submit,
    Take,
    Watch,
)

THREADS = 4
"""Functions that `Perform` runs at one time."""


class _Stream:
    """A generator whose items are taken when they are asked for."""

    __slots__ = ("generator", "taken", "wanted")

    def __init__(self, generator: ObjectRefGenerator) -> None:
        self.generator = generator
        self.wanted = 0
        self.taken = 0


class ClusterEngine:
    """See `loop.Engine`. All but `interrupt` belong to the loop's thread.

    Raises: see `runtime._extension.process.connected`.
    """

    def __init__(self) -> None:
        self._subscription = Subscription()
        self._results: dict[Key, ObjectRef] = {}
        self._running: dict[ObjectRef, tuple[Key, bool]] = {}  # with `fetch`
        self._streams: dict[Key, _Stream] = {}
        self._stream_keys: dict[ObjectRefGenerator, Key] = {}
        self._actors: dict[Key, Any] = {}
        self._actor_keys: dict[str, Key] = {}
        self._failed: deque[Event] = deque()  # effects that could not begin
        self._threads: ThreadPoolExecutor | None = None  # for `Perform`

    # ------------------------------------------------------------ see `Engine`

    def now(self) -> float:
        return time.monotonic()

    def carry_out(self, effect: Effect) -> None:
        self._subscription.check()
        match effect:
            case Submit():
                self._submit(effect)
            case Call():
                self._call(effect)
            case CreateActor():
                self._create(effect)
            case CreateGang():
                self._create_gang(effect)
            case Kill(actor):
                handle = self._actors.get(actor)
                if handle is not None:
                    objects.kill(handle)
            case Restart(actor):
                handle = self._actors.get(actor)
                if handle is not None:
                    objects.kill(handle, restarts=True)
            case Cancel(key, force):
                self._cancel(key, force)
            case Take(key, items):
                self._take(key, items)
            case Perform():
                self._perform(effect)
            case Store(key, value):
                self._results[key] = objects.put(value)
            case Forget(key):
                self._results.pop(key, None)
            case Watch(what, key, namespace):
                if what == "nodes":
                    self._subscription.watch_nodes()
                else:
                    self._subscription.watch_key(key, namespace)
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect of the cluster")

    def take(self, timeout_s: float | None) -> Sequence[Event]:
        events: list[Event] = []
        if not self._failed:
            for news in self._subscription.take(timeout_s):
                events += self._events(news)
        while self._failed:
            events.append(self._failed.popleft())
        return events

    def resolve(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(self.resolve(each) for each in value)
        return self._results[value.key] if isinstance(value, ResultOf) else value

    def interrupt(self) -> None:
        self._subscription.post(None)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._subscription.close()
        objects.ignore_errors([*self._results.values(), *self._stream_keys])
        for kept in (self._results, self._running, self._streams, self._stream_keys, self._actors):
            kept.clear()

    # ------------------------------------------------------------ effects

    def _submit(self, effect: Submit) -> None:
        try:
            function = effect.function.options(**effect.options) if effect.options else effect.function
            result = function.remote(*self._arguments(effect.args), **self._keywords(effect.kwargs))
        except Exception as error:
            self._failed.append(Failed(effect.key, error))
        else:
            self._track(effect.key, result, effect.fetch)

    def _call(self, effect: Call) -> None:
        try:
            handle = self._actors.get(effect.actor)
            if handle is None:
                raise ActorDiedError(f"It is {effect.actor!r}, and was dead before it was called.")
            method = getattr(handle, effect.method)
            if effect.options:
                method = method.options(**effect.options)
            result = method.remote(*self._arguments(effect.args), **self._keywords(effect.kwargs))
        except Exception as error:
            self._failed.append(Failed(effect.key, error))
        else:
            self._track(effect.key, result, effect.fetch)

    def _perform(self, effect: Perform) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "controller")
        self._threads.submit(self._performed, effect.key, effect.function, self._arguments(effect.args))

    def _performed(self, key: Key, function: Callable[..., Any], args: Sequence[Any]) -> None:
        try:
            event: Event = Done(key, function(*args))
        except BaseException as error:
            event = Failed(key, error)
        self._subscription.post(event)

    def _create(self, effect: CreateActor) -> None:
        try:
            handle = self._handle_of(effect)
        except Exception as error:
            self._failed.append(ActorDied(effect.key, f"it could not be created: {error}"))
        else:
            self._follow(effect.key, handle)

    def _create_gang(self, effect: CreateGang) -> None:
        try:
            with gangs.together():
                group = placement_group(
                    [dict(bundle) for bundle in effect.bundles],
                    effect.strategy,
                    bundle_label_selector=[dict(selector) for selector in effect.selectors] or None,
                )
                handles = [
                    self._handle_of(actor, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index))
                    for index, actor in enumerate(effect.actors)
                ]
        except Exception as error:
            reason = f"its gang could not be created: {error}"
            self._failed.extend(ActorDied(actor.key, reason) for actor in effect.actors)
        else:
            for actor, handle in zip(effect.actors, handles, strict=True):
                self._follow(actor.key, handle)

    def _handle_of(self, effect: CreateActor, **where: Any) -> Any:
        options = {**effect.options, **where}
        cls = effect.cls.options(**options) if options else effect.cls
        return cls.remote(*self._arguments(effect.args), **self._keywords(effect.kwargs))

    def _follow(self, key: Key, handle: Any) -> None:
        self._actors[key] = handle
        self._actor_keys[handle._actor_id.hex()] = key
        self._subscription.watch_actor(handle._actor_id.binary())

    def _track(self, key: Key, result: Any, fetch: bool) -> None:
        if isinstance(result, ObjectRefGenerator):
            self._streams[key] = _Stream(result)
            self._stream_keys[result] = key
            return
        if not isinstance(result, ObjectRef):
            error = TypeError(
                "A controller's task or call has one result: leave num_returns out, or make it a stream."
            )
            self._failed.append(Failed(key, error))
            return
        self._results[key] = result
        self._running[result] = key, fetch
        self._subscription.watch_ready([result])

    def _arguments(self, values: Iterable[Any]) -> list[Any]:
        return [self.resolve(value) for value in values]

    def _keywords(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.resolve(value) for name, value in values.items()}

    def _cancel(self, key: Key, force: bool) -> None:
        stream = self._streams.get(key)
        result = stream.generator if stream is not None else self._results.get(key)
        if result is not None:
            objects.cancel(result, force)

    def _take(self, key: Key, items: int) -> None:
        stream = self._streams.get(key)
        if stream is not None:
            if not stream.wanted:
                self._subscription.watch_item(stream.generator)
            stream.wanted += items

    # ------------------------------------------------------------ news

    def _events(self, news: News) -> Iterable[Event]:
        match news:
            case ObjectReady():
                return self._ended(news)
            case ItemReady(generator):
                return self._items(generator)
            case ActorChanged():
                return self._actor_changed(news)
            case NodeChanged() | KeyChanged():
                return (Noticed(news),)
            case Posted(Done() | Failed() as event):
                return (event,)
        return ()

    def _ended(self, news: ObjectReady) -> Iterable[Event]:
        key, fetch = self._running.pop(news.ref)
        if news.failed:
            self._results.pop(key, None)
            return (Failed(key, objects.error_of(news.ref)),)
        value = None
        if fetch:
            try:
                value = objects.value_of(news.ref)
            except Exception as error:
                return (Failed(key, error),)
        return (Done(key, value, news.size_bytes, news.node_ids),)

    def _items(self, generator: ObjectRefGenerator) -> list[Event]:
        key = self._stream_keys[generator]
        stream = self._streams[key]
        events: list[Event] = []
        while stream.wanted:
            try:
                ref = generator._next_sync(0)
            except StopIteration:
                self._drop_stream(key)
                return [*events, Done(key)]
            if ref.is_nil():
                self._subscription.watch_item(generator)
                break
            told = describe(ref)
            if told.failed:
                self._drop_stream(key)
                return [*events, Failed(key, objects.error_of(ref))]
            index, stream.taken = stream.taken, stream.taken + 1
            stream.wanted -= 1
            self._results[key, index] = ref
            events.append(Item(key, index, told.size_bytes, told.node_ids, metadata_of(ref)))
        return events

    def _drop_stream(self, key: Key) -> None:
        del self._stream_keys[self._streams.pop(key).generator]

    def _actor_changed(self, news: ActorChanged) -> Iterable[Event]:
        key = self._actor_keys.get(news.actor_id)
        if key is None:
            return ()
        match news.state:
            case ActorState.ALIVE:
                return (ActorUp(key, news.node_id, news.restarts),)
            case ActorState.RESTARTING:
                return (ActorLost(key, news.reason),)
            case ActorState.DEAD:
                del self._actors[key], self._actor_keys[news.actor_id]
                return (ActorDied(key, news.reason),)
        return ()
