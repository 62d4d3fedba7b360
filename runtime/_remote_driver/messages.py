"""What a program and its driver process say to each other. Rules as in `_wire.messages.base`.

`request` numbers what is answered: by an `Answer` of the same number, or by a `Failed`. Objects are named by their ids;
for each that the driver process tells the program of, it keeps a reference until the program has released it as often
(`Release`).
"""

from __future__ import annotations

import msgspec

from runtime._system import settings
from runtime._wire.messages.base import Message, ResourceRequest, WorkerAddress
from runtime._wire.messages.control import ActorSpec
from runtime._wire.messages.node import DriverLogs, Registered
from runtime._wire.messages.worker import ActorSetup, StreamOptions, Value

PROTOCOL = 2
CHUNK_BYTES = 2 << 20
"""Values that do not fit into a message travel in pieces of this size."""
GRACE_S = settings.CLIENT_GRACE_S.get()
"""How long a side waits for the connection to come back. The variable is Ray's; each side reads its own."""


# ---------------------------------------------------------------- before the stream


class Greeting(Message, frozen=True, array_like=True, tag=1):
    """`greeting` is that of `_wire.handshake`; `version` of ours, "" where it is not known."""

    greeting: bytes
    protocol: int
    python: str
    version: str


class GreetReply(Message, frozen=True, array_like=True, tag=2):
    """`proof` shows that the head knows the secret. `python` and `version` are the head's."""

    greeting: bytes
    proof: bytes
    protocol: int
    python: str
    version: str


# ---------------------------------------------------------------- program -> driver process


class Start(Message, frozen=True, array_like=True, tag=10):
    """The first message: the job. Answered by `Started`."""

    request: int
    namespace: str
    entrypoint: str
    job_config: str


class Packed(Message, frozen=True, array_like=True):
    """Packed arguments, see `_owner.arguments.PackedArguments`; `held`: the objects that they refer to."""

    data: bytes
    buffers: tuple[bytes, ...]
    entries: list[bytes]
    places: list[int | str]
    held: list[bytes]


class Define(Message, frozen=True, array_like=True, tag=11):
    """A function in a scheduling class, which `pool` names from now on.
    `retry_exceptions`: a bool, or a pickled tuple of classes."""

    pool: int
    key: bytes
    pickled: bytes
    name: str
    full_name: str
    max_calls: int
    held: list[bytes]
    request: ResourceRequest
    runtime_env: str
    num_returns: int
    max_retries: int
    retry_exceptions: bool | bytes
    task_name: str
    capture_child_tasks: bool
    stream: StreamOptions | None


class Undefine(Message, frozen=True, array_like=True, tag=12):
    """The program has let go of these."""

    pools: list[int]


class Submit(Message, frozen=True, array_like=True, tag=13):
    """Starts a task under the id that the program chose."""

    task_id: bytes
    pool: int
    args: Packed | None


class Create(Message, frozen=True, array_like=True, tag=14):
    """Creates an actor. Answered, by the holder of its name or None, only if `request` is not 0."""

    request: int
    spec: ActorSpec
    setup: ActorSetup
    args: Packed | None
    ordered: bool
    get_if_exists: bool
    closure: list[bytes]


class Call(Message, frozen=True, array_like=True, tag=15):
    """Calls an actor under the id that the program chose. Answered only if `request` is not 0."""

    request: int
    task_id: bytes
    ordered: bool
    method: str
    args: Packed | None
    num_returns: int
    retries: int
    retry_exceptions: bool | bytes
    name: str
    concurrency_group: str
    max_pending: int
    stream: StreamOptions | None


class Put(Message, frozen=True, array_like=True, tag=16):
    """Stores a small value under the id that the program chose, or gives it to the object of an `Own`."""

    object_id: bytes
    data: bytes
    buffers: tuple[bytes, ...]
    nested: list[bytes]
    is_error: bool = False


class Upload(Message, frozen=True, array_like=True, tag=17):
    """A piece of a large value. The first one has offset 0."""

    object_id: bytes
    total_bytes: int
    offset: int
    data: bytes


class PutUploaded(Message, frozen=True, array_like=True, tag=18):
    """Stores what was uploaded: pickle first, then the buffers. Answered by its size in the object store."""

    request: int
    object_id: bytes
    data_bytes: int
    buffer_bytes: list[int]
    nested: list[bytes]


class DropUpload(Message, frozen=True, array_like=True, tag=31):
    """The program has broken off a put. What came of it, the object included, is let go of."""

    object_id: bytes


class Own(Message, frozen=True, array_like=True, tag=19):
    """An object without a value yet; `Put` gives it one."""

    object_id: bytes


class Watch(Message, frozen=True, array_like=True, tag=20):
    """The program wants the values of these: each comes as a `Ready` when it is there."""

    object_ids: list[bytes]


class Fetch(Message, frozen=True, array_like=True, tag=21):
    """A piece of a value in an object store, as it lies there. Answered by bytes. `is_last`: the driver process may
    let go of it."""

    request: int
    object_id: bytes
    offset: int
    size_bytes: int
    is_last: bool


class Next(Message, frozen=True, array_like=True, tag=22):
    """The item of a stream at a position, from 0. Answered by its id, or by None at the end. `takes`: False only looks.

    The program asks for a position again when it broke off its wait for the answer. It asks for the next position only
    when it has the item."""

    request: int
    task_id: bytes
    position: int
    timeout_s: float | None
    takes: bool


class StreamState(Message, frozen=True, array_like=True, tag=23):
    """Answered by (how many items are there from a position on, whether no more will come)."""

    request: int
    task_id: bytes
    position: int


class DropStream(Message, frozen=True, array_like=True, tag=24):
    """The program has let go of the generator."""

    task_id: bytes


class Release(Message, frozen=True, array_like=True, tag=25):
    """The program has let go of these objects: of each, as many references as it was told of."""

    object_ids: list[bytes]
    counts: list[int]


class Ask(Message, frozen=True, array_like=True, tag=26):
    """A request of `_wire.messages` for the node agent. Answered by the encoded reply. `request` 0: one-way."""

    request: int
    frame: bytes
    timeout_s: float | None = None


class Kill(Message, frozen=True, array_like=True, tag=27):
    """See `api.kill`. Answered by None or the text of an error."""

    request: int
    actor_id: bytes
    ordered: bool
    no_restart: bool


class Cancel(Message, frozen=True, array_like=True, tag=28):
    """See `api.cancel`. Answered by None."""

    request: int
    object_id: bytes
    force: bool
    recursive: bool


class Barrier(Message, frozen=True, array_like=True, tag=30):
    """Answered by None, after what was sent before has been handled."""

    request: int


class Leave(Message, frozen=True, array_like=True, tag=29):
    """The program is done. Answered by None, and then the driver process ends."""

    request: int


# ---------------------------------------------------------------- driver process -> program


class Started(Message, frozen=True, array_like=True):
    """The answer to `Start`: who the driver process is."""

    session: Registered
    address: WorkerAddress
    agent_path: str


class Ready(Message, frozen=True, array_like=True, tag=44):
    """A value that was watched for. One that is in an object store is to be fetched; its locations mean nothing."""

    object_id: bytes
    value: Value


class Answer(Message, frozen=True, array_like=True, tag=40):
    """`result` is msgpack of what the request says."""

    request: int
    result: msgspec.Raw


class Failed(Message, frozen=True, array_like=True, tag=41):
    """`error`: the pickled exception."""

    request: int
    error: bytes


class Logs(Message, frozen=True, array_like=True, tag=42):
    """What workers have printed."""

    batch: DriverLogs


class Ended(Message, frozen=True, array_like=True, tag=43):
    """The driver process cannot work any more: `error` is the pickled reason."""

    error: bytes


AnyMessage = (
    Start | Define | Undefine | Submit | Create | Call | Put | Upload | PutUploaded | DropUpload | Own | Watch | Fetch
    | Next | StreamState | DropStream | Release | Ask | Kill | Cancel | Barrier | Leave
    | Answer | Failed | Logs | Ended | Ready
)  # fmt: skip
