"""What methods of a deployment see of a gRPC request: its context, and the stream of its inputs."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import grpc

__all__ = ["RayServegRPCContext", "gRPCInputStream"]

T = TypeVar("T")
CONTEXT_ARGUMENT = "grpc_context"

Metadata = Sequence[tuple[str, str | bytes]]


class RayServegRPCContext:
    """The part of gRPC's servicer context that can travel. A method that has a parameter `grpc_context` gets it; what
    it sets there (code, details, trailing metadata, compression) is set on the response.

    Args:
        grpc_context: `grpc.ServicerContext` of the request.
    """

    def __init__(self, grpc_context: Any) -> None:
        self._auth_context: dict[str, Any] = dict(grpc_context.auth_context() or {})
        self._code: Any = grpc_context.code()
        self._details: str | None = grpc_context.details()
        self._invocation_metadata = [(key, value) for key, value in grpc_context.invocation_metadata() or ()]
        self._peer: str = grpc_context.peer()
        self._peer_identities: Any = grpc_context.peer_identities()
        self._peer_identity_key: str | None = grpc_context.peer_identity_key()
        self._trailing_metadata = [(key, value) for key, value in grpc_context.trailing_metadata() or ()]
        self._compression: Any = None

    # ------------------------------------------------------------ of the request

    def auth_context(self) -> dict[str, Any]:
        """Property of the authentication -> its values."""
        return self._auth_context

    def invocation_metadata(self) -> list[tuple[str, Any]]:
        """The metadata that the client has sent."""
        return self._invocation_metadata

    def peer(self) -> str:
        """The address of the client, as gRPC writes it."""
        return self._peer

    def peer_identities(self) -> Any:
        """Who the client is, or None if it is not authenticated."""
        return self._peer_identities

    def peer_identity_key(self) -> str | None:
        """The property of `auth_context` that identifies the client."""
        return self._peer_identity_key

    def request_id(self) -> str | None:
        """Of the metadata `request_id`."""
        return self._sent("request_id")

    def application(self) -> str | None:
        """Of the metadata `application`."""
        return self._sent("application")

    def multiplexed_model_id(self) -> str | None:
        """Of the metadata `multiplexed_model_id`."""
        return self._sent("multiplexed_model_id")

    def traceparent(self) -> str | None:
        """Of the metadata `traceparent`."""
        return self._sent("traceparent")

    def tracestate(self) -> str | None:
        """Of the metadata `tracestate`."""
        return self._sent("tracestate")

    # ------------------------------------------------------------ of the response

    def code(self) -> Any:
        """The status code that was set (`grpc.StatusCode`), or None."""
        return self._code

    def details(self) -> str | None:
        """The details that were set."""
        return self._details

    def trailing_metadata(self) -> list[tuple[str, Any]]:
        """The metadata that the response will end with."""
        return self._trailing_metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Sets the status code of the response."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Sets the text that goes with the status code."""
        self._details = details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Sets how the response is compressed."""
        self._compression = compression

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Replaces the trailing metadata, the id of the request excepted."""
        kept = [(key, value) for key, value in self._trailing_metadata if key == "request_id"][:1]
        self._trailing_metadata = [*kept, *trailing_metadata]

    def apply_to(self, grpc_context: Any) -> None:
        """Sets on gRPC's own context what was set here."""
        if self._code:
            grpc_context.set_code(self._code)
        if self._details:
            grpc_context.set_details(self._details)
        if self._compression:
            grpc_context.set_compression(self._compression)
        if self._trailing_metadata:
            grpc_context.set_trailing_metadata(tuple(self._trailing_metadata))

    def _sent(self, key: str) -> str | None:
        found: str | None = None
        for name, value in self._invocation_metadata:
            if name == key:
                found = value
        return found


class gRPCInputStream(AsyncIterator[T], Generic[T]):
    """The messages of a client that streams, one after the other.

    Args:
        request_iterator: where they come from.
        cancel_event: is set when nobody sends any more; iteration then ends.
    """

    def __init__(
        self, request_iterator: AsyncIterator[T], *, cancel_event: asyncio.Event | None = None
    ) -> None:
        self._messages = request_iterator
        self._cancelled = cancel_event or asyncio.Event()
        self._exhausted = False

    def __aiter__(self) -> gRPCInputStream[T]:
        return self

    async def __anext__(self) -> T:
        if self._exhausted or self._cancelled.is_set():
            self._exhausted = True
            raise StopAsyncIteration
        try:
            return await self._messages.__anext__()
        except StopAsyncIteration:
            self._exhausted = True
            raise

    def cancel(self) -> None:
        """Ends the iteration."""
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        """Whether `cancel` was called, or the client has cancelled the request."""
        return self._cancelled.is_set()

    @property
    def is_exhausted(self) -> bool:
        """Whether all messages were read."""
        return self._exhausted


# ---------------------------------------------------------------- for the ingress and the replica


def dump_context(context: RayServegRPCContext) -> bytes:
    """For `context` of a message (`runtime.serve._wire.messages`)."""
    return pickle.dumps(context, protocol=5)


def load_context(data: bytes) -> RayServegRPCContext:
    """From a message."""
    context = pickle.loads(data)
    assert isinstance(context, RayServegRPCContext)
    return context


def takes_context(method: Callable[..., Any]) -> bool:
    """Whether a method of a deployment has a parameter `grpc_context`."""
    try:
        return CONTEXT_ARGUMENT in inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False


def dump_response(message: Any) -> bytes:
    """What a method returned, or yielded, as the body of a message.

    Raises:
        TypeError: it is no protobuf message.
    """
    serialize = getattr(message, "SerializeToString", None)
    if serialize is None:
        raise TypeError(f"A gRPC method must return a protobuf message, not {message!r}.")
    body: bytes = serialize()
    return body


def input_stream(receive: Callable[[], Awaitable[bytes]], cancelled: asyncio.Event) -> gRPCInputStream[Any]:
    """The argument of a method whose client streams.

    Args:
        receive: waits for the body of the next `Chunk`; b"" for the last one.
        cancelled: is set when the request is cancelled.
    """

    async def messages() -> AsyncIterator[Any]:
        while body := await receive():
            yield pickle.loads(body)

    return gRPCInputStream(messages(), cancel_event=cancelled)
