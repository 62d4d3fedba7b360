"""The composition of what drivers and workers have in common: the parts of the owner's side, and who handles which
message. `driver` and `worker` add what only they have.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from runtime import exceptions, object_ref
from runtime._core import ids
from runtime._owner.actor_submitter import ActorSubmitter
from runtime._owner.arguments import ArgumentPacker, ArgumentReader
from runtime._owner.call_runner import CallRunner
from runtime._owner.cancellation import Cancellation
from runtime._owner.effects import Effects
from runtime._owner.errors import session_over
from runtime._owner.functions import Functions
from runtime._owner.history import History
from runtime._owner.links import Links
from runtime._owner.object_admin import ObjectAdmin
from runtime._owner.objects import Objects
from runtime._owner.reading import Reader
from runtime._owner.store import Store
from runtime._owner.streaming import Readers
from runtime._owner.submitter import TaskSubmitter
from runtime._owner.task_environment import Environment
from runtime._owner.value_requests import ValueRequests
from runtime._owner.waiting import Waiter
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.calls import Calls
from runtime._ownership.lineage import Lineage
from runtime._ownership.outcomes import Outcomes
from runtime._ownership.released import Released
from runtime._ownership.streams import Streams
from runtime._ownership.tasks import Tasks
from runtime._system import interpreter, settings
from runtime._system.variables import Setting
from runtime._transport.connection import Connection
from runtime._transport.dispatch import Dispatcher, Handlers
from runtime._transport.failures import report
from runtime._transport.pump import REST_S, Pump
from runtime._wire.messages import node
from runtime._wire.messages import worker as messages

from .metrics import metrics

T = TypeVar("T")
TICK_S = 0.01
WATCH_S = 0.1

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


def attached() -> Core:
    """The core of this process, for what has come from a session, such as references: no other one is started for it.

    Raises:
        RaySystemError: the process has left the cluster.
    """
    if _current is None:
        raise session_over()
    return _current


def current_or_none() -> Core | None:
    """The core of this process, if it is connected."""
    return _current


object_ref.belong_to(current, current_or_none)


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
        core.links.abandon(
            exceptions.RaySystemError(
                "This process was forked from one that is connected: call init() here before anything else."
            )
        )
        core.lock = core.links.lock


os.register_at_fork(after_in_child=_forget_parent)


class Core:
    """One connected process.

    Args:
        agent_path: Unix socket of the node agent.
        register: what to say to it; the addresses are filled in.
        worker_id: 28 bytes.
        host: the node's address, where it is known beforehand.
        make_ids: makes the ids of what this process submits and puts, for a job, if they are not its own.

    Raises:
        RaySystemError: the agent is not there or refuses.
    """

    is_remote = False
    """Whether the program is outside of the cluster."""

    def __init__(
        self,
        agent_path: str,
        register: node.Register,
        worker_id: bytes,
        host: str = "",
        make_ids: Callable[[bytes], ids.TaskIds] | None = None,
    ) -> None:
        self._dispatcher = Dispatcher()
        self.pump = pump = Pump(self._dispatcher.dispatch)
        self.is_driver = register.is_driver
        self.forked = False  # this is a child that user code forked, and not the process that was connected
        self.executor: CallRunner | None = None
        """What runs calls here: in a worker, from `start` on."""
        self.before_close: list[Callable[[], object]] = []
        """Called when the process is about to leave the cluster. What they raise is logged."""
        self.links = links = Links(pump, agent_path, register, worker_id, host, self._agent_lost)
        self.lock = links.lock
        self.agent, self.address, self.session = links.agent, links.address, links.session
        self.wait, self.check, self.peer = links.wait, links.check, links.peer
        self.ask, self.call_agent = links.ask, links.call_agent
        session = self.session
        self.job_id = session.job_id
        self.job_settings: dict[str, Any] = json.loads(session.job_config or "{}")
        self.environment = Environment(session.job_config, session.runtime_env)
        if make_ids is None and self.setting(settings.CREATION_SITES):
            from runtime._owner.creation_sites import SiteIds  # few processes want it

            make_ids = SiteIds
        self.ids = (make_ids or ids.TaskIds)(self.job_id)
        self._last_tick = 0.0
        self._switch_s: float | None = None
        self.released = released = Released(pump.wake)
        self.store = store = Store(
            links, released, self.drain, session.store_path, session.store_capacity_bytes
        )
        self.functions = Functions(links, released)
        effects = Effects(links)
        self.objects = objects = Objects(links, released, self.ids, store, effects)
        self.borrowing = borrowing = Borrowing(objects, released, effects)
        self.streams = Streams(objects, borrowing, effects)
        readers = Readers(links, released, objects)
        self.value_requests = ValueRequests(links, objects, borrowing, store)
        lineage_bytes = self.setting(settings.MAX_LINEAGE_BYTES)
        self.lineage = lineage = Lineage(objects, effects, lineage_bytes)
        self.outcomes = outcomes = Outcomes(objects, borrowing, lineage, effects)
        self.object_admin = ObjectAdmin(links, self.ids, objects, borrowing, store, lineage)
        self.reader = reader = Reader(
            links, released, objects, borrowing, store, self.value_requests, lineage
        )
        self.waiter = Waiter(links, released, objects, store, self.value_requests, reader)
        self.arguments = ArgumentPacker(links, objects, store)
        self.argument_reader = ArgumentReader(links, released, objects, borrowing, reader)
        self.history = History(
            links,
            self.is_driver,
            objects.table.entries,
            outcomes.pending,
            reader,
            self._running_tasks,
            objects.call_site,
        )
        self.tasks = Tasks(self.address, objects, outcomes, effects)
        effects.attach(objects, store, self.value_requests, self.arguments, reader, self.history.ended)
        self.actor_calls = Calls(self.address, objects, outcomes, effects)
        self.submitter = TaskSubmitter(
            links, self.ids, objects, self.arguments, self.functions, self.streams, readers, self.tasks
        )
        self.actors = ActorSubmitter(
            links, self.ids, objects, borrowing, self.arguments, self.streams, readers, self.actor_calls
        )
        self.cancellation = Cancellation(links, outcomes)
        pump.on_wait = self._before_wait
        metrics.on_change = pump.wake

    def _handlers(self) -> Handlers:
        """What every driver and worker is told."""
        return {
            messages.Hello: self.links.on_hello,
            messages.Done: self._on_done,
            messages.Returned: self._on_returned,
            messages.Retiring: lambda worker, _, __: self.tasks.on_retiring(worker),
            messages.StreamItem: self._on_stream_item,
            messages.StreamPaused: self.streams.on_paused,
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
            node.LeaseGranted: lambda _, message, __: self.tasks.on_granted(message, time.monotonic()),
            node.LeaseFailed: lambda _, message, __: self.tasks.on_failed(message),
            node.LeaseLost: lambda _, message, __: self.tasks.on_lost(message, time.monotonic()),
            node.GiveIdleBack: self.tasks.on_give_idle_back,
            node.LeaseRecall: lambda _, message, __: self.tasks.on_recall(message),
            node.ListState: self.history.on_list,
            node.NodeDied: self.links.on_node_died,
        }

    def setting(self, setting: Setting[T]) -> T:
        """The value in this process's environment, else in its node's `_system_config`."""
        return setting.get_or_default(self.session.settings)

    def start(self, handlers: Handlers, executor: CallRunner | None = None) -> None:
        """Begins to serve, in the background as well.

        Args:
            handlers: for the messages that only drivers, or only workers, get.
            executor: a worker's.
        """
        with self.lock:
            self.executor = self.links.lending = executor
            self.links.on_peer_lost = (
                lambda link: self.tasks.link_lost(link, time.monotonic()),
                self.actor_calls.link_lost,
                *([executor.connection_lost] if executor is not None else []),
                self.functions.caller_lost,
                self._peer_lost,
            )
            self._dispatcher.serve({**self._handlers(), **handlers})
        self.pump.start()
        self._switch_s = interpreter.shorten_switch_interval()

    def _running_tasks(self) -> Iterable[tuple[bytes, bool]]:
        return self.executor.running_tasks() if self.executor is not None else ()

    def _peer_lost(self, connection: Connection) -> None:
        self.borrowing.peer_lost(connection.peer.worker_id)

    def _agent_lost(self) -> None:
        if not self.is_driver:
            os._exit(1)  # the node is gone, and this worker with it
        self.pump.failure = exceptions.RaySystemError(
            "The node agent of this cluster died or was stopped: the head is gone. "
            "Bring the cluster up again (clusterctl up, or init()) and rerun the program."
        )
        if self._dispatcher.serves:
            self.objects.fail_pending(self.pump.failure)
            for waiting in list(self.outcomes.pending.values()):
                if waiting.stream is not None and not waiting.stream.ended:
                    waiting.stream.end(self.objects.error_value(self.pump.failure))

    # ------------------------------------------------------------ messages

    def _on_done(self, connection: Connection, message: messages.Done, _correlation: int) -> None:
        for index, value in enumerate(message.values):
            if value.offset >= 0:
                self.store.take_over(
                    ids.object_id(message.task_id, index + 1), value.offset, value.size_bytes
                )
        self.outcomes.on_done(connection, message, time.monotonic())

    def _on_returned(self, connection: Connection, message: messages.Returned, _correlation: int) -> None:
        self.tasks.on_returned(connection, message, time.monotonic())

    def _on_stream_item(
        self, connection: Connection, message: messages.StreamItem, _correlation: int
    ) -> None:
        value = message.value
        if value.offset >= 0:
            self.store.take_over(
                ids.object_id(message.task_id, message.index + 2), value.offset, value.size_bytes
            )
        self.outcomes.on_item(connection, message)

    # ------------------------------------------------------------ upkeep

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
        if self.store.lingers or metrics.changed or self.history.has_news:
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
            metrics.tick(self.agent, now)
        except Exception:
            report("the tick of the metrics")
        try:
            self.history.tick(self.agent, now)
        except Exception:
            report("the tick of the history")
        try:
            watches = self.waiter.tick()
        except Exception:
            report("the tick of waits")
        try:
            watches |= self.tasks.tick(now)
        except Exception:
            report("the submitter's tick")
            watches = True
        return watches

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Leaves the cluster. The agent notices by the closed socket."""
        for callback in self.before_close:
            try:
                callback()
            except Exception:
                report("a library that is told of the end")
        with self.lock:
            self.actor_calls.close()
            self.objects.close()
            self.tasks.close()
            self.lineage.close()
            self.functions.close()
            self.outcomes.pending.clear()
        self.reader.close()
        metrics.end()
        interpreter.restore_switch_interval(self._switch_s)
        self.links.close()
        self.store.close()
        # Entries are not visited by the garbage collector: what they refer to would never end.
        self.released.clear()
