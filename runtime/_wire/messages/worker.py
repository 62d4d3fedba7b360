"""The hot path: what drivers and workers say to each other, directly. No agent and no control store reads these.

The caller, which submits, connects to the worker; the owner of an object answers questions about it on its own
listener. On one connection messages arrive in order, and the protocol leans on that.
"""

from __future__ import annotations

from .base import Message, Ok, Request, WorkerAddress


class Hello(Message, frozen=True, array_like=True, tag=400):
    """First message on every connection between processes."""

    address: WorkerAddress
    job_id: bytes


class BindLease(Message, frozen=True, array_like=True, tag=401):
    """Caller -> worker before the first push of a lease: what the tasks may use. `gpu_ids`, `other_ids`: see
    `node.LeaseGranted`."""

    lease_id: bytes
    resources: dict[str, int]
    gpu_ids: list[str]
    placement_group_id: bytes = b""
    capture_child_tasks: bool = False
    other_ids: dict[str, list[str]] = {}


class DefineFunction(Message, frozen=True, array_like=True, tag=402):
    """Caller -> worker before the first push of a function on this connection. `key` is the digest of `pickled`."""

    key: bytes
    pickled: bytes
    name: str
    max_calls: int = 0  # the worker ends after this number of calls; 0: no limit


class ForgetFunctions(Message, frozen=True, array_like=True, tag=444):
    """Caller -> worker. Nothing in the caller refers to these functions any more: it pushes them no more on this
    connection, unless it defines them again."""

    keys: list[bytes]


class Value(Message, frozen=True, array_like=True):
    """A serialized value, or where it is.

    kind 0: `data` is the pickle, `buffers` its out-of-band buffers; 1: the same, but the value is an exception to
    raise; 2: in the object store of the nodes `locations`, `size_bytes` long; 3: an exception in the object store.
    `nested` are the references inside: (object id, owner). `offset`, if not -1, in `Done` and `StreamItem` alone: where
    it lies in the shared memory of this node, which pins it there for the caller.
    """

    # Tuples, as most values have none of these: there is one empty tuple, and a new list each time.
    kind: int
    data: bytes = b""
    buffers: tuple[bytes, ...] = ()
    nested: tuple[tuple[bytes, WorkerAddress], ...] = ()
    locations: tuple[bytes, ...] = ()
    size_bytes: int = 0
    offset: int = -1

    @property
    def inline_bytes(self) -> int:
        """How large the part is that travels in messages."""
        return len(self.data) + sum(map(len, self.buffers))


class Argument(Message, frozen=True, array_like=True):
    """An object passed as a top-level argument. `position` >= 0 or `keyword`. Without `value` the executor asks the
    owner."""

    position: int
    keyword: str
    object_id: bytes
    owner: WorkerAddress
    value: Value | None = None


class InlineArguments(Message, frozen=True, array_like=True):
    """Positional arguments whose references stood for small values with no references inside: nothing but the pickles
    is needed of them. `positions` ascend."""

    positions: list[int]
    data: list[bytes]


class StreamOptions(Message, frozen=True, array_like=True):
    """How a generator's values travel. `limit`: the number of unread values at which it pauses (-1: never);
    `objects_per_yield`: the number of objects in each yielded tuple or list; `limit_bytes`: the size of the unread
    values at which it pauses (-1: never)."""

    limit: int = -1
    objects_per_yield: int = 1
    limit_bytes: int = -1


class Push(Message, frozen=True, array_like=True, tag=410):
    """Caller -> worker: run this. Answered by one `Done` (or `Returned`), matched by `task_id`.

    `method`: "" runs the function `key`; "__init__" makes the actor of class `key`; else an actor's method.
    `args` holds the positional and keyword values with None where an `Argument` or one of `inline` goes.
    """

    task_id: bytes  # 24 bytes
    key: bytes
    method: str
    args: Value | None  # None: no arguments
    refs: list[Argument]
    num_returns: int  # -1: a streaming generator; -2: the same, and the result is the list of its references
    caller: WorkerAddress | None = None  # None: the process at the other end of the connection
    attempt: int = 0
    name: str = ""
    sequence: int = -1  # actor calls: position in the caller's order
    concurrency_group: str = ""
    actor: ActorSetup | None = None  # with method "__init__"
    retry_exceptions: bool = False
    stream: StreamOptions | None = None  # None: the defaults
    inline: InlineArguments | None = None
    retry_on: tuple[
        bytes, ...
    ] = ()  # pickled exception classes: `Done.retry` says whether the error is one of them


class ActorSetup(Message, frozen=True, array_like=True):
    """How the worker will run the actor's methods."""

    actor_id: bytes
    max_concurrency: int
    name: str
    namespace: str
    class_name: str
    concurrency_groups: dict[str, int] = {}
    restarts: int = 0
    lease: BindLease | None = None  # filled in by the agent that starts it
    capture_child_tasks: bool = False
    stream_limit: int = -1  # all generators of the actor together pause while so many values are not consumed
    qualified_name: str = ""  # of the class; a class that travels by value forgets it


class Done(Message, frozen=True, array_like=True, tag=411):
    """Worker -> caller. One value per return. `seconds`: time in user code. `failed`: the task raised, and `values`
    holds the error once, or, where a generator gave some of the returns before it raised, those and then the error for
    each of the others. When values nest references the worker keeps them until `ReleaseHold`. `retry`: the error is one
    of `Push.retry_on`; the caller need not rebuild it to know that."""

    task_id: bytes
    values: list[Value]
    seconds: float = 0.0
    failed: bool = False
    retry: bool = False


class Returned(Message, frozen=True, array_like=True, tag=412):
    """Worker -> caller: these were never started (taken back, the worker waits in a nested get, or arguments are lost);
    push them elsewhere. It costs no attempt."""

    task_ids: list[bytes]
    blocked: bool = False  # do not push here before the next Done
    lost: list[ObjectLost] = []  # arguments of the one task that is returned, when no copy of them was found


class TakeBack(Message, frozen=True, array_like=True, tag=413):
    """Caller -> worker: return up to `count` tasks that are queued and not started (answered by `Returned`)."""

    count: int


class Cancel(Message, frozen=True, array_like=True, tag=414):
    """Caller -> worker. Queued: dropped. Running: KeyboardInterrupt, or death with `force`. `Done` follows anyway."""

    task_id: bytes
    force: bool
    recursive: bool


class Retiring(Message, frozen=True, array_like=True, tag=420):
    """Worker -> caller: it has run a function as often as `max_calls` allows, and ends. What the caller has pushed and
    not been answered was never started: push it elsewhere."""


class ReleaseHold(Message, frozen=True, array_like=True, tag=415):
    """Caller -> worker: the references nested in this task's values are registered; stop keeping them. `attempt`: those
    of one try only; -1: of all so far."""

    task_id: bytes
    attempt: int = -1


class ExitActor(Message, frozen=True, array_like=True, tag=416):
    """Agent -> worker: end after the calls that are already here. No answer: the process exits."""


class StreamItem(Message, frozen=True, array_like=True, tag=417):
    """Worker -> caller: the next value of a streaming generator; `Done` ends the stream. `metadata` (MessagePack, b""
    for none) is for who decides what to do with the value without reading it."""

    task_id: bytes
    index: int
    value: Value
    metadata: bytes = b""


class StreamPaused(Message, frozen=True, array_like=True, tag=418):
    """Worker -> caller: a generator waits; tell me (`StreamConsumed`) once more than `consumed` values of this stream
    were taken. The stream may be another one of the actor, and may have ended."""

    task_id: bytes
    consumed: int


class StreamConsumed(Message, frozen=True, array_like=True, tag=419):
    """Caller -> worker: number of values read from the stream; -1: no more are wanted."""

    task_id: bytes
    consumed: int


# ---------------------------------------------------------------- objects: borrower -> owner


class Borrowed(Message, frozen=True, array_like=True, tag=441):
    """`unknown`: those that were freed, or were never owned here."""

    unknown: list[bytes] = []


class BorrowRefs(Message, Request[Borrowed], frozen=True, array_like=True, tag=430):
    """This process now holds references to objects that you own. Ends with `ReturnRefs` or the connection."""

    object_ids: list[bytes]


class ReturnRefs(Message, frozen=True, array_like=True, tag=431):
    object_ids: list[bytes]


class ObjectValue(Message, frozen=True, array_like=True, tag=433):
    value: Value


class GetObject(Message, Request[ObjectValue], frozen=True, array_like=True, tag=432):
    """Answered when the object is ready. LOST when the owner does not know it (any more)."""

    object_id: bytes


class ReadyValues(Message, frozen=True, array_like=True, tag=443):
    """One per object; None for what is not ready, not known, or too much for one message."""

    values: list[Value | None]


class GetReady(Message, Request[ReadyValues], frozen=True, array_like=True, tag=442):
    """The values that are there now, of objects that you own. Answered at once; `GetObject` tells of the others."""

    object_ids: list[bytes]


class ObjectLost(Message, Request[Ok], frozen=True, array_like=True, tag=434):
    """A reader found no copy on `locations`: rebuild it. Answered at once; ask `GetObject` again."""

    object_id: bytes
    locations: list[bytes]


class AddLocation(Message, frozen=True, array_like=True, tag=435):
    """A reader's node holds a copy now."""

    object_id: bytes
    node_id: bytes


class AdoptObject(Message, Request[Ok], frozen=True, array_like=True, tag=436):
    """Own this from now on: I have put it for you, and borrow it. Answered when what it refers to is registered."""

    object_id: bytes
    value: Value


class ForceFree(Message, frozen=True, array_like=True, tag=437):
    """Free the value of an object that you own, although there are references to it."""

    object_id: bytes


class Location(Message, frozen=True, array_like=True):
    """`node_ids`: who has a copy; none for a value that travels in messages. `size_bytes` is -1 without a value."""

    node_ids: list[bytes]
    size_bytes: int


class Locations(Message, frozen=True, array_like=True, tag=438):
    found: list[Location]


class GetLocations(Message, Request[Locations], frozen=True, array_like=True, tag=439):
    """Where objects that you own are, in the same order."""

    object_ids: list[bytes]


class CancelObject(Message, frozen=True, array_like=True, tag=440):
    """Cancel the task or call that makes this object of yours; see `Cancel`. No answer: the object's value tells."""

    object_id: bytes
    force: bool
    recursive: bool
