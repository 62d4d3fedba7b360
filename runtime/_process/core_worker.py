"""The composition root of a driver or worker process: its identity, its connections, and who handles which message."""

from __future__ import annotations

import json
import logging
import os
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._owner.actor_submitter import ActorSubmitter
from runtime._owner.cancellation import Cancellation
from runtime._owner.effects import Effects
from runtime._owner.functions import Functions
from runtime._owner.history import History
from runtime._owner.object_admin import ObjectAdmin
from runtime._owner.objects import Objects
from runtime._owner.reading import Reader
from runtime._owner.store import Store
from runtime._owner.streaming import Stream
from runtime._owner.submission import Submission
from runtime._owner.submitter import TaskSubmitter
from runtime._owner.task_environment import Environment
from runtime._owner.value_requests import ValueRequests
from runtime._owner.waiting import Waiter
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.lineage import Lineage
from runtime._ownership.released import Released
from runtime._system import interpreter, settings
from runtime._system.variables import Setting
from runtime._transport.connection import Connection
from runtime._transport.failures import report
from runtime._transport.pump import REST_S, Pump
from runtime._wire.messages import node
from runtime._wire.messages import worker as messages
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request, WorkerAddress

from .metrics import metrics
from .output_files import reopen

if TYPE_CHECKING:
    from runtime._executor.executor import Executor

log = logging.getLogger("runtime")
T = TypeVar("T")
TICK_S = 0.01
WATCH_S = 0.1
REGISTER_TIMEOUT_S = 30.0

_current: Core | None = None
_auto_init: Callable[[], None] | None = None


def current() -> Core:
    """The core of this process; connects first if the program did not call `init`.

    Raises:
        RaySystemError: there is none and automatic initialization is off.
    """
    if _current is None and _auto_init is not None:
        _auto_init()
    if _current is None:
        raise exceptions.RaySystemError("Ray has not been started yet: call init() first.")
    return _current


def current_or_none() -> Core | None:
    """The core of this process, if it is connected."""
    return _current


def set_current(core: Core | None) -> None:
    """Makes `core` the one of this process."""
    global _current
    _current = core


def set_auto_init(auto_init: Callable[[], None]) -> None:
    """What `current` calls when nothing is connected yet."""
    global _auto_init
    _auto_init = auto_init


def _forget_parent() -> None:
    """A forked child is a process of its own: it must not speak on its parent's connections."""
    global _current, _auto_init
    core, _current, _auto_init = _current, None, None
    if core is not None:
        core.forked = True
        core.pump.abandon()
        core.pump.failure = exceptions.RaySystemError(
            "This process was forked from one that is connected: call init() here before anything else."
        )
        core.lock = core.pump.lock


os.register_at_fork(after_in_child=_forget_parent)


class Core:
    """One connected process.

    Args:
        agent_path: Unix socket of the node agent.
        register: what to say to it; `address` is filled in here.
        worker_id: 28 bytes.
        host: the node's address, where it is known beforehand.

    Raises:
        RaySystemError: the agent is not there or refuses.
    """

    def __init__(self, agent_path: str, register: node.Register, worker_id: bytes, host: str = "") -> None:
        self.pump = Pump(self._on_message)
        self.lock = self.pump.lock
        self.released = Released(self.pump.wake)
        self.is_driver = register.is_driver
        self.executor: Executor | None = None  # set by a worker's executor
        self.on_driver_logs: Callable[[node.DriverLogs], None] | None = None
        self._peers: dict[bytes, Connection] = {}
        self._last_tick = 0.0
        self._switch_s: float | None = None
        self._closing = False
        self.forked = False  # this is a child that user code forked, and not the process that was connected
        self._handlers: dict[type, Callable[[Connection, Any, int], None]] = {}
        self._early: list[tuple[Connection, Message, int]] | None = []  # what came before we were complete
        listen_path = os.path.join(os.path.dirname(agent_path), f"w-{worker_id.hex()[:16]}")
        self._listen_path = listen_path
        self.pump.listen_unix(listen_path, self._accepted)
        self.session: node.Registered
        try:
            port = self._listen_tcp(host) if host else 0
            self.address = WorkerAddress(worker_id, b"", listen_path, host, port)
            self.agent = self.pump.connect_unix(agent_path, "the node agent")
            self.agent.on_close = self._agent_lost
            register = msgspec.structs.replace(register, address=self.address, pid=os.getpid())
            reply = self.pump.call(self.agent, register, REGISTER_TIMEOUT_S)
        except OSError as error:
            self._unlisten()
            raise exceptions.RaySystemError(
                f"The node agent at {agent_path} does not answer ({error}). Is the cluster still up?"
            ) from error
        if isinstance(reply, ErrorReply):
            self._unlisten()
            raise exceptions.RaySystemError(f"The node agent refused this process: {reply.message}")
        self.session = reply
        self.pump.admit(reply.secret)
        host = self.session.node_host
        self.address = WorkerAddress(
            worker_id, self.session.node_id, listen_path, host, port or self._listen_tcp(host)
        )
        self.job_id = self.session.job_id
        self.job_settings: dict[str, Any] = json.loads(self.session.job_config or "{}")
        self.environment = Environment(self.session.job_config, self.session.runtime_env)
        self.ids = ids.TaskIds(self.job_id)
        self.store = Store(self, self.session.store_path, self.session.store_capacity_bytes)
        self.functions = Functions(self)
        self.history = History(self)
        effects = Effects(self)
        self.objects = Objects(self, effects)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        self.value_requests = ValueRequests(self)
        lineage_bytes = self.setting(settings.MAX_LINEAGE_BYTES)
        self.lineage = Lineage(self.objects, effects, lineage_bytes)
        self.object_admin = ObjectAdmin(self)
        self.reader = Reader(self)
        self.waiter = Waiter(self)
        self.submitter = TaskSubmitter(self)
        self.actors = ActorSubmitter(self)
        self.cancellation = Cancellation(self)
        self.pending: dict[bytes, Submission] = {}  # by task id: what waits for its Done
        self.streams: weakref.WeakValueDictionary[bytes, Stream] = weakref.WeakValueDictionary()
        self._handlers = {
            messages.Hello: self._on_hello,
            messages.Done: self._on_done,
            node.ListState: self.history.on_list,
            messages.Returned: self.submitter.on_returned,
            messages.Retiring: self.submitter.on_retiring,
            messages.StreamItem: self._on_stream_item,
            messages.StreamPaused: self._on_stream_paused,
            messages.BorrowRefs: self.borrowing.on_borrow,
            messages.ReturnRefs: self.borrowing.on_return,
            messages.GetObject: self.value_requests.on_get,
            messages.GetReady: self.value_requests.on_get_ready,
            messages.ObjectLost: self.lineage.on_lost,
            messages.AddLocation: self.objects.on_location,
            messages.AdoptObject: self.object_admin.on_adopt,
            messages.ForceFree: self.object_admin.on_free,
            messages.GetLocations: self.object_admin.on_locations,
            messages.CancelObject: self.cancellation.on_cancel,
            messages.DefineFunction: self.functions.on_define,
            messages.ForgetFunctions: self.functions.on_forget,
            node.StoreSettle: self.store.on_settle,
            node.LeaseGranted: self.submitter.on_granted,
            node.LeaseFailed: self.submitter.on_failed,
            node.LeaseWaiting: self.submitter.on_waiting,
            node.LeaseLost: self.submitter.on_lost,
            node.LeaseRecall: self.submitter.on_recall,
            node.NodeDied: self._on_node_died,
            node.DriverLogs: self._on_driver_logs,
            node.ReopenOutput: lambda _, message, __: reopen(message.path, message.is_error_stream),
        }
        self.pump.on_wait = self._before_wait
        metrics.on_change = self.pump.wake

    def setting(self, setting: Setting[T]) -> T:
        """The value in this process's environment, else in its node's `_system_config`."""
        return setting.get_or_default(self.session.settings)

    def start(self) -> None:
        """Begins to serve, in the background as well."""
        with self.lock:
            early, self._early = self._early, None
            for connection, message, correlation in early or ():
                self._on_message(connection, message, correlation)
        self.pump.start()
        self._switch_s = interpreter.shorten_switch_interval()

    def add_handlers(self, handlers: dict[type, Callable[[Connection, Any, int], None]]) -> None:
        """A worker's executor adds what only workers are told."""
        self._handlers.update(handlers)

    # ------------------------------------------------------------ waiting and calling

    def wait(self, ready: Callable[[], Any], timeout_s: float | None) -> bool:
        """Waits like `Pump.wait`; a task that waits lends its CPUs meanwhile."""
        if ready():
            return True
        if self.executor is not None and self.executor.may_block():
            return self.executor.blocking_wait(ready, timeout_s)
        return self.pump.wait(ready, timeout_s)

    def call_agent(self, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """Calls the agent (or, through it, the control store) and waits for the reply, errors included.

        Raises:
            RaySystemError: the agent is gone.
        """
        reply = self.pump.call(self.agent, request, timeout_s)
        if isinstance(reply, ErrorReply):
            self.check()
        return reply

    def check(self) -> None:
        """Raises what ended this process's part in the cluster, if anything did: nothing new can be started then.

        Raises:
            RaySystemError: the agent is gone, or `shutdown` was called.
        """
        if self.pump.failure is not None:
            raise self.pump.failure
        if self._closing:
            raise exceptions.RaySystemError(
                "This belongs to a session that was shut down: nothing more can come of it. "
                "Call init() and start again."
            )

    def ask(self, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """Like `call_agent`, but errors raise.

        Raises:
            GetTimeoutError, RaySystemError: by the kind of the error.
        """
        reply = self.call_agent(request, timeout_s)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.TIMEOUT:
                raise exceptions.GetTimeoutError(reply.message)
            raise exceptions.RaySystemError(reply.message)
        return reply

    # ------------------------------------------------------------ peers

    def peer(self, address: WorkerAddress, connect: bool = True) -> Connection | None:
        """The connection to another driver or worker; None when it cannot be reached. Under the lock."""
        connection = self._peers.get(address.worker_id)
        if connection is not None or not connect:
            return connection
        try:
            if address.node_id == self.address.node_id:
                connection = self.pump.connect_unix(
                    address.unix_path, f"worker {address.worker_id.hex()[:12]}"
                )
            else:
                connection = self.pump.connect_tcp(
                    address.host,
                    address.port,
                    self.session.secret,
                    f"worker {address.worker_id.hex()[:12]} at {address.host}:{address.port}",
                )
        except OSError as error:
            log.debug("cannot reach worker %s: %s", address.worker_id.hex(), error)
            return None
        connection.peer = address
        connection.on_close = self._peer_lost
        connection.send(messages.Hello(self.address, self.job_id))
        self._peers[address.worker_id] = connection
        return connection

    def peers(self) -> list[Connection]:
        """The connections to other drivers and workers. Under the lock."""
        return list(self._peers.values())

    def _listen_tcp(self, host: str) -> int:
        """Callers may come before the agent has told us the secret: they wait until `admit`."""
        return self.pump.listen_tcp(host, self._accepted)

    def _accepted(self, connection: Connection) -> None:
        connection.on_close = self._peer_lost

    def _on_hello(self, connection: Connection, message: messages.Hello, _correlation: int) -> None:
        connection.peer = message.address
        self._peers.setdefault(message.address.worker_id, connection)

    def _peer_lost(self, connection: Connection) -> None:
        if self._closing or connection.peer is None:
            return
        worker_id = connection.peer.worker_id
        if self._peers.get(worker_id) is connection:
            del self._peers[worker_id]
        lost: list[Callable[[Connection], None]]
        lost = [self.submitter.connection_lost, self.actors.connection_lost]
        if self.executor is not None:
            lost.append(self.executor.connection_lost)
        for tell in lost:
            try:
                tell(connection)
            except Exception:
                report("telling of a lost process")
        self.functions.caller_lost(connection)
        self.borrowing.peer_lost(worker_id)

    def _agent_lost(self, _connection: Connection) -> None:
        if self._closing:
            return
        if not self.is_driver:
            os._exit(1)  # the node is gone, and this worker with it
        self.pump.failure = exceptions.RaySystemError(
            "The node agent of this cluster died or was stopped: the head is gone. "
            "Bring the cluster up again (clusterctl up, or init()) and rerun the program."
        )
        if self._early is None:
            self.objects.fail_pending(self.pump.failure)
            for waiting in list(self.pending.values()):
                if waiting.stream is not None and not waiting.stream.ended:
                    waiting.stream.end(self.objects.error_value(self.pump.failure))

    # ------------------------------------------------------------ messages

    def _on_message(self, connection: Connection, message: Message, correlation: int) -> None:
        if self._early is not None:
            self._early.append((connection, message, correlation))
            return
        handler = self._handlers.get(message.__class__)
        if handler is None:
            log.error("%s from %s is not understood here", type(message).__name__, connection.name)
            if correlation:
                connection.reply(
                    ErrorReply(ErrorKind.INVALID, "this process does not answer that"), correlation
                )
            return
        handler(connection, message, correlation)

    def _on_done(self, connection: Connection, message: messages.Done, _correlation: int) -> None:
        for index, value in enumerate(message.values):
            if value.offset >= 0:
                self.store.take_over(
                    ids.object_id(message.task_id, index + 1), value.offset, value.size_bytes
                )
        waiting = self.pending.pop(message.task_id, None)
        if waiting is not None:
            waiting.worker = connection.peer
            waiting.done(connection, message)
        elif any(value.nested for value in message.values):
            connection.send(messages.ReleaseHold(message.task_id))

    def _on_stream_item(
        self, connection: Connection, message: messages.StreamItem, _correlation: int
    ) -> None:
        value = message.value
        if value.offset >= 0:
            self.store.take_over(
                ids.object_id(message.task_id, message.index + 2), value.offset, value.size_bytes
            )
        waiting = self.pending.get(message.task_id)
        if waiting is not None:
            waiting.item(connection, message)

    def _on_stream_paused(
        self, connection: Connection, message: messages.StreamPaused, _correlation: int
    ) -> None:
        stream = self.streams.get(message.task_id)
        if stream is not None:
            stream.paused(connection, message)
        else:
            connection.send(messages.StreamConsumed(message.task_id, -1))

    def _on_node_died(self, _connection: Connection, message: node.NodeDied, _correlation: int) -> None:
        for peer in list(self._peers.values()):
            if peer.peer.node_id == message.node_id:
                peer.close()

    def _on_driver_logs(self, _connection: Connection, message: node.DriverLogs, _correlation: int) -> None:
        if self.on_driver_logs is not None:
            self.on_driver_logs(message)

    def drain(self) -> None:
        """Handles references that died; cheap when there are none."""
        if self.released:
            with self.lock:
                self.objects.drain()

    def _before_wait(self) -> float:
        """What is due, and when something will be. At rest, what dies or changes wakes the pump."""
        released = self.released
        if released:
            self.objects.drain()
        now = time.monotonic()
        if now - self._last_tick < TICK_S:
            return TICK_S
        self._last_tick = now
        if self._tick(now):
            return TICK_S
        if self.store.lingers or metrics.changed:
            return WATCH_S
        released.resting = True
        return TICK_S if released else REST_S  # what died just now woke nobody

    def _tick(self, now: float) -> bool:
        """What is done now and then; each part although another one fails. Whether there is something to watch."""
        watches = False
        try:
            self.store.tick(now)
        except Exception:
            report("the store's tick")
        try:
            metrics.tick(self, now)
        except Exception:
            report("the tick of the metrics")
        try:
            watches = self.waiter.tick()
        except Exception:
            report("the tick of waits")
        try:
            watches |= self.submitter.tick(now)
        except Exception:
            report("the submitter's tick")
            watches = True
        return watches

    # ------------------------------------------------------------ the end

    def _unlisten(self) -> None:
        self._closing = True
        self.pump.stop()
        try:
            os.unlink(self._listen_path)
        except FileNotFoundError:
            pass

    def close(self) -> None:
        """Leaves the cluster. The agent notices by the closed socket."""
        with self.lock:
            self.actors.close()
            self.objects.close()
            self.submitter.close()
            self.lineage.close()
            self.functions.close()
            self.pending.clear()
        self.reader.close()
        metrics.end()
        interpreter.restore_switch_interval(self._switch_s)
        self._unlisten()
        self.store.close()
        # Entries are not visited by the garbage collector: what they refer to would never end.
        self.released.clear()
