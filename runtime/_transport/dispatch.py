"""Which handler serves which message, on the connections of a pump."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from runtime._wire.messages.base import ErrorKind, ErrorReply, Message

from .connection import Connection

log = logging.getLogger("runtime")

Handler = Callable[[Connection, Any, int], None]
"""Gets the connection, the message and its correlation: 0, or what to pass to `Connection.reply`."""
Handlers = Mapping[type[Message], Handler]


class Dispatcher:
    """Passes each message to the handler of its class.

    A process listens before its parts exist: messages that come before `serve` wait for it. `dispatch` and `serve` run
    under the pump's lock.
    """

    def __init__(self) -> None:
        self._handlers: Handlers = {}
        self._early: list[tuple[Connection, Message, int]] | None = []

    @property
    def serves(self) -> bool:
        """Whether `serve` was called."""
        return self._early is None

    def serve(self, handlers: Handlers) -> None:
        """Sets the table, once for the life of the process, and serves the messages that have come already."""
        self._handlers = handlers
        early, self._early = self._early, None
        for connection, message, correlation in early or ():
            self.dispatch(connection, message, correlation)

    def dispatch(self, connection: Connection, message: Message, correlation: int) -> None:
        """Serves one message. A request without a handler is answered with INVALID."""
        handler = self._handlers.get(message.__class__)
        if handler is not None:
            handler(connection, message, correlation)
        elif self._early is not None:
            self._early.append((connection, message, correlation))
        else:
            log.error("%s from %s is not understood here", type(message).__name__, connection.name)
            if correlation:
                connection.reply(
                    ErrorReply(ErrorKind.INVALID, "this process does not answer that"), correlation
                )
