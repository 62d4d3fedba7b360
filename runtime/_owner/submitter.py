"""Tasks on their way to workers: dependencies, leases, direct pushes, retries, cancellation. The owner's side.

Every method but `submit` and `cancel` runs under the pump's lock.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._core.lease_pool import Lease, LeasePool
from runtime._core.tasks import TaskState
from runtime._ownership.records import NO_ARGUMENTS, STORED
from runtime._system import interpreter
from runtime._transport.connection import Connection
from runtime._wire.messages.base import ErrorKind, ResourceRequest
from runtime._wire.messages.node import (
    LeaseDemand,
    LeaseFailed,
    LeaseGranted,
    LeaseLost,
    LeaseRecall,
    LeaseReturn,
    LeaseWaiting,
)
from runtime._wire.messages.worker import (
    BindLease,
    Cancel,
    DefineFunction,
    Done,
    Push,
    Retiring,
    Returned,
    StreamOptions,
    TakeBack,
)

from .actor_calls import Call
from .lost_arguments import take_for_lost
from .submission import NO_REFERENCES, Submission, cannot_send, parent, pickled_classes

if TYPE_CHECKING:
    from runtime._process.core_worker import Core
    from runtime.object_ref import ObjectRef
    from runtime.object_ref_generator import ObjectRefGenerator

    from .functions import Function

log = logging.getLogger("runtime")
REASON_WAIT_S = 1.0
"""How long to wait for the agent's word on why a worker died."""
WORTH_TAKING_BACK_S = 0.002
RESTING_POOLS = 100
"""How many scheduling classes without tasks and workers are kept although no function refers to them."""


class TaskOptions(msgspec.Struct, frozen=True):
    """What the owner needs to know of a task besides its function and arguments."""

    request: ResourceRequest
    runtime_env: str = ""
    num_returns: int = 1  # see Push
    max_retries: int = 3
    retry_exceptions: bool | tuple[type[BaseException], ...] = False
    name: str = ""
    capture_child_tasks: bool = False
    stream: StreamOptions | None = None


class Task(Submission, eq=False, gc=interpreter.TRACK_RECORDS, kw_only=True):
    """One call of a remote function."""

    pool: LeasePool
    function: Function
    options: TaskOptions
    lease: Lease | None = None

    @property
    def function_name(self) -> str:
        return self.function.name

    def done(self, connection: Connection, message: Done) -> None:
        self.core.submitter.on_done(self, connection, message)

    def rerun(self) -> None:
        self.core.submitter.rerun(self)


class TaskSubmitter:
    """All tasks and leases that this process owns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # Its functions, tasks and leases keep a pool; the last that rest are kept for what they have learned.
        self._pools: WeakValueDictionary[bytes, LeasePool] = WeakValueDictionary()
        self._resting: OrderedDict[LeasePool, None] = OrderedDict()
        self._active: dict[LeasePool, None] = {}  # in order
        self._leases: dict[bytes, Lease] = {}
        self._reasons: dict[bytes, LeaseLost] = {}
        self._unexplained: list[tuple[float, bytes, Task | None]] = []  # deadline, lease id

    # ------------------------------------------------------------ submission

    def pool(self, function: Function, options: TaskOptions) -> LeasePool:
        """The scheduling class of a function with these options."""
        self._core.functions.use(function)
        strict = options.max_retries == 0
        described = msgspec.msgpack.encode(
            (function.key, options.request, options.runtime_env, options.capture_child_tasks, strict)
        )
        key = hashlib.sha256(described).digest()[:16]
        pool = self._pools.get(key)
        if pool is None:
            once = options.request.strategy.kind == "SPREAD"
            pool = LeasePool(key, options.request, options.runtime_env, function.name, strict, once)
            self._pools[key] = pool
        return pool

    def submit(
        self,
        pool: LeasePool,
        function: Function,
        options: TaskOptions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
        """Starts a task; returns at once what the user gets for its results.

        Raises:
            RaySystemError: the node agent is gone.
        """
        core = self._core
        core.check()
        packed = core.arguments.pack(function.name, args, kwargs) if args or kwargs else NO_ARGUMENTS
        retried = options.retry_exceptions
        with core.lock:
            task_id = core.ids.task()
            task = Task(
                packed,
                Push(
                    task_id,
                    function.key,
                    "",
                    packed.value,
                    NO_REFERENCES,
                    options.num_returns,
                    None,
                    0,
                    options.name,
                    stream=options.stream,
                    retry_on=() if retried.__class__ is bool else pickled_classes(retried),
                ),
                options.max_retries,
                options.max_retries,
                options.retry_exceptions,
                time.time(),
                parent(),
                TaskState.WAITING_FOR_ARGUMENTS if packed.entries else TaskState.QUEUED,
                core=core,
                pool=pool,
                function=function,
                options=options,
            )
            result = task.promise()
            core.pending[task_id] = task
            if packed.entries:
                core.objects.when_all_ready(task.missing(), lambda: self._ready(task))
            elif pool.queue:  # others wait: no worker has room
                pool.queue.append(task)
                self._ask(pool, pool.demand())
            else:
                pool.queue.append(task)
                self._dispatch(pool)
        return result

    def _ready(self, task: Task) -> None:
        """The values of its top-level references are there: the task can be queued."""
        if task.state is not TaskState.WAITING_FOR_ARGUMENTS:
            return  # cancelled meanwhile
        task.push, error = self._core.arguments.fill(task.packed, task.push)
        if error is not None:
            self._core.pending.pop(task.push.task_id, None)
            failed = self._core.arguments.not_computed(task.function.name.rpartition(".")[2], error)
            task.settle([failed], failed=True)
            return
        task.pool = self._pool_near(task)
        task.move(TaskState.QUEUED)
        task.pool.queue.append(task)
        self._dispatch(task.pool)

    def _pool_near(self, task: Task) -> LeasePool:
        """Tasks whose arguments are on another node are a class of their own: they need workers there."""
        pool = task.pool
        if pool.request.strategy.kind != "DEFAULT" or pool.request.placement_group_id:
            return pool
        held = self._locality(task)
        nearest = max(held, key=held.__getitem__, default=b"")
        here = self._core.address.node_id
        if not nearest or held[nearest] <= held.get(here, 0):
            return pool
        key = hashlib.sha256(pool.key + nearest).digest()[:16]
        near = self._pools.get(key)
        if near is None:
            near = self._pools[key] = pool.copy(key)
        return near

    def _dispatch(self, pool: LeasePool, freed: Lease | None = None) -> None:
        """Pushes what there is room for, and asks for more workers if some remains. `freed`: a worker that has just
        ended a task, which its pool does not know yet."""
        queue = pool.queue
        while queue:
            lease = freed if freed is not None and pool.refills(freed) else pool.take()
            freed = None
            if lease is None:
                break
            task = queue.popleft()
            if pool.cancelled_count:
                pool.drop_cancelled()
            self._push(lease, task)
        self._active[pool] = None
        self._ask(pool, pool.demand())

    def _ask(self, pool: LeasePool, wanted: int | None) -> None:
        """Tells the agent how many more workers are wanted, unless it knows."""
        if wanted is None:
            return
        locality = self._locality(pool.queue[0]) if pool.queue else {}
        self._core.agent.send(
            LeaseDemand(
                pool.key,
                wanted,
                pool.request,
                pool.runtime_env,
                locality,
                pool.name,
                not pool.strict,
            )
        )

    def _locality(self, task: Task) -> dict[bytes, int]:
        held: dict[bytes, int] = {}
        for ref in task.push.refs:
            if ref.value is not None and ref.value.kind >= STORED:
                for node_id in ref.value.locations:
                    held[node_id] = held.get(node_id, 0) + ref.value.size_bytes
        return held

    def _push(self, lease: Lease, task: Task) -> None:
        """Sends a task to a worker that its pool has counted it for."""
        connection: Connection = lease.connection
        function = task.function
        if function.key not in connection.sent_functions:
            connection.send(
                DefineFunction(function.key, function.pickled, function.full_name, function.max_calls)
            )
            connection.sent_functions.add(function.key)
        if not lease.inflight:
            lease.last_done = time.monotonic()
        lease.inflight[task.push.task_id] = task
        task.lease = lease
        task.move(TaskState.PUSHED)
        try:
            connection.send(task.push)
        except (
            Exception
        ) as error:  # nothing was sent: the worker is free, and the task is what cannot be done
            if lease.inflight.pop(task.push.task_id, None) is not None:
                lease.pool.changed(lease)
                task.lease = None
                self._fail(task, cannot_send(f"task {function.name}", error))

    def close(self) -> None:
        """The process leaves the cluster: what is not done never will be."""
        for pool in list(self._pools.values()):
            pool.take_all()
        for lease in self._leases.values():
            lease.inflight.clear()
        self._unexplained.clear()

    # ------------------------------------------------------------ leases

    def on_granted(self, _connection: Connection, message: LeaseGranted, _correlation: int) -> None:
        pool = self._pools.get(message.class_key)
        if pool is not None:
            pool.asked = max(0, pool.asked - 1)
        if pool is None or not pool.queue:
            self._core.agent.send(LeaseReturn(message.lease_id))
            return
        connection = self._core.peer(message.worker)
        if connection is None:
            self._core.agent.send(LeaseReturn(message.lease_id, discard=True))
            pool.asked = 0
            self._dispatch(pool)
            return
        lease = Lease(message.lease_id, message.worker, pool, time.monotonic())
        lease.connection = connection
        pool.add(lease)
        self._leases[lease.lease_id] = lease
        capture = pool.queue[0].options.capture_child_tasks
        connection.send(
            BindLease(
                lease.lease_id,
                message.resources,
                message.gpu_ids,
                pool.request.placement_group_id,
                capture,
                message.other_ids,
            )
        )
        self._dispatch(pool)

    def on_failed(self, _connection: Connection, message: LeaseFailed, _correlation: int) -> None:
        pool = self._pools.get(message.class_key)
        if pool is None:
            return  # nothing waits any more
        pool.asked = 0
        error: exceptions.RayError
        if message.kind in (ErrorKind.RUNTIME_ENV, ErrorKind.SETUP_HOOK):
            error = exceptions.RuntimeEnvSetupError(message.message)
        elif message.kind == ErrorKind.NOT_FOUND:
            error = exceptions.TaskPlacementGroupRemoved()
        else:
            error = exceptions.TaskUnschedulableError(message.message)
        for task in pool.take_all():
            self._fail(task, error)

    def on_waiting(self, _connection: Connection, message: LeaseWaiting, _correlation: int) -> None:
        pool = self._pools.get(message.class_key)
        if pool is not None and self._core.is_driver:
            log.warning("%d task(s) of %s wait: %s", pool.waiting, pool.name, message.message)

    def on_lost(self, _connection: Connection, message: LeaseLost, _correlation: int) -> None:
        self._reasons[message.lease_id] = message
        lease = self._leases.get(message.lease_id)
        if lease is not None and message.node_died:
            lease.connection.close()
        for item in [item for item in self._unexplained if item[1] == message.lease_id]:
            self._unexplained.remove(item)
            if item[2] is not None and item[2].state is TaskState.CRASHED:  # not cancelled meanwhile
                self._crashed(item[2], message)
        if (
            message.lease_id in self._leases
        ):  # the worker's last words may still be in its socket, before the end
            self._unexplained.append((time.monotonic() + REASON_WAIT_S, message.lease_id, None))
        while len(self._reasons) > 1000:
            del self._reasons[next(iter(self._reasons))]

    def connection_lost(self, connection: Connection) -> None:
        """A worker is gone: its running task lost an attempt, those behind it only time."""
        for lease in [lease for lease in self._leases.values() if lease.connection is connection]:
            del self._leases[lease.lease_id]
            lease.pool.remove(lease)
            if lease.lease_id not in self._reasons:
                self._unexplained.append((time.monotonic() + REASON_WAIT_S, lease.lease_id, None))
            tasks = list(lease.inflight.values())
            lease.inflight.clear()
            for task in reversed(tasks[1:]):
                self._give_back(task)
            if tasks:
                self._interrupted(tasks[0], lease)
            self._dispatch(lease.pool)

    def _interrupted(self, task: Task, lease: Lease) -> None:
        task.lease = None
        if task.state is TaskState.CANCELLING:
            self._fail(task, exceptions.TaskCancelledError(ids.TaskID(task.push.task_id)))
            return
        lost = self._reasons.get(lease.lease_id)
        if lost is not None and lost.out_of_memory:
            if task.retries and lost.retry:
                self._again(task, front=True)
            else:
                self._fail(task, exceptions.OutOfMemoryError(lost.reason))
        elif task.retries:
            task.retries -= task.retries > 0
            self._again(task, front=True)
        elif lost is not None:
            self._crashed(task, lost)
        else:
            task.move(TaskState.CRASHED)
            self._unexplained.append((time.monotonic() + REASON_WAIT_S, lease.lease_id, task))

    def _give_back(self, task: Task) -> None:
        """A worker had it and never started it: first in line, and no attempt is lost."""
        task.lease = None
        if task.state is TaskState.CANCELLING:
            self._fail(task, exceptions.TaskCancelledError(ids.TaskID(task.push.task_id)))
        else:
            task.move(TaskState.QUEUED)
            task.pool.queue.appendleft(task)

    def _crashed(self, task: Task, lost: LeaseLost | None) -> None:
        if lost is not None and lost.node_died:
            self._fail(task, exceptions.NodeDiedError(f"Task {task.function.name} failed: {lost.reason}"))
        else:
            self._fail(task, _worker_crashed(lost.reason if lost else "", task))

    def _again(self, task: Task, front: bool, seconds: float = 0.0) -> None:
        task.begin_attempt(seconds)
        task.move(TaskState.QUEUED)
        self._core.pending[task.push.task_id] = task
        if front:
            task.pool.queue.appendleft(task)
        else:
            task.pool.queue.append(task)
        self._active[task.pool] = None

    # ------------------------------------------------------------ results

    def on_done(self, task: Task, connection: Connection, message: Done) -> None:
        """A worker finished a task."""
        lease, pool = task.lease, task.pool
        if lease is not None:
            lease.inflight.pop(message.task_id, None)
            lease.blocked = False
            lease.last_done = now = time.monotonic()
            if not lease.inflight:
                lease.idle_since = now
            if not message.failed:
                pool.learned(message.seconds)
            task.lease = None
        if message.failed and task.takes_retry(message):
            self._again(task, front=False, seconds=message.seconds)
        else:
            task.take_nested(connection, message)
            task.settle(message.values, message.failed, message.seconds)
        if lease is not None and (pool.once or lease.leaving) and not lease.inflight:
            self._return(lease)
        if pool.queue:
            self._dispatch(pool, lease)
        elif lease is not None:
            pool.changed(lease)
            if not lease.inflight:
                self._rebalance(pool)

    def _fail(self, task: Task, error: exceptions.RayError) -> None:
        self._core.pending.pop(task.push.task_id, None)
        task.settle([self._core.objects.error_value(error)], failed=True)

    def rerun(self, task: Task) -> None:
        """See `Submission.rerun`."""
        task.begin_attempt()
        task.move(TaskState.WAITING_FOR_ARGUMENTS)
        self._core.pending[task.push.task_id] = task
        self._core.objects.when_all_ready(task.missing(), lambda: self._ready(task))

    # ------------------------------------------------------------ taking back and cancelling

    def on_returned(self, connection: Connection, message: Returned, _correlation: int) -> None:
        if message.lost:
            self._on_returned_for_arguments(message)
            return
        pools: dict[int, LeasePool] = {}
        for task_id in reversed(message.task_ids):
            task = self._core.pending.get(task_id)
            if not isinstance(task, Task) or task.lease is None:
                continue
            task.lease.inflight.pop(task_id, None)
            task.lease.pool.changed(task.lease)
            self._give_back(task)
            pools[id(task.pool)] = task.pool
        for lease in list(self._leases.values()):
            if lease.connection is connection:
                lease.taking_back = False
                # Whatever runs there runs long: nothing more goes there before it is done.
                lease.blocked = bool(lease.inflight)
                lease.pool.changed(lease)
                if lease.leaving and not lease.inflight:
                    self._return(lease)
        for pool in pools.values():
            self._dispatch(pool)

    def _on_returned_for_arguments(self, message: Returned) -> None:
        """Arguments of a task are lost: it waits until they are made again, and its worker is free meanwhile."""
        task = self._core.pending.get(message.task_ids[0])
        if not isinstance(task, Task) or task.lease is None:
            return
        lease, task.lease = task.lease, None
        pool = lease.pool
        lease.inflight.pop(task.push.task_id, None)
        lease.blocked = False
        lease.last_done = now = time.monotonic()
        if not lease.inflight:
            lease.idle_since = now
        if task.state is TaskState.CANCELLING:
            self._fail(task, exceptions.TaskCancelledError(ids.TaskID(task.push.task_id)))
        else:
            task.move(TaskState.WAITING_FOR_ARGUMENTS)
            take_for_lost(self._core, task, message.lost)
            self._core.objects.when_all_ready(task.missing(), lambda: self._ready(task))
        if (pool.once or lease.leaving) and not lease.inflight:
            self._return(lease)
        else:
            pool.changed(lease)
        self._dispatch(pool)

    def on_recall(self, _connection: Connection, message: LeaseRecall, _correlation: int) -> None:
        """Others wait for this worker."""
        lease = self._leases.get(message.lease_id)
        if lease is None:
            return  # it is on its way back already
        lease.leaving = True
        lease.pool.changed(lease)
        if not lease.inflight:
            self._return(lease)
            self._dispatch(lease.pool)
        elif len(lease.inflight) > 1 and not lease.taking_back:
            lease.taking_back = True
            lease.connection.send(TakeBack(len(lease.inflight) - 1))

    def _return(self, lease: Lease) -> None:
        """Gives a worker with nothing to do back to the agent."""
        lease.pool.remove(lease)
        del self._leases[lease.lease_id]
        self._core.agent.send(LeaseReturn(lease.lease_id))

    def on_retiring(self, connection: Connection, _message: Retiring, _correlation: int) -> None:
        """A worker ends after its last call; the agent will see it end, and has the lease back with it."""
        for lease in [lease for lease in self._leases.values() if lease.connection is connection]:
            del self._leases[lease.lease_id]
            lease.pool.remove(lease)
            tasks = list(lease.inflight.values())
            lease.inflight.clear()
            for task in reversed(tasks):
                self._give_back(task)
            self._dispatch(lease.pool)

    def _rebalance(self, pool: LeasePool) -> None:
        """A worker has nothing to do: take queued tasks back from the one that has most."""
        if len(pool.leases) < 2:
            return
        fullest = pool.fullest()
        if fullest is None:
            return
        count = len(fullest.inflight) - 1
        if count > 0 and not fullest.taking_back and count * (pool.average_s or 0.0) > WORTH_TAKING_BACK_S:
            fullest.taking_back = True
            fullest.connection.send(TakeBack(-(-count // 2)))

    def tick(self, now: float) -> bool:
        """Takes back what hides behind long tasks, gives idle leases back. True while there is something to watch."""
        for pool in tuple(self._active):
            for lease in pool.stuck(now):
                lease.taking_back = True
                pool.learned(now - lease.last_done)
                lease.connection.send(TakeBack(len(lease.inflight) - 1))
            for lease in pool.idle(now):
                self._return(lease)
            self._ask(pool, pool.exact_demand(now))
            if not pool.leases and not pool.queue:
                self._active.pop(pool, None)
                self._rest(pool)
                if pool.asked:
                    pool.asked = 0
                    self._core.agent.send(LeaseDemand(pool.key, 0, pool.request, pool.runtime_env))
        if self._unexplained:
            for item in [item for item in self._unexplained if item[0] <= now]:
                self._unexplained.remove(item)
                if item[1] in self._leases:  # its socket has not closed by itself: another process holds it
                    self._leases[item[1]].connection.close()
                elif item[2] is None:  # only the connection broke: the worker is of no use, but may live
                    self._core.agent.send(LeaseReturn(item[1], discard=True))
                elif item[2].state is TaskState.CRASHED:
                    self._crashed(item[2], None)
        return bool(self._active or self._unexplained)

    def _rest(self, pool: LeasePool) -> None:
        """It has neither tasks nor workers."""
        self._resting[pool] = None
        self._resting.move_to_end(pool)
        if len(self._resting) > RESTING_POOLS:
            self._resting.popitem(last=False)

    def cancel(self, task: Task, force: bool, recursive: bool) -> None:
        """Cancels a task wherever it is. A finished one stays as it is. Under the lock."""
        if not task.may_be_cancelled:
            return
        if task.lease is None:
            if task.state is TaskState.QUEUED:
                task.pool.cancel(task)
            self._fail(task, exceptions.TaskCancelledError(ids.TaskID(task.push.task_id)))
        else:
            task.move(TaskState.CANCELLING)
            task.lease.connection.send(Cancel(task.push.task_id, force, recursive))

    def cancel_children(self, parent: bytes, force: bool) -> None:
        """Cancels what a cancelled task had submitted. Under the lock."""
        for child in [child for child in self._core.pending.values() if child.parent == parent]:
            if isinstance(child, Task):
                self.cancel(child, force, True)
            elif isinstance(child, Call):
                self._core.actors.cancel(child, True)


def _worker_crashed(reason: str, task: Task) -> exceptions.WorkerCrashedError:
    error = exceptions.WorkerCrashedError()
    error.add_note(
        f"Task {task.function.name} ({task.push.task_id.hex()}): {reason or 'its worker is gone'}."
    )
    return error
