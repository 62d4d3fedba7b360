"""Connects a remote command with descriptors of this process, byte by byte: its input, its output, and its errors apart
from its output.
"""

from __future__ import annotations

import os
import secrets
import select
import threading
from collections.abc import Iterator

from .channel import Channel
from .watched import channel_errors

_BLOCK = 65536


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`.

    Raises:
        BrokenPipeError: nobody reads the descriptor any more.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another program made the pipe non-blocking
            select.select([], [descriptor], [])


class LocalInput:
    """What can be read from a descriptor, for a thread that must be able to stop while it waits for more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stopped, self._stop = os.pipe()

    def blocks(self) -> Iterator[bytes]:
        """Yields what comes, until the end of the input or `stop`."""
        poll = select.poll()
        poll.register(self._stopped, select.POLLIN)
        poll.register(self._descriptor, select.POLLIN)
        while self._stopped not in (ready[0] for ready in poll.poll()):
            try:
                data = os.read(self._descriptor, _BLOCK)
            except BlockingIOError:
                continue
            if not data:
                return
            yield data

    def stop(self) -> None:
        """Ends `blocks` in the other thread."""
        os.write(self._stop, b"x")

    def close(self) -> None:
        """To be called when no thread uses `blocks` any more."""
        os.close(self._stop)
        os.close(self._stopped)


class Between:
    """What a stream has between two equal marks, the first alone on its line. A mark begins with its only `<`."""

    def __init__(self, mark: bytes) -> None:
        self._begin, self._end = b"\n" + mark + b"\n", mark
        self._buffer = b""
        self._has_begun = False
        self.has_ended = False

    def take(self, data: bytes) -> bytes:
        """Takes more of the stream; returns what is known to lie between the marks."""
        self._buffer += data
        if not self._has_begun:
            _, found, rest = self._buffer.partition(self._begin)
            if not found:
                return b""
            self._has_begun, self._buffer = True, rest
        at = self._buffer.find(self._end)
        self.has_ended = at >= 0
        end = at if self.has_ended else self._safe()
        out, self._buffer = self._buffer[:end], self._buffer[end:]
        return out

    def _safe(self) -> int:
        """How many bytes of the buffer cannot be the beginning of the mark, which has `<` only there."""
        start = self._buffer.rfind(b"<")
        return start if start >= 0 and self._end.startswith(self._buffer[start:]) else len(self._buffer)


class RemoteErrors:
    """Copies what a script writes to its standard error to a descriptor, in a thread. Marks around it tell it from what
    log-in scripts print, and from what a daemon prints that the script leaves behind.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mark = f"<{secrets.token_hex(8)}>"
        self._thread: threading.Thread | None = None

    def around(self, script: str) -> str:
        """The script with the marks; its exit status stays."""
        return (
            f"printf '\\n%s\\n' '{self._mark}' >&2\n{script}\nclusterctl_status=$?\n"
            f"printf %s '{self._mark}' >&2\n(exit $clusterctl_status)\n"
        )

    def start(self, channel: Channel) -> None:
        """Begins to copy."""
        self._thread = threading.Thread(
            target=self._copy, args=(channel,), name="copies a command's errors", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Waits until all is copied: for the mark, or the end of the stream."""
        if self._thread is not None:
            self._thread.join()

    def _copy(self, channel: Channel) -> None:
        between = Between(self._mark.encode())
        is_read = True
        while not between.has_ended:
            try:
                data = channel.recv_errors(_BLOCK)
            except TimeoutError:
                continue  # the deadline is the matter of whoever reads the output
            except channel_errors():
                return
            if not data:
                return
            found = between.take(data)
            if is_read and found:
                try:
                    write_all(self._descriptor, found)
                except OSError:  # nobody reads it: the command goes on
                    is_read = False
