"""Tasks on their way to workers: arguments, leases, direct pushes, retries, cancellation. The owner's side."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from runtime._core.tasks import TaskState
from runtime._system import interpreter
from runtime._wire.messages.base import ErrorKind, Ok, ResourceRequest, WorkerAddress
from runtime._wire.messages.node import (
    GiveIdleBack,
    LeaseDemand,
    LeaseFailed,
    LeaseGranted,
    LeaseLost,
    LeaseRecall,
    LeaseReturn,
)
from runtime._wire.messages.worker import (
    BindLease,
    Cancel,
    DefineFunction,
    Done,
    Returned,
    StreamOptions,
    TakeBack,
)

from .arguments import fill
from .failures import (
    ArgumentFailed,
    Cancelled,
    CannotSend,
    EnvironmentFailed,
    GroupRemoved,
    NodeDied,
    OutOfMemory,
    TaskFailure,
    Unschedulable,
    WorkerCrashed,
)
from .lease_pool import Lease, LeasePool
from .objects import ObjectTable
from .outbox import Outbox
from .outcomes import Outcomes
from .records import STORED, Link, Submission

REASON_WAIT_S = 1.0
"""How long to wait for the agent's word on why a worker died."""
WORTH_TAKING_BACK_S = 0.002
RESTING_POOLS = 100
"""How many scheduling classes without tasks and workers are kept although no function refers to them."""
REASONS = 1000
"""How many deaths of workers are remembered."""


class Definition(Protocol):
    """A pickled function: what a worker must know of it. See `_owner/functions.py`."""

    key: bytes
    pickled: bytes
    name: str
    full_name: str
    max_calls: int


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
    function: Definition
    options: TaskOptions
    lease: Lease | None = None

    @property
    def function_name(self) -> str:
        return self.function.name


class Unexplained(msgspec.Struct, frozen=True, eq=False):
    """The death of a worker that the agent has not explained. `task`: what waits for the reason, if anything does."""

    deadline: float
    lease_id: bytes
    task: Task | None


class Tasks:
    """All tasks and leases that this process owns."""

    def __init__(
        self, address: WorkerAddress, objects: ObjectTable, outcomes: Outcomes, outbox: Outbox
    ) -> None:
        self._address = address
        self._objects = objects
        self._outcomes = outcomes
        self._pending = outcomes.pending
        self._outbox = outbox
        # Its functions, tasks and leases keep a pool; the last that rest are kept for what they have learned.
        self._pools: WeakValueDictionary[bytes, LeasePool] = WeakValueDictionary()
        self._resting: OrderedDict[LeasePool, None] = OrderedDict()
        self._active: dict[LeasePool, None] = {}  # in order
        self.leases: dict[bytes, Lease] = {}
        self._reasons: dict[bytes, LeaseLost] = {}
        self._unexplained: list[Unexplained] = []
        outcomes.submitters[Task] = self

    # ------------------------------------------------------------ submission

    def pool(self, function: Definition, options: TaskOptions) -> LeasePool:
        """The scheduling class of a function with these options."""
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

    def submit(self, task: Task) -> None:
        """Takes a new task. Its results are promised, its arguments held."""
        self._pending[task.push.task_id] = task
        pool = task.pool
        if task.packed.entries:
            self._await_arguments(task)
        elif pool.queue:  # others wait: no worker has room
            pool.queue.append(task)
            self._ask(pool, pool.demand())
        else:
            pool.queue.append(task)
            self._dispatch(pool)

    def _await_arguments(self, task: Task) -> None:
        self._objects.when_all_ready(task.missing(), lambda: self._ready(task))

    def _ready(self, task: Task) -> None:
        """The values of its top-level references are there: the task can be queued."""
        if task.state is not TaskState.WAITING_FOR_ARGUMENTS:
            return  # cancelled meanwhile
        task.push, error = fill(task.packed, task.push, self._address)
        if error is not None:
            name = task.function.name.rpartition(".")[2]
            self._outcomes.fail(task, ArgumentFailed(error.data, name))
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
        held = _locality(task)
        nearest = max(held, key=held.__getitem__, default=b"")
        if not nearest or held[nearest] <= held.get(self._address.node_id, 0):
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
        locality = _locality(pool.queue[0]) if pool.queue else {}
        self._outbox.agent.send(
            LeaseDemand(
                pool.key, wanted, pool.request, pool.runtime_env, locality, pool.name, not pool.strict
            )
        )

    def _push(self, lease: Lease, task: Task) -> None:
        """Sends a task to a worker that its pool has counted it for."""
        link: Link = lease.connection
        function = task.function
        if function.key not in link.sent_functions:
            link.send(DefineFunction(function.key, function.pickled, function.full_name, function.max_calls))
            link.sent_functions.add(function.key)
        if not lease.inflight:
            lease.last_done = None
        lease.inflight[task.push.task_id] = task
        task.lease = lease
        task.move(TaskState.PUSHED)
        try:
            link.send(task.push)
        except (
            Exception
        ) as error:  # nothing was sent: the worker is free, and the task is what cannot be done
            if lease.inflight.pop(task.push.task_id, None) is not None:
                lease.pool.changed(lease)
                task.lease = None
                self._outcomes.fail(task, CannotSend(f"task {function.name}", str(error)))

    def close(self) -> None:
        """The process leaves the cluster: what is not done never will be."""
        for pool in list(self._pools.values()):
            pool.take_all()
        for lease in self.leases.values():
            lease.inflight.clear()
        self._unexplained.clear()

    # ------------------------------------------------------------ leases

    def on_granted(self, message: LeaseGranted, now: float) -> None:
        """The agent grants a worker."""
        pool = self._pools.get(message.class_key)
        if pool is not None:
            pool.asked = max(0, pool.asked - 1)
        if pool is None or not pool.queue:
            self._outbox.agent.send(LeaseReturn(message.lease_id))
            return
        link = self._outbox.peer(message.worker)
        if link is None:
            self._outbox.agent.send(LeaseReturn(message.lease_id, discard=True))
            pool.asked = 0
            self._dispatch(pool)
            return
        lease = Lease(message.lease_id, message.worker, pool, now)
        lease.connection = link
        pool.add(lease)
        self.leases[lease.lease_id] = lease
        capture = pool.queue[0].options.capture_child_tasks
        link.send(
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

    def on_failed(self, message: LeaseFailed) -> None:
        """No worker of this class will ever be granted."""
        pool = self._pools.get(message.class_key)
        if pool is None:
            return  # nothing waits any more
        pool.asked = 0
        failure: TaskFailure
        if message.kind in (ErrorKind.RUNTIME_ENV, ErrorKind.SETUP_HOOK):
            failure = EnvironmentFailed(message.message)
        elif message.kind == ErrorKind.NOT_FOUND:
            failure = GroupRemoved()
        else:
            failure = Unschedulable(message.message)
        for task in pool.take_all():
            self._outcomes.fail(task, failure)

    def on_lost(self, message: LeaseLost, now: float) -> None:
        """The agent says why a worker died."""
        self._reasons[message.lease_id] = message
        lease = self.leases.get(message.lease_id)
        if lease is not None and message.node_died:
            lease.connection.close()
        for item in [item for item in self._unexplained if item.lease_id == message.lease_id]:
            self._unexplained.remove(item)
            if item.task is not None and item.task.state is TaskState.CRASHED:  # not cancelled meanwhile
                self._crashed(item.task, message)
        if message.lease_id in self.leases:
            # The worker's last words may still be in its socket, before the end.
            self._unexplained.append(Unexplained(now + REASON_WAIT_S, message.lease_id, None))
        while len(self._reasons) > REASONS:
            del self._reasons[next(iter(self._reasons))]

    def link_lost(self, link: Link, now: float) -> None:
        """A worker is gone: its running task lost an attempt, those behind it only time."""
        for lease in [lease for lease in self.leases.values() if lease.connection is link]:
            del self.leases[lease.lease_id]
            lease.pool.remove(lease)
            if lease.lease_id not in self._reasons:
                self._unexplained.append(Unexplained(now + REASON_WAIT_S, lease.lease_id, None))
            tasks = list(lease.inflight.values())
            lease.inflight.clear()
            for task in reversed(tasks[1:]):
                self._give_back(task)
            if tasks:
                self._interrupted(tasks[0], lease, now)
            self._dispatch(lease.pool)

    def _interrupted(self, task: Task, lease: Lease, now: float) -> None:
        task.lease = None
        if task.state is TaskState.CANCELLING:
            self._outcomes.fail(task, Cancelled(task.push.task_id))
            return
        lost = self._reasons.get(lease.lease_id)
        if lost is not None and lost.out_of_memory:
            if task.retries and lost.retry:
                self._again(task, front=True)
            else:
                self._outcomes.fail(task, OutOfMemory(lost.reason))
        elif task.retries:
            task.retries -= task.retries > 0
            self._again(task, front=True)
        elif lost is not None:
            self._crashed(task, lost)
        else:
            task.move(TaskState.CRASHED)
            self._unexplained.append(Unexplained(now + REASON_WAIT_S, lease.lease_id, task))

    def _give_back(self, task: Task) -> None:
        """A worker had it and never started it: first in line, and no attempt is lost."""
        task.lease = None
        if task.state is TaskState.CANCELLING:
            self._outcomes.fail(task, Cancelled(task.push.task_id))
        else:
            task.move(TaskState.QUEUED)
            task.pool.queue.appendleft(task)

    def _crashed(self, task: Task, lost: LeaseLost | None) -> None:
        name = task.function.name
        if lost is not None and lost.node_died:
            self._outcomes.fail(task, NodeDied(name, lost.reason))
        else:
            self._outcomes.fail(task, WorkerCrashed(task.push.task_id, name, lost.reason if lost else ""))

    def _again(self, task: Task, front: bool, seconds: float = 0.0) -> None:
        self._outcomes.begin_attempt(task, seconds)
        task.move(TaskState.QUEUED)
        self._pending[task.push.task_id] = task
        if front:
            task.pool.queue.appendleft(task)
        else:
            task.pool.queue.append(task)
        self._active[task.pool] = None

    # ------------------------------------------------------------ results

    def on_done(self, task: Task, link: Link, message: Done, now: float) -> None:
        """A worker finished a task."""
        lease, pool = task.lease, task.pool
        if lease is not None:
            self._ended(lease, task, now)
            if not message.failed:
                pool.learned(message.seconds)
        if message.failed and task.takes_retry(message):
            self._outcomes.drop_attempt(task, link, message)
            self._again(task, front=False, seconds=message.seconds)
        else:
            self._outcomes.take_nested(task, link, message)
            self._outcomes.settle(task, message.values, message.failed, message.seconds)
        if lease is not None and (pool.once or lease.leaving) and not lease.inflight:
            self._return(lease)
        if pool.queue:
            self._dispatch(pool, lease)
        elif lease is not None:
            pool.changed(lease)
            if not lease.inflight:
                self._rebalance(pool)

    def _ended(self, lease: Lease, task: Task, now: float) -> None:
        """The worker has done with a task, in one way or another."""
        lease.inflight.pop(task.push.task_id, None)
        lease.blocked = False
        lease.last_done = now
        if not lease.inflight:
            lease.idle_since = now
        task.lease = None

    def rerun(self, task: Task) -> None:
        """See `Submitter.rerun`."""
        self._outcomes.begin_attempt(task)
        task.move(TaskState.WAITING_FOR_ARGUMENTS)
        self._pending[task.push.task_id] = task
        self._await_arguments(task)

    # ------------------------------------------------------------ taking back and cancelling

    def on_returned(self, link: Link, message: Returned, now: float) -> None:
        """A worker gives back tasks that it has not started."""
        if message.lost:
            self._on_returned_for_arguments(message, now)
            return
        pools: dict[int, LeasePool] = {}
        for task_id in reversed(message.task_ids):
            task = self._pending.get(task_id)
            if not isinstance(task, Task) or task.lease is None:
                continue
            task.lease.inflight.pop(task_id, None)
            task.lease.pool.changed(task.lease)
            self._give_back(task)
            pools[id(task.pool)] = task.pool
        for lease in list(self.leases.values()):
            if lease.connection is link:
                lease.taking_back = False
                # The task that runs there runs long: nothing more goes there before it is done.
                lease.blocked = bool(lease.inflight)
                lease.pool.changed(lease)
                if lease.leaving and not lease.inflight:
                    self._return(lease)
        for pool in pools.values():
            self._dispatch(pool)

    def _on_returned_for_arguments(self, message: Returned, now: float) -> None:
        """Arguments of a task are lost: it waits until they are made again, and its worker is free meanwhile."""
        task = self._pending.get(message.task_ids[0])
        if not isinstance(task, Task) or task.lease is None:
            return
        lease = task.lease
        pool = lease.pool
        self._ended(lease, task, now)
        if task.state is TaskState.CANCELLING:
            self._outcomes.fail(task, Cancelled(task.push.task_id))
        else:
            task.move(TaskState.WAITING_FOR_ARGUMENTS)
            locations = {argument.object_id: argument.locations for argument in message.lost}
            for entry in task.packed.entries:
                if entry.object_id in locations:
                    self._outbox.copies_lost(entry, locations[entry.object_id])
            self._await_arguments(task)
        if (pool.once or lease.leaving) and not lease.inflight:
            self._return(lease)
        else:
            pool.changed(lease)
        self._dispatch(pool)

    def on_recall(self, message: LeaseRecall) -> None:
        """Others wait for this worker."""
        lease = self.leases.get(message.lease_id)
        if lease is None:
            return  # it is on its way back already
        lease.leaving = True
        lease.pool.changed(lease)
        if not lease.inflight:
            self._return(lease)
            self._dispatch(lease.pool)
        elif len(lease.inflight) > 1 and not lease.taking_back:
            self._take_back(lease, len(lease.inflight) - 1)

    def on_give_idle_back(self, link: Link, message: GiveIdleBack, correlation: int) -> None:
        """Others of our tasks have their arguments on this node, which has no room."""
        for lease in list(self.leases.values()):
            if lease.worker.node_id == message.node_id and not lease.inflight:
                self._return(lease)
        link.reply(Ok(), correlation)

    def _return(self, lease: Lease) -> None:
        """Gives a worker with nothing to do back to the agent."""
        lease.pool.remove(lease)
        del self.leases[lease.lease_id]
        self._outbox.agent.send(LeaseReturn(lease.lease_id))

    def _take_back(self, lease: Lease, count: int) -> None:
        lease.taking_back = True
        lease.connection.send(TakeBack(count))

    def on_retiring(self, link: Link) -> None:
        """A worker ends after its last call; the agent will see it end, and has the lease back with it."""
        for lease in [lease for lease in self.leases.values() if lease.connection is link]:
            del self.leases[lease.lease_id]
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
            self._take_back(fullest, -(-count // 2))

    def tick(self, now: float) -> bool:
        """Takes back what hides behind long tasks, gives idle leases back. True while there is something to watch."""
        for pool in tuple(self._active):
            for lease in pool.stuck(now):
                pool.learned(now - (lease.last_done or now))
                self._take_back(lease, len(lease.inflight) - 1)
            for lease in pool.idle(now):
                self._return(lease)
            self._ask(pool, pool.exact_demand(now))
            if not pool.leases and not pool.queue:
                self._active.pop(pool, None)
                self._rest(pool)
                if pool.asked:
                    pool.asked = 0
                    self._outbox.agent.send(LeaseDemand(pool.key, 0, pool.request, pool.runtime_env))
        for item in [item for item in self._unexplained if item.deadline <= now]:
            self._unexplained.remove(item)
            if item.lease_id in self.leases:  # its socket has not closed by itself: another process holds it
                self.leases[item.lease_id].connection.close()
            elif item.task is None:  # only the connection broke: the worker is of no use, but may live
                self._outbox.agent.send(LeaseReturn(item.lease_id, discard=True))
            elif item.task.state is TaskState.CRASHED:
                self._crashed(item.task, None)
        return bool(self._active or self._unexplained)

    def _rest(self, pool: LeasePool) -> None:
        """It has neither tasks nor workers."""
        self._resting[pool] = None
        self._resting.move_to_end(pool)
        if len(self._resting) > RESTING_POOLS:
            self._resting.popitem(last=False)

    def cancel(self, task: Task, force: bool, recursive: bool) -> None:
        """See `Submitter.cancel`."""
        if not task.may_be_cancelled:
            return
        if task.lease is None:
            if task.state is TaskState.QUEUED:
                task.pool.cancel(task)
            self._outcomes.fail(task, Cancelled(task.push.task_id))
        else:
            task.move(TaskState.CANCELLING)
            task.lease.connection.send(Cancel(task.push.task_id, force, recursive))


def _locality(task: Task) -> dict[bytes, int]:
    """How many bytes of its arguments lie on which node."""
    held: dict[bytes, int] = {}
    for ref in task.push.refs:
        if ref.value is not None and ref.value.kind >= STORED:
            for node_id in ref.value.locations:
                held[node_id] = held.get(node_id, 0) + ref.value.size_bytes
    return held
