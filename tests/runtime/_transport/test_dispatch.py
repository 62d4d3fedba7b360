"""Messages and their handlers: what comes early waits, and what nobody handles is refused."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._transport.dispatch import Dispatcher
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import Blocked, MayEnd, StoreSettle


class Connection:
    name = "a test"

    def __init__(self) -> None:
        self.replies: list[tuple[Any, int]] = []

    def reply(self, message: Any, correlation: int) -> None:
        self.replies.append((message, correlation))


@pytest.fixture
def connection() -> Any:
    return Connection()


def test_each_message_goes_to_the_handler_of_its_class(connection: Any) -> None:
    heard: list[Any] = []
    dispatcher = Dispatcher()
    dispatcher.serve(
        {
            Blocked: lambda *args: heard.append(("blocked", *args)),
            MayEnd: lambda *args: heard.append(("may end", *args)),
        }
    )
    dispatcher.dispatch(connection, MayEnd(), 3)
    dispatcher.dispatch(connection, Blocked(), 0)
    assert heard == [("may end", connection, MayEnd(), 3), ("blocked", connection, Blocked(), 0)]


def test_what_comes_early_is_served_in_order(connection: Any) -> None:
    heard: list[int] = []
    dispatcher = Dispatcher()
    for correlation in range(3):
        dispatcher.dispatch(connection, MayEnd(), correlation)
    assert not dispatcher.serves
    dispatcher.serve({MayEnd: lambda _connection, _message, correlation: heard.append(correlation)})
    assert dispatcher.serves
    dispatcher.dispatch(connection, MayEnd(), 3)
    assert heard == [0, 1, 2, 3]


def test_a_request_that_nobody_handles_is_refused(connection: Any) -> None:
    dispatcher = Dispatcher()
    dispatcher.dispatch(connection, StoreSettle(False), 7)
    dispatcher.serve({MayEnd: lambda *_: None})
    assert [(reply.kind, correlation) for reply, correlation in connection.replies] == [
        (ErrorKind.INVALID, 7)
    ]
    dispatcher.dispatch(connection, Blocked(), 0)  # a message that wants no answer gets none
    assert len(connection.replies) == 1
