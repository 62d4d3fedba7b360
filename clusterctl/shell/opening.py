"""The opening of a channel. Who waits for it may give it up; one that comes then is closed."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from .watched import channel_errors

if TYPE_CHECKING:
    import paramiko

_NEVER_S = 3600.0
"""What has not come by then does not."""


class GivenUp(Exception):
    """It did not come in time."""


class Opening:
    """Begins at once, in a thread of its own, which ends with the connection at the latest.

    Args:
        kind: of the channel, as SSH names them.
        destination: host and port, of a tunnel.
    """

    def __init__(self, transport: paramiko.Transport, kind: str, destination: tuple[str, int] | None) -> None:
        self._transport = transport
        self._kind = kind
        self._destination = destination
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_given_up = False
        self._result: paramiko.Channel | Exception | None = None
        threading.Thread(target=self._run, name="opens a channel", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        """It came, or never will."""
        return self._ended.is_set()

    def wait(self, timeout_s: float) -> paramiko.Channel:
        """The channel, which is the caller's from now on.

        Raises:
            GivenUp: it did not come in this time.
            Exception: what paramiko raises.
        """
        try:
            self._ended.wait(timeout_s)
        finally:
            with self._lock:
                self._is_given_up = not self._ended.is_set()
        if self._is_given_up:
            raise GivenUp
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def _run(self) -> None:
        source = ("127.0.0.1", 0) if self._destination else None
        try:
            channel = self._transport.open_channel(self._kind, self._destination, source, timeout=_NEVER_S)
        except Exception as error:  # whoever waits hears of it, whatever it is
            self._result = error
            self._ended.set()
            return
        with self._lock:
            self._result = channel
            if not self._is_given_up:
                self._ended.set()
                return
        with contextlib.suppress(*channel_errors()):
            channel.close()
        self._ended.set()
