"""The core of a program outside the cluster, in place of `_process.core_worker.Core`.

The public API works on a core. The driver process on the head has a real one and owns every object. This one borrows
from it, so `Objects`, `Reader` and `Waiter` are those of every process. Only what would talk to agents, workers and the
object store differs.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any, TypeVar, cast

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._owner.arguments import ArgumentPacker
from runtime._owner.creation_sites import SiteIds
from runtime._owner.effects import Effects
from runtime._owner.history import Span
from runtime._owner.links import Links
from runtime._owner.reading import Reader
from runtime._owner.store import Store
from runtime._owner.task_environment import Environment
from runtime._owner.value_requests import ValueRequests
from runtime._owner.waiting import Waiter
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.lineage import Lineage
from runtime._ownership.records import Submission
from runtime._ownership.released import NOWHERE, Released
from runtime._system import interpreter, settings
from runtime._system.variables import Setting
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request
from runtime._wire.messages.node import DriverLogs

from . import messages
from .calls import RemoteActors, RemoteFunctions, RemoteSubmitter
from .objects import Interest, NoBorrowing, RemoteObjects, RemoteStore
from .requests import ANSWER_S, Requests, rebuilt

T = TypeVar("T")
log = logging.getLogger("runtime")
_START_TIMEOUT_S = 60.0
_LEAVE_TIMEOUT_S = 5.0


def _forget_attempt(task: Submission, failed: bool, error: bytes = b"", seconds: float = 0.0) -> None:
    """The driver process submits the tasks, and has their history."""


class RemoteCore(Requests):
    """One remote driver. `current()` returns it as a `Core`: see `as_core`.

    Args:
        address: host:port of the head's remote driver server.
        secret: of the cluster.
        namespace, entrypoint, job_config: as in `Register`.

    Raises:
        ConnectionError: there is no such server, or it is of another version; the message says why.
        RaySystemError: the cluster refuses the job.
    """

    is_driver = True
    is_remote = True
    executor = None
    forked = False

    def __init__(self, address: str, secret: bytes, namespace: str, entrypoint: str, job_config: str) -> None:
        super().__init__(address, secret)
        self.on_driver_logs: Callable[[DriverLogs], None] | None = None
        self.released = Released(self.link.wake)
        self.link.open()
        try:
            told = self.request(
                lambda number: messages.Start(number, namespace, entrypoint, job_config),
                messages.Started,
                _START_TIMEOUT_S,
            )
        except BaseException:
            self.link.close()
            raise
        self.session = msgspec.structs.replace(told.session, secret=secret)
        self.address = told.address
        self.job_id = self.session.job_id
        self.job_settings: dict[str, Any] = json.loads(self.session.job_config or "{}")
        self.environment = Environment(self.session.job_config, self.session.runtime_env)
        make_ids = SiteIds if self.setting(settings.CREATION_SITES) else ids.TaskIds
        self.ids = make_ids(self.job_id)
        self.links = self
        self.agent = RemoteAgent(self, told.agent_path)
        self.pump = RemotePump(self)
        links = cast(Links, self)
        effects = Effects(links)
        self.objects = RemoteObjects(self, effects)
        self.value_requests = Interest(self, self.objects)
        self.borrowing = NoBorrowing()
        self.store = RemoteStore(self, self.objects)
        store = cast(Store, self.store)
        requests = cast(ValueRequests, self.value_requests)
        self.reader = Reader(
            links,
            self.released,
            self.objects,
            cast(Borrowing, self.borrowing),
            store,
            requests,
            cast(Lineage, None),  # of what this process owns: nothing
        )
        self.waiter = Waiter(links, self.released, self.objects, store, requests, self.reader)
        packer = ArgumentPacker(links, self.objects, store)
        effects.attach(self.objects, store, requests, packer, self.reader, _forget_attempt)
        self.functions = RemoteFunctions(self)
        self.submitter = RemoteSubmitter(self, self.objects, packer)
        self.actors = RemoteActors(self, self.objects, packer)
        self.cancellation = RemoteCancellation(self)
        self.history = RemoteHistory()
        self._switch_s = interpreter.shorten_switch_interval()
        self.link.wake()  # so that `released` rests, and wakes it from now on

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise exceptions.RaySystemError(
            f"This is not available to a remote driver (ray://): it needs `{name}` of a process on a node of the "
            "cluster. Run the program there, as a job for instance, or call it in a task."
        )

    # ------------------------------------------------------------ as `Core`

    def setting(self, setting: Setting[T]) -> T:
        """See `Core.setting`."""
        return setting.get_or_default(self.session.settings)

    def peer(self, _address: Any, connect: bool = True) -> None:
        """No process of the cluster can be reached from here."""
        return None

    def abandon(self, failure: Exception) -> None:
        """In a forked child: the connection is the parent's."""
        self.link.failure = failure

    def drain(self) -> None:
        """See `Core.drain`."""
        if self.released:
            with self.lock:
                self.objects.drain()

    def close(self) -> None:
        """Leaves the cluster: the driver process ends."""
        try:
            if self.link.failure is None:
                self.drain()
                self.link.leave()
                self.request(messages.Leave, None, _LEAVE_TIMEOUT_S)
        except Exception as error:
            log.debug("the driver process was not told of the end: %s", error)
        with self.lock:
            self._closing = True
            self.actors.close()
            self.objects.close()
        self.link.close()
        self.reader.close()
        interpreter.restore_switch_interval(self._switch_s)
        self._fail_requests(self._lost(ConnectionError()))
        self.released.clear()
        self.released = NOWHERE

    # ------------------------------------------------------------ what comes

    def _on_message(self, message: messages.AnyMessage) -> None:
        if isinstance(message, messages.Ready):
            with self.lock:
                self.value_requests.take(message)
        elif isinstance(message, messages.Logs):
            if self.on_driver_logs is not None:
                self.on_driver_logs(message.batch)
        elif isinstance(message, messages.Ended):
            self.link.fail(rebuilt(message.error))
        super()._on_message(message)

    def _on_lost(self, error: Exception) -> None:
        if "objects" in self.__dict__:
            with self.lock:
                self.objects.fail_pending(self._lost(error))
        super()._on_lost(error)

    def _on_idle(self) -> None:
        """On the sending thread: references have died, or it is the first time."""
        if "waiter" not in self.__dict__:
            return
        self.released.resting = False
        try:
            with self.lock:
                self.waiter.tick()
                self.objects.drain()
        except exceptions.RaySystemError:
            return  # the connection is lost
        self.released.resting = True
        if self.released:
            self.released.wake()


class RemoteAgent:
    """The node agent of the driver process."""

    def __init__(self, core: Requests, path: str) -> None:
        self._core = core
        self.remote_path = path

    @property
    def closed(self) -> bool:
        """Whether it is out of reach for good."""
        return self._core.link.failure is not None

    def send(self, message: Message) -> None:
        """Sends a one-way message."""
        self._core.send(messages.Ask(0, codec.encode(message)))

    def call(self, request: Request[Any], callback: Callable[[Any], None]) -> None:
        """Calls back with the reply, under the lock."""
        core = self._core
        frame = codec.encode(request)

        def done(future: Future[Any]) -> None:
            error = future.exception()
            reply: Any
            if error is None:
                reply = codec.decode(msgspec.msgpack.decode(future.result(), type=bytes))
            else:
                reply = ErrorReply(ErrorKind.UNAVAILABLE, str(error))
            with core.lock:
                callback(reply)
            core.tell()

        core.ask_driver(lambda number: messages.Ask(number, frame)).add_done_callback(done)


class RemotePump:
    """What callers want of a pump."""

    def __init__(self, core: Requests) -> None:
        self._core = core
        self.lock = core.lock

    @property
    def failure(self) -> exceptions.RaySystemError | None:
        """Why nothing will come any more."""
        failure = self._core.link.failure
        return self._core._lost(failure) if failure is not None else None

    def call(self, _agent: Any, request: Request[Any], timeout_s: float | None = None) -> Any:
        """Calls the node agent: there is no other connection."""
        return self._core.call_agent(request, timeout_s)

    def wait(self, ready: Callable[[], Any], timeout_s: float | None = None) -> bool:
        """See `Pump.wait`."""
        return self._core.wait(ready, timeout_s)

    def poll_once(self) -> None:
        """Takes all that the driver process knew when this was called."""
        self._core.request(messages.Barrier, None, ANSWER_S)

    def interruptible(self, frame: FrameType | None, retry: Callable[[], None]) -> bool:
        """See `Pump.interruptible`: a message that is numbered and not sent would break the connection for good."""
        return self._core.interrupts.may_raise(frame, retry)

    def kick(self) -> None:
        """Nothing: what is sent leaves by itself."""

    wake = kick


class RemoteCancellation:
    """See `_owner.cancellation.Cancellation`."""

    def __init__(self, core: Requests) -> None:
        self._core = core

    def cancel(self, entry: Any, force: bool, recursive: bool) -> None:
        """See there."""
        self._core.request(
            lambda number: messages.Cancel(number, entry.object_id, force, recursive), None, ANSWER_S
        )


class RemoteHistory:
    """Spans that the program measures are kept nowhere: nobody could ask for them."""

    def __init__(self) -> None:
        self.spans: deque[Span] = deque(maxlen=0)

    def report(self) -> None:
        """The driver process on the head reports the tasks, which it has submitted."""
