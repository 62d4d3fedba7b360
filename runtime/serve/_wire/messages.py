"""Messages between the callers of a deployment (ingress, handles) and its replicas.

A caller connects to every replica of a deployment that it calls and says `Hello`. A request needs a *slot* of a
replica: a replica has `max_ongoing_requests` of them and lends them out, so requests wait with their callers and never
inside a replica. `Want` asks for slots, `Grant` lends them, `Recall` asks for those that are not used, `Return` gives
them back. A slot that is lent is used by one request at a time; the last message of a request (`Result`, `Failure`,
`End`, or a `Chunk` of the response without `more`) says with `keep` whether the caller keeps the slot for its next one.

Requests are numbered by their caller, per connection. All integers fit in 32 bits, all sizes are bytes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

VERSION = 1
WINDOW_BYTES = 1 << 20
"""How many bytes of chunks, items or events a side sends before it waits for a `Window` of the other."""
ACKNOWLEDGE_BYTES = WINDOW_BYTES // 4
"""After so many used bytes the receiver sends a `Window`."""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all."""


class Meta(Message, frozen=True):
    """What travels with a request.

    Attributes:
        request_id: as in logs and the header x-request-id.
        app: the application that was asked first.
        route: its path, or "" for handles.
        model_id: of a multiplexed request, else "".
        deadline_s: when its caller gives up, in seconds from the sending; 0 for never.
        trace: headers of a trace.
        session_id: requests with the same one belong together, for routers that care; else "".
    """

    request_id: str
    app: str = ""
    route: str = ""
    model_id: str = ""
    deadline_s: float = 0.0
    trace: dict[str, str] = {}
    session_id: str = ""


# ---------------------------------------------------------------- from callers


class Hello(Message, frozen=True, tag=1):
    """The first message. A replica closes the connection of a caller with the wrong token.

    Attributes:
        token: of the replica, from its `Target`.
        caller: names the calling process in logs and statistics.
    """

    version: int
    token: bytes
    caller: str


class Want(Message, frozen=True, tag=2):
    """How many requests wait there for a slot of this replica; it replaces what was said before. 0: none any more."""

    waiting: int


class Return(Message, frozen=True, tag=3):
    """Gives slots back that no request uses."""

    slots: int


class Call(Message, frozen=True, tag=4):
    """A call by a handle: `body` is `(args, kwargs)`, see `values`. Answered by `Result` or `Failure`; with `stream`,
    by any number of `Item` and then `End` or `Failure`.

    Attributes:
        context: of a gRPC request: a `RayServegRPCContext`, see `runtime.serve.grpc_util`. The method gets it as
            `grpc_context` if it has such a parameter, and what it changed comes back as `context` of the last message.
            The body of a `Result` or an `Item` is then the serialized protobuf message.
        inputs: the method gets a `gRPCInputStream` as its only argument, and `body` is empty. The values of that come
            as `Chunk` messages, each one the pickle of a message; the last chunk is empty.
    """

    number: int
    method: str
    meta: Meta
    body: bytes
    stream: bool = False
    context: bytes = b""
    inputs: bool = False


class Http(Message, frozen=True, tag=5):
    """An HTTP request or the opening of a WebSocket, as in an ASGI scope. Answered by `Start` and `Chunk`, or by a
    `Failure`.

    Attributes:
        kind: "http" or "websocket".
        root_path: the prefix of the route, which `path` begins with.
        body: the beginning of the body; `more` tells whether `Chunk` messages follow.
    """

    number: int
    meta: Meta
    kind: str
    method: str
    scheme: str
    http_version: str
    path: str
    raw_path: bytes
    query: bytes
    root_path: str
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    body: bytes
    more: bool
    subprotocols: list[str] = []


class Cancel(Message, frozen=True, tag=6):
    """Nobody waits for the request any more: its code is to be cancelled. It is still answered, by a `Failure` at
    least."""

    number: int


# ---------------------------------------------------------------- both ways


class Chunk(Message, frozen=True, tag=7):
    """A part of a body; without `more` it is the last one. Of a response it then also says `keep`."""

    number: int
    body: bytes
    more: bool
    keep: bool = False


class Event(Message, frozen=True, tag=8):
    """An ASGI event of a WebSocket, either way (`websocket.receive`, `websocket.send`, `websocket.accept`, ...)."""

    number: int
    event: dict[str, Any]


class Window(Message, frozen=True, tag=9):
    """The receiver of chunks, items or events has used so many of their bytes: its sender may send as many more. It
    also tells the sender of a `Result` or `Failure` whose value is in the object store that the receiver has it (see
    `values`)."""

    number: int
    size: int


# ---------------------------------------------------------------- from replicas


class Welcome(Message, frozen=True, tag=20):
    """The answer to `Hello`."""

    replica: str
    slots: int


class Grant(Message, frozen=True, tag=21):
    """Lends slots. `scarce`: callers want more than there is, so what is not needed is returned at once; else an
    unneeded slot stays with the caller, who tells so by `Return(0)`. A scarce grant of 0 answers a `Want` when none is
    free."""

    slots: int
    scarce: bool = False


class Recall(Message, frozen=True, tag=22):
    """Others want slots, or the replica is about to stop: what is not used is to be returned, `Return(0)` if all
    are."""


class Result(Message, frozen=True, tag=23):
    """The value of a call, see `values`. `context`: see `Call`."""

    number: int
    body: bytes
    keep: bool
    context: bytes = b""


class Failure(Message, frozen=True, tag=24):
    """A request ended with an exception: a call's own, see `values`, or that of the replica.

    Attributes:
        kind: "user" if code of the user raised, "cancelled", or "refused" if the replica never began: it may be sent
            elsewhere.
    """

    number: int
    kind: str
    body: bytes
    keep: bool
    context: bytes = b""


class Item(Message, frozen=True, tag=25):
    """The next value of a stream."""

    number: int
    body: bytes


class End(Message, frozen=True, tag=26):
    """A stream, or a WebSocket, is over."""

    number: int
    keep: bool
    context: bytes = b""


class Start(Message, frozen=True, tag=27):
    """The beginning of a response."""

    number: int
    status: int
    headers: list[tuple[bytes, bytes]]


class Models(Message, frozen=True, tag=28):
    """Which multiplexed models the replica has loaded; told after `Welcome` and after each change."""

    ids: list[str]


class Statistics(Message, frozen=True, tag=29):
    """What custom request routers see of a replica (`record_routing_stats`)."""

    values: dict[str, Any]


def size_of(event: dict[str, Any]) -> int:
    """What an event of a WebSocket counts for `Window`: the bytes of a binary message, the characters of a text."""
    return len(event.get("bytes") or event.get("text") or b"")


def check_statistics(values: dict[str, Any]) -> None:
    """What a receiver cannot read would cost all callers their connections.

    Raises:
        TypeError: see `Service.tell_statistics`.
    """
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=dict[str, Any])
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"Statistics must be a dict of strings and plain values (numbers, strings, lists, dicts): {error}."
        ) from error


FromCaller: TypeAlias = Hello | Want | Return | Call | Http | Cancel | Chunk | Event | Window
FromReplica: TypeAlias = (
    Welcome
    | Grant
    | Recall
    | Result
    | Failure
    | Item
    | End
    | Start
    | Chunk
    | Event
    | Window
    | Models
    | Statistics
)
