"""The errors of channels: `RayChannelError`, and below it what a caller may want to tell apart.

ChannelError
  ChannelTimeoutError    the deadline passed; the channel is as it was
  ChannelClosedError     the other side closed, and everything was taken
  PeerLostError          the other side's process ended, or its node cannot be reached
  ChannelFailedError     somebody called `fail`; `cause` says why
"""

from __future__ import annotations

import pickle
from typing import Any

from runtime import exceptions
from runtime._wire import serialization

CAUSE_BYTES = 1 << 16
"""Larger causes travel as text: what is said must fit into a socket whose reader is busy."""


class ChannelError(exceptions.RayChannelError):
    """A channel cannot go on."""


class ChannelTimeoutError(ChannelError, exceptions.RayChannelTimeoutError):
    """A channel was not ready in time. It can be used again."""


class ChannelClosedError(ChannelError):
    """The other side has closed the channel."""


class PeerLostError(ChannelError):
    """A process that holds an end of the channel is gone.

    Attributes:
        peer: the name of its end.
    """

    def __init__(self, peer: str, why: str = "its process ended") -> None:
        self.peer = peer
        self.why = why
        super().__init__(f"Channel broken: the end {peer!r} is gone ({why}).")

    def __reduce__(self) -> Any:
        return type(self), (self.peer, self.why)


class ChannelFailedError(ChannelError):
    """An end was failed.

    Attributes:
        by: the name of the end that failed.
        cause: what it said.
    """

    def __init__(self, by: str, cause: BaseException) -> None:
        self.by = by
        self.cause = cause
        super().__init__(f"Channel failed by {by!r}: {cause}")
        self.__cause__ = cause

    def __reduce__(self) -> Any:
        return type(self), (self.by, self.cause)


def dump_failure(error: ChannelError) -> bytes:
    """The error as bytes, for the other ends. A cause that cannot be pickled, or is large, travels as its text."""
    try:
        data = serialization.dumps(error)
        if len(data) <= CAUSE_BYTES:
            return data
    except Exception:
        pass  # the text says it as well
    by = error.by if isinstance(error, ChannelFailedError) else ""
    return serialization.dumps(ChannelFailedError(by, RuntimeError(f"{error}"[: CAUSE_BYTES // 8])))


def load_failure(data: bytes) -> ChannelError:
    """The error that `dump_failure` wrote."""
    try:
        error = pickle.loads(data)
    except Exception as problem:
        return ChannelError(f"Channel failed, for a reason that cannot be unpickled here: {problem}")
    return error if isinstance(error, ChannelError) else ChannelError(str(error))
