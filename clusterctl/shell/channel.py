"""A channel of an SSH connection: paramiko's, whose waits have a limit and whose errors have a name."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from autoscaler.provider import ShellError, ShellLost

from .watched import Watched, channel_errors

if TYPE_CHECKING:
    import paramiko

T = TypeVar("T")


def in_time(work: Callable[[], T], deadline: float | None, late: Callable[[T], object] | None = None) -> T:
    """What `work` returns, which waits without a limit of its own. It runs in a thread, which ends with the connection
    at the latest.

    Args:
        deadline: on the monotonic clock.
        late: is given what `work` returns when nobody waits for it any more.

    Raises:
        TimeoutError: it did not end in time.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    def end(ended: Future[T]) -> None:
        if late is not None and ended.exception() is None:
            late(ended.result())

    threading.Thread(target=run, name="waits for SSH", daemon=True).start()
    try:
        return future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except BaseException:
        future.add_done_callback(end)
        raise


class Broken(OSError):
    """The other side reads no more. Whether the connection is lost, reading says."""


class Channel:
    """One channel, of a session or of a tunnel. What waits without a limit ends with the connection at the latest.

    Args:
        stream: what its connection is spoken over.

    Attributes:
        machine: what it is called in errors.
    """

    def __init__(self, channel: paramiko.Channel, machine: str, stream: Watched) -> None:
        self._channel = channel
        self._stream = stream
        self.machine = machine

    def watched(self, machine: str) -> Watched:
        """What the connection to another machine is spoken over, through this tunnel."""
        return Watched(self._channel, machine, self._stream)

    # -- a session's beginning

    def terminal(self, kind: str, rows: int, columns: int, deadline: float) -> None:
        """Gives what is executed a terminal.

        Raises:
            ShellError: it is refused; ShellLost: the connection ended.
            TimeoutError: there is no answer at `deadline`, on the monotonic clock.
        """
        refusal = "gives no terminal: its sshd refuses one (PermitTTY?)"
        self._request(lambda: self._channel.get_pty(kind, columns, rows), refusal, deadline)

    def execute(self, command: str, deadline: float) -> None:
        """Begins a command. Raises what `terminal` does."""
        refusal = "runs no command: its sshd refuses to"
        self._request(lambda: self._channel.exec_command(command), refusal, deadline)

    # -- what goes through

    def recv(self, size: int, timeout_s: float | None = None) -> bytes:
        """What comes next; b"" when nothing more does.

        Raises:
            TimeoutError: nothing came for so long.
        """
        self._channel.settimeout(timeout_s)
        try:
            return bytes(self._channel.recv(size))
        except TimeoutError:
            raise
        except channel_errors() as error:  # of the word that there is room again; nothing more comes
            raise self.lost(error) from error

    def recv_errors(self, size: int) -> bytes:
        """What comes next on the command's standard error; b"" when nothing more does.

        Raises:
            TimeoutError: nothing came for as long as the last `recv` was willing to wait.
        """
        return bytes(self._channel.recv_stderr(size))

    def sendall(self, data: bytes, timeout_s: float | None = None) -> None:
        """All of it goes there.

        Raises:
            TimeoutError: the other side read nothing for so long.
            Broken: it reads no more.
        """
        if timeout_s is not None:
            self._channel.settimeout(timeout_s)
        try:
            self._channel.sendall(data)
        except TimeoutError:
            raise
        except channel_errors() as error:
            raise Broken(str(error)) from error

    def shutdown_write(self) -> None:
        """Nothing more goes there. Nothing happens where the other side has ended."""
        with contextlib.suppress(*channel_errors()):
            self._channel.shutdown_write()

    def resize(self, rows: int, columns: int) -> None:
        """The size of the terminal from now on. Nothing happens where the other side has ended."""
        with contextlib.suppress(*channel_errors()):
            self._channel.resize_pty(columns, rows)

    def words(self) -> str:
        """What a command has said apart from its output."""
        if not self._channel.recv_stderr_ready():
            return ""
        with contextlib.suppress(*channel_errors()):
            return str(self._channel.recv_stderr(65536).decode(errors="replace"))
        return ""

    # -- its end

    def exit_status(self, deadline: float | None) -> int:
        """What an ended command ended with; -1: a signal, which paramiko does not name.

        Raises:
            ShellLost: the connection ended before the command.
            TimeoutError: it is not known at `deadline`.
        """
        status = int(in_time(self._channel.recv_exit_status, deadline))
        if status < 0 and not self.has_ended:
            raise self.lost()
        return status

    @property
    def has_ended(self) -> bool:
        """The other side has said that nothing more comes; otherwise only the connection's end ends the reading."""
        return bool(self._channel.eof_received)

    def lost(self, error: BaseException | None = None) -> ShellLost:
        """The error that says so, with what is known of the reason."""
        why = self._stream.silent or (f"{type(error).__name__}: {error}".rstrip(": ") if error else None)
        words = f": {why}" if why else ""
        return ShellLost(f"the connection to {self.machine} was lost while a command ran there{words}")

    def fileno(self) -> int:
        """Readable when there is something to read."""
        return int(self._channel.fileno())

    def close(self) -> None:
        """Repeating it does nothing."""
        with contextlib.suppress(*channel_errors()):  # what the connection's end has closed already
            self._channel.close()

    def _request(self, request: Callable[[], None], refusal: str, deadline: float) -> None:
        import paramiko

        try:
            in_time(request, deadline)
        except TimeoutError:
            raise
        except channel_errors() as error:
            # A refused channel is closed from here, too; one whose connection ended is not.
            if isinstance(error, paramiko.SSHException) and self._channel.eof_sent:
                raise ShellError(f"{self.machine} {refusal}") from error
            raise self.lost(error) from error
