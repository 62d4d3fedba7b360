"""What goes into a command and comes out of it: fed by a thread while its output is read, taken between marks, handed
out as lines, or copied to and from descriptors of this process byte by byte.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self

from .watched import channel_errors

if TYPE_CHECKING:
    from .channel import Channel

_BLOCK = 65536
KEEP_BYTES = 2**20


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


class Output:
    """What a command writes, as `Shell.run` hands it out: takes bytes in any portions. `on_line` gets each line without
    its newline, as it appears."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._kept = bytearray()
        self._line = b""

    def take(self, data: bytes) -> None:
        """More has come."""
        self._kept.extend(data)
        del self._kept[:-KEEP_BYTES]
        if self._on_line is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._on_line(line.decode(errors="replace"))

    def end(self) -> str:
        """Nothing more comes; returns the last `KEEP_BYTES` of all."""
        if self._on_line is not None and self._line:
            self._on_line(self._line.decode(errors="replace"))
        return self._kept.decode(errors="replace")


class Feeder:
    """Writes all of `data` from `start` on, then closes. A command that reads no more ends it, for its exit status says
    why. The end of the `with` waits for it, when what it writes to is gone, and raises what `data` raised: the command
    saw its input end early.

    Args:
        data: None: nothing is written or closed.
        stop: ends the waiting for more data.
    """

    def __init__(self, data: Iterable[bytes] | None, stop: Callable[[], object] = lambda: None) -> None:
        self._data = data
        self._stop = stop
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, write: Callable[[bytes], object], close: Callable[[], object]) -> None:
        if self._data is not None:
            work = self._data, write, close
            self._thread = threading.Thread(target=self._run, args=work, name="feeds a command", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._stop()
        if self._thread is not None:
            self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _run(
        self, data: Iterable[bytes], write: Callable[[bytes], object], close: Callable[[], object]
    ) -> None:
        try:
            for block in data:
                try:
                    write(block)
                except OSError:
                    return
        except BaseException as error:
            self._error = error
        finally:
            with contextlib.suppress(OSError):
                close()


@contextlib.contextmanager
def feeding_from(descriptor: int | None) -> Iterator[Feeder]:
    """A `Feeder` of what can be read from a descriptor of this process; None: of nothing."""
    if descriptor is None:
        yield Feeder(None)
        return
    stopped, stop = os.pipe()
    try:
        with Feeder(_blocks(descriptor, stopped), lambda: os.write(stop, b"x")) as feeder:
            yield feeder
    finally:
        os.close(stop)
        os.close(stopped)


def _blocks(descriptor: int, stopped: int) -> Iterator[bytes]:
    """Yields what comes, until the end of the input or until `stopped` is readable."""
    poll = select.poll()
    poll.register(stopped, select.POLLIN)
    poll.register(descriptor, select.POLLIN)
    while stopped not in (ready[0] for ready in poll.poll()):
        try:
            data = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            continue
        if not data:
            return
        yield data


class Between:
    """What a stream has between two marks. Each begins with its only `<`, and a word and a newline follow it; a newline
    goes before the first.

    Attributes:
        first: the word behind the first mark; None: that has not come.
        last: the word behind the second.
    """

    def __init__(self) -> None:
        self.mark = f"<{secrets.token_hex(8)}>"
        self.first: str | None = None
        self.last: str | None = None
        self._mark = self.mark.encode()
        self._buffer = b""

    def take(self, data: bytes) -> bytes:
        """Takes more of the stream; returns what is known to lie between the marks."""
        self._buffer += data
        if self.first is None:
            _, _, after = self._buffer.partition(b"\n" + self._mark)
            word, is_whole, rest = after.partition(b"\n")
            if not is_whole:
                return b""
            self.first, self._buffer = word.decode(), rest
        at = self._buffer.find(self._mark)
        if at >= 0:
            word, is_whole, _ = self._buffer[at + len(self._mark) :].partition(b"\n")
            self.last = word.decode() if is_whole else None
        end = self._safe() if at < 0 else at
        found, self._buffer = self._buffer[:end], self._buffer[end:]
        return found

    def rest(self) -> bytes:
        """What has been taken, and not returned: the stream has ended."""
        rest, self._buffer = self._buffer, b""
        return rest

    def _safe(self) -> int:
        """How many bytes of the buffer cannot be the beginning of the mark, which has `<` only there."""
        start = self._buffer.rfind(b"<")
        return start if start >= 0 and self._mark.startswith(self._buffer[start:]) else len(self._buffer)


class RemoteErrors:
    """Copies what a script writes to its standard error to a descriptor, in a thread. Marks around it tell it from what
    log-in scripts print, and from what a daemon prints that the script leaves behind.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._between = Between()
        self._thread: threading.Thread | None = None

    def around(self, script: str) -> str:
        """The script with the marks; its exit status stays."""
        mark = self._between.mark
        return (
            f"printf '\\n%s\\n' '{mark}' >&2\n{script}\nclusterctl_status=$?\n"
            f"printf '%s\\n' '{mark}' >&2\n(exit $clusterctl_status)\n"
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
        is_read = True
        while self._between.last is None:
            try:
                data = channel.recv_errors(_BLOCK)
            except TimeoutError:
                continue  # the deadline is the matter of whoever reads the output
            except channel_errors():
                return
            if not data:
                return
            found = self._between.take(data)
            if is_read and found:
                try:
                    write_all(self._descriptor, found)
                except OSError:  # nobody reads it: the command goes on
                    is_read = False
