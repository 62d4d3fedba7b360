"""What a remote driver asks of its driver process, and how it waits for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._owner.errors import session_over
from runtime._ownership.released import Released
from runtime._process.core_worker import Core
from runtime._transport.interrupts import Interrupts
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Request, WorkerAddress
from runtime._wire.serialization import deserialize

from . import messages
from .link import Link

ANSWER_S = 60.0
"""How much longer than the driver process itself the program waits for an answer: a cut may come between."""


class Requests:
    """The connection, requests by their numbers, and those who wait.

    Attributes:
        lock: of all that the program knows. Nothing that waits may be called under it.
        interrupts: says when Ctrl-C may raise in a thread.
        address: of the driver process.
        ids: of what the program submits and puts.
    """

    released: Released
    address: WorkerAddress
    ids: ids.TaskIds

    def __init__(self, address: str, secret: bytes) -> None:
        self.lock = threading.RLock()
        self._news_lock = threading.RLock()
        self._news = threading.Condition(self._news_lock)
        self._requests: dict[int, tuple[Future[Any], Callable[[msgspec.Raw], None] | None]] = {}
        self._last_request = 0
        self._closing = False
        self.link = Link(address, secret, self._on_message, self._on_lost, self._on_idle)
        self.interrupts = Interrupts(self.lock, self._news_lock, self.link.lock)

    def _on_message(self, message: messages.AnyMessage) -> None:
        """A message has come. On the receiving thread."""
        if isinstance(message, messages.Answer):
            asked = self._requests.pop(message.request, None)
            if asked is not None:
                future, done = asked
                if done is not None:
                    done(message.result)
                future.set_result(message.result)
        elif isinstance(message, messages.Failed):
            asked = self._requests.pop(message.request, None)
            if asked is not None:
                asked[0].set_exception(rebuilt(message.error))
        self.tell()

    def _on_lost(self, error: Exception) -> None:
        """There will be no more messages."""
        self._fail_requests(self._lost(error))
        self.tell()

    def _on_idle(self) -> None:
        """On the sending thread, after `released` woke it."""

    def _fail_requests(self, error: Exception) -> None:
        while self._requests:
            try:
                _, (future, _) = self._requests.popitem()
            except KeyError:
                return
            future.set_exception(error)

    def tell(self) -> None:
        """Has those who wait look again."""
        with self._news:
            self._news.notify_all()

    # ------------------------------------------------------------ requests

    def send(self, message: messages.AnyMessage, waits: bool = False) -> None:
        """Sends a message that nobody answers. `waits`: while much is under way; not under the lock.

        Raises:
            RaySystemError: the connection is lost for good, or `shutdown` was called.
        """
        try:
            self.link.send(message, waits)
        except ConnectionError as error:
            raise self._lost(error) from None

    def ask_driver(
        self,
        make: Callable[[int], messages.AnyMessage],
        done: Callable[[msgspec.Raw], None] | None = None,
    ) -> Future[Any]:
        """Sends a request, made with its number. The future gets the raw result.

        Args:
            done: takes the raw result before the future has it, on the receiving thread.

        Raises:
            RaySystemError: as `send`.
        """
        future: Future[Any] = Future()
        with self.lock:
            self._last_request = number = self._last_request + 1
            self._requests[number] = future, done
        try:
            self.send(make(number))
        except Exception:
            self._requests.pop(number, None)
            raise
        return future

    def request(
        self,
        make: Callable[[int], messages.AnyMessage],
        kind: Any,
        timeout_s: float | None = None,
        done: Callable[[msgspec.Raw], None] | None = None,
    ) -> Any:
        """Sends a request and waits for the result, of type `kind`. `done`: see `ask_driver`.

        Raises:
            GetTimeoutError: there was none in time.
            Exception: what the request failed with.
        """
        future = self.ask_driver(make, done)
        try:
            result = future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise  # of the request itself
            raise exceptions.GetTimeoutError(f"The head did not answer within {timeout_s:g} s.") from None
        return msgspec.msgpack.decode(result, type=kind)

    def check(self) -> None:
        """See `Core.check`."""
        if self.link.failure is not None:
            raise self._lost(self.link.failure)

    def _lost(self, error: Exception) -> exceptions.RaySystemError:
        if self._closing:
            return session_over()
        return (
            error if isinstance(error, exceptions.RaySystemError) else exceptions.RaySystemError(str(error))
        )

    # ------------------------------------------------------------ as `Core`

    def wait(self, ready: Callable[[], Any], timeout_s: float | None) -> bool:
        """Waits until `ready` is true; False when it is not in time. Ends as well when the connection is lost: what is
        waited for has an error then.

        Raises:
            RaySystemError: nothing will come any more.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._news:
            while not ready():
                self.check()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._news.wait(left)
        return True

    def call_agent(self, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """See `Core.call_agent`."""
        frame = codec.encode(request)
        limit = None if timeout_s is None else timeout_s + ANSWER_S
        reply = self.request(lambda number: messages.Ask(number, frame, timeout_s), bytes, limit)
        return codec.decode(reply)

    def ask(self, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """See `Core.ask`."""
        reply = self.call_agent(request, timeout_s)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.TIMEOUT:
                raise exceptions.GetTimeoutError(reply.message)
            raise exceptions.RaySystemError(reply.message)
        return reply


def as_core(core: Requests) -> Core:
    """The same object, as those take it who know only the core of a process in the cluster."""
    return cast(Core, core)


def rebuilt(error: bytes) -> Exception:
    """An error of the driver process."""
    try:
        raised = deserialize(error)[0]
    except Exception as problem:
        return exceptions.RaySystemError(
            f"an error that cannot be rebuilt here: {type(problem).__name__}: {problem}"
        )
    return raised if isinstance(raised, Exception) else exceptions.RaySystemError(str(raised))
