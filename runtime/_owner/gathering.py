"""Requests to create something that one thread gathers, to send them to the control store together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from runtime._transport.connection import Connection
from runtime._wire.messages.base import Request


class Gathered:
    """`requests`: with who takes the answers. `afterwards`: what is to be done once they are sent, under the lock."""

    def __init__(self) -> None:
        self.requests: list[tuple[Request[Any], Callable[[Any], None]]] = []
        self.afterwards: list[Callable[[], None]] = []


class _Gathering(threading.local):
    now: Gathered | None = None


_gathering = _Gathering()


def is_gathering() -> bool:
    """Whether this thread sends no such requests now."""
    return _gathering.now is not None


def begin() -> Gathered:
    """This thread gathers from now on.

    Raises:
        RuntimeError: it does so already.
    """
    if _gathering.now is not None:
        raise RuntimeError("This thread creates a gang already: one cannot be inside another.")
    _gathering.now = made = Gathered()
    return made


def end() -> None:
    """This thread sends again."""
    _gathering.now = None


def call_or_gather(agent: Connection, request: Request[Any], callback: Callable[[Any], None]) -> None:
    """Calls the control store, unless this thread gathers."""
    gathered = _gathering.now
    if gathered is None:
        agent.call(request, callback)
    else:
        gathered.requests.append((request, callback))


def afterwards(action: Callable[[], None]) -> None:
    """Does something at once, or once what this thread gathers is sent. Under the lock."""
    gathered = _gathering.now
    if gathered is None:
        action()
    else:
        gathered.afterwards.append(action)
