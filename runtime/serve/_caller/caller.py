"""The `Caller` of this process: `here()`. Where it runs: `attach(loop)`, else on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import runtime
from runtime._extension.process import call_before_leaving
from runtime.exceptions import RaySystemError
from runtime.serve._core.published import targets_key

from .demand import ControllerDemand, DemandReporter, Tell
from .following import Deliver, Followed, StoreKeys
from .measures import QueueMeasures
from .queue import Queue

log = logging.getLogger(__name__)

CLOSE_S = 5.0


class Caller:
    """Queues of all deployments that this process calls, on one event loop.

    Args:
        loop: runs on another thread, or on this one later.
        node: id of this node, in hex.
        followed: makes what delivers the values of followed keys.
        tell: see `DemandReporter`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: str,
        followed: Callable[[Deliver], Followed] = StoreKeys,
        tell: Tell | None = None,
    ) -> None:
        self.loop = loop
        self.node = node
        self.name = f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.demand = DemandReporter(loop, self.name, tell or ControllerDemand(self.spawn))
        self.measures = QueueMeasures(loop, self.name)
        self._queues: dict[tuple[str, str], Queue] = {}
        self._by_key: dict[bytes, Callable[[bytes | None], None]] = {}
        self._deleted: set[tuple[str, str]] = set()  # names of deployments whose queues were dropped
        self._lock = threading.Lock()  # guards these
        self._followed = followed(self._deliver)
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False

    def queue(self, app: str, deployment: str) -> Queue:
        """The queue of a deployment. From any thread; cheap."""
        queue = self._queues.get((app, deployment))
        if queue is None:
            with self._lock:
                queue = self._queues.get((app, deployment))
                if queue is None:
                    queue = Queue(self, app, deployment, (app, deployment) in self._deleted)
                    self._queues[app, deployment] = queue
                    key = targets_key(app, deployment)
                    self._by_key[key] = queue.published
                    self._followed.follow(key)
        return queue

    def drop(self, queue: Queue) -> None:
        """Forgets the queue of a deployment that was deleted: the next call makes another one. On the loop."""
        place = queue.app, queue.deployment
        with self._lock:
            if self._queues.get(place) is queue:
                del self._queues[place]
                self._deleted.add(place)
                key = targets_key(*place)
                del self._by_key[key]
                self._followed.forget(key)
        self.demand.drop(queue)

    def spawn(self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None) -> None:
        """Runs a coroutine until it ends or the caller is closed. On the loop."""
        task = self.loop.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("A task of Serve's caller failed", exc_info=error)
            if ended is not None:
                ended()

        task.add_done_callback(done)

    async def close(self) -> None:
        """Fails all requests and ends all connections. On the loop; may be repeated."""
        if self.is_closed:
            return
        self.is_closed = True
        self._followed.close()
        self.demand.close()
        self.measures.close()
        for queue in self._queues.values():
            queue.close(RaySystemError("The process leaves the cluster, and its requests with it."))
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    def _deliver(self, key: bytes, value: bytes | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._delivered, key, value)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def _delivered(self, key: bytes, value: bytes | None) -> None:
        take = self._by_key.get(key)
        if take is not None and not self.is_closed:
            take(value)


_caller: Caller | None = None
_thread: threading.Thread | None = None
_attached: asyncio.AbstractEventLoop | None = None
_lock = threading.RLock()


def attach(loop: asyncio.AbstractEventLoop) -> None:
    """From now on the caller of this process runs on that loop: calls from there need no other thread. Before the first
    call.

    Raises:
        RuntimeError: the process has a caller on another loop.
    """
    global _attached
    with _lock:
        if _caller is not None and _caller.loop is not loop:
            raise RuntimeError(
                "Calls of this process run on another event loop already: attach() comes first."
            )
        _attached = loop


def here() -> Caller:
    """The caller of this process. It closes when the process leaves the cluster.

    Raises:
        RaySystemError: the process is not connected.
    """
    return _caller or _make()


def _make() -> Caller:
    global _caller, _thread
    with _lock:
        if _caller is None:
            node = runtime.get_runtime_context().get_node_id()
            loop = _attached
            if loop is None:
                loop = asyncio.new_event_loop()  # uvloop needs as much time for a call (measured)
                _thread = threading.Thread(target=loop.run_forever, name="serve-caller", daemon=True)
                _thread.start()
            caller = Caller(loop, node)
            call_before_leaving(_leave)
            _caller = caller
        return _caller


def _leave() -> None:
    global _caller, _thread, _attached
    with _lock:
        caller, thread = _caller, _thread
        _caller = _thread = _attached = None
    if caller is None:
        return
    loop = caller.loop
    if thread is None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: caller.spawn(caller.close()))
        return
    try:
        asyncio.run_coroutine_threadsafe(caller.close(), loop).result(2 * CLOSE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)
    loop.close()
