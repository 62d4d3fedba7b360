"""A session that outlives its use: a shell waits in it for the next script, which so costs the machine no new one."""

from __future__ import annotations

import threading
import time

from .channel import Channel

_FRESH_S = 5.0
"""One that waited longer is used no more: opening another finds out whether the connection is alive, and harms nothing
if it is not; a script may have run when its connection breaks."""


class Kept:
    """The place for one such session of a connection. Safe to use from any thread.

    What runs there may change what the next log-in finds (a user's commands write to ~/.bashrc, for one). So whatever
    is not known to leave everything as it was ends an age, and no shell of an earlier age is used.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._age = 0
        self._channel: Channel | None = None
        self._since = 0.0

    @property
    def age(self) -> int:
        """To be noted before anything runs in a session."""
        return self._age

    def take(self) -> Channel | None:
        """The session, if there is one to use; the caller's from now on."""
        with self._lock:
            channel, self._channel = self._channel, None
            is_fresh = time.monotonic() - self._since < _FRESH_S
        if channel is None or (is_fresh and channel.is_open):
            return channel
        channel.close()
        return None

    def put(self, channel: Channel, age: int) -> None:
        """Keeps a session in which a shell waits, or closes it where it cannot be used.

        Args:
            age: of the session.
        """
        with self._lock:
            if age == self._age and self._channel is None:
                self._channel, self._since = channel, time.monotonic()
                return
        channel.close()

    def end_age(self) -> None:
        """Nothing from before is used any more."""
        with self._lock:
            self._age += 1
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
