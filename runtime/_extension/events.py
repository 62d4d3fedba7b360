"""What happens in the cluster, for one consumer: objects that are ready, items of generators, nodes, actors, keys."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial

from runtime._ownership.records import Entry
from runtime._transport.failures import report
from runtime._wire.messages.control import USER_KEYS
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from .news import ItemReady, News, ObjectReady, Posted
from .polls import ActorPoll, KeyPoll, NodePoll, Poll
from .process import attached, connected

Watched = ObjectRef | ObjectRefGenerator


class Subscription:
    """Watches any number of things for one consumer: a thread (`take`, or iteration), a coroutine (`take_async`, or
    asynchronous iteration), or a callback (`call`).

    Nothing is fetched or unpickled. Of objects and items each is told once; of nodes, actors and keys first how they
    are, then every change, the latest one where the consumer was behind. A thread that takes pumps the process's
    sockets itself, so no hand-off between threads lies between a message and its news.

    Raises: see `process.connected`.
    """

    def __init__(self) -> None:
        core = self._core = connected()
        self._links = core.links
        self._due: deque[News] = deque()
        # Under the engine's lock, as all of the following:
        self._answered: list[Poll] = []  # what they have told is not taken yet
        self._polls: list[Poll] = []
        self._pending: dict[Watched, tuple[Entry, Callable[[], None]]] = {}
        self._wakers: list[Callable[[], object]] = []
        self._callback: Callable[[list[News]], None] | None = None
        self._is_calling = False
        self._closed = False

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ what to watch

    def watch_ready(self, refs: Iterable[ObjectRef]) -> None:
        """Tells `ObjectReady` once of each; of one that is watched already not twice. Keeps the objects until then."""
        links, objects = self._links, self._core.objects
        with links.lock:
            new = [ref for ref in dict.fromkeys(refs) if ref not in self._pending]
            if self._closed or not new:
                return
            objects.note_failure()
            self._core.value_requests.ask_all(ref._entry for ref in new)
            for ref in new:
                self._await(ref, ref._entry, partial(self._ready, ref))
        links.pump.kick()

    def watch_item(self, generator: ObjectRefGenerator) -> None:
        """Tells `ItemReady` once, when the generator has a next item or has ended. The item stays where it is; its
        generator pauses as if nobody had looked."""
        entry = generator._peek()._entry
        with self._links.lock:
            if not self._closed and generator not in self._pending:
                self._await(generator, entry, partial(self._item_ready, generator))
        self._links.pump.kick()

    def watch_nodes(self) -> None:
        """Tells `NodeChanged` of the nodes of the cluster, and of each that joins, drains, resumes or dies."""
        self._begin(NodePoll(self._links.agent, self._told))

    def watch_actor(self, actor_id: bytes) -> None:
        """Tells `ActorChanged` of an actor until it is dead; an unknown one counts as dead. Keeps no actor alive."""
        self._begin(ActorPoll(self._links.agent, self._told, actor_id))

    def watch_key(self, key: bytes, namespace: str = "") -> None:
        """Tells `KeyChanged` of a key of `runtime.experimental.internal_kv`."""
        self._begin(KeyPoll(self._links.agent, self._told, USER_KEYS + namespace, namespace, key))

    def forget_key(self, key: bytes, namespace: str = "") -> None:
        """Watches a key no more. What is told of it already stays."""
        with self._links.lock:
            for poll in self._polls:
                if isinstance(poll, KeyPoll) and poll.place == (USER_KEYS + namespace, key):
                    poll.stopped = True
            self._polls = [poll for poll in self._polls if not poll.stopped]

    def forget(self, watched: Iterable[Watched]) -> None:
        """Watches these references and generators no more. What is told of them already stays."""
        with self._links.lock:
            for one in watched:
                self._drop(one)

    def post(self, what: object) -> None:
        """Tells `Posted`: something of the program's own. From any thread."""
        with self._links.lock:
            self._tell((Posted(what),))
        self._links.pump.wake()  # the consumer may wait as the pump's leader

    # ------------------------------------------------------------ consuming

    @property
    def closed(self) -> bool:
        """Whether nothing will come any more."""
        return self._closed

    def check(self) -> None:
        """That the process is still in the cluster to which all this belongs: `current` would start another one.

        Raises:
            RaySystemError: it has left.
        """
        self._links.check()

    def take(self, timeout_s: float | None = None) -> list[News]:
        """Waits until there is news and takes all of it, in order; [] when none came in time, or it is closed.

        Raises:
            RaySystemError: the process has left the cluster.
        """
        self._links.wait(lambda: self._due or self._closed, timeout_s)
        return self._collect()

    async def take_async(self) -> list[News]:
        """The same for an event loop, without a limit; `asyncio.timeout` sets one."""
        loop = asyncio.get_running_loop()
        while not self._due and not self._closed:
            self._links.check()
            came: asyncio.Future[None] = loop.create_future()
            waker = partial(_wake_loop, loop, came)
            with self._links.lock:
                if self._due or self._closed:
                    break
                self._wakers.append(waker)
            try:
                await came
            finally:
                with self._links.lock:
                    if waker in self._wakers:
                        self._wakers.remove(waker)
        return self._collect()

    def __iter__(self) -> Iterator[News]:
        while not self._closed:
            yield from self.take()

    async def __aiter__(self) -> AsyncIterator[News]:
        while not self._closed:
            for news in await self.take_async():
                yield news

    def call(self, callback: Callable[[list[News]], None]) -> None:
        """Calls back with the news from now on, on a thread of the engine and one call at a time. An error of the
        callback is logged, and harms nobody."""
        with self._links.lock:
            self._callback = callback
            self._call_back()

    def close(self) -> None:
        """Watches nothing any more, and ends every `take`. May be repeated."""
        with self._links.lock:
            self._closed = True
            for watched in list(self._pending):
                self._drop(watched)
            for poll in self._polls:
                poll.stopped = True
            self._polls.clear()
            self._answered.clear()
            self._due.clear()
            self._callback = None
            self._wake()
        self._links.pump.wake()

    # ------------------------------------------------------------ under the lock

    def _await(self, watched: Watched, entry: Entry, callback: Callable[[], None]) -> None:
        self._pending[watched] = entry, callback
        self._core.objects.call_when_ready(entry, callback)

    def _drop(self, watched: Watched) -> None:
        entry, callback = self._pending.pop(watched, (None, None))
        if entry is not None and entry.callbacks is not None and callback in entry.callbacks:
            entry.callbacks.remove(callback)

    def _ready(self, ref: ObjectRef) -> None:
        if self._pending.pop(ref, None) is None:
            return
        self._tell((describe(ref),))

    def _item_ready(self, generator: ObjectRefGenerator) -> None:
        if self._pending.pop(generator, None) is not None:
            self._tell((ItemReady(generator),))

    def _begin(self, poll: Poll) -> None:
        with self._links.lock:
            if self._closed:
                return
            self._polls = [known for known in self._polls if not known.stopped]
            self._polls.append(poll)
            poll.ask()
        self._links.pump.kick()

    def _told(self, poll: Poll, news: Sequence[News]) -> None:
        if not poll.stopped:
            self._answered.append(poll)
        self._tell(news)

    def _tell(self, news: Iterable[News]) -> None:
        if self._closed:
            return
        self._due.extend(news)
        self._wake()
        self._call_back()

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()

    def _call_back(self) -> None:
        if self._callback is not None and self._due and not self._is_calling:
            self._is_calling = True
            self._core.reader.load_in_thread(self._deliver)

    # ------------------------------------------------------------ without it

    def _collect(self) -> list[News]:
        with self._links.lock:
            news = list(self._due)
            self._due.clear()
            answered, self._answered = self._answered, []
            for poll in answered:
                poll.ask()
        if answered:
            self._links.pump.kick()
        return news

    def _deliver(self) -> None:
        while True:
            with self._links.lock:
                callback = self._callback
                if callback is None or not self._due:
                    self._is_calling = False
                    return
            try:
                callback(self._collect())
            except Exception:
                report("the callback of a subscription")


async def ready(refs: Sequence[ObjectRef]) -> list[ObjectReady]:
    """Waits on the running event loop until all objects are ready, and describes them in order. An error is no
    exception here: `failed` tells.

    Raises: see `Subscription.take_async`.
    """
    with Subscription() as subscription:
        subscription.watch_ready(refs)
        missing = set(refs)
        while missing:
            for news in await subscription.take_async():
                assert isinstance(news, ObjectReady)
                missing.discard(news.ref)
    return [describe(ref) for ref in refs]


def describe(ref: ObjectRef) -> ObjectReady:
    """What this process knows of an object that is ready. Whoever hears of an error counts as told of it."""
    entry = ref._entry
    with attached().lock:  # an item of a generator comes before its value, in one go
        value = entry.value
    assert value is not None
    failed = bool(value.kind & 1)
    entry.seen = entry.seen or failed
    size = value.size_bytes if value.locations else value.inline_bytes
    return ObjectReady(ref, failed, size, tuple(map(bytes.hex, value.locations)))


def _wake_loop(loop: asyncio.AbstractEventLoop, came: asyncio.Future[None]) -> None:
    try:
        loop.call_soon_threadsafe(_come, came)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _come(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)
