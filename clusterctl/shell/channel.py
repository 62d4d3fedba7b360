"""A channel of an SSH connection: paramiko's, whose waits have a limit and whose errors have a name."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoscaler.provider import ShellError, ShellLost

from .watched import Watched, channel_errors

if TYPE_CHECKING:
    import paramiko


_NEAR_WINDOW = 2**18
"""So much may be on its way to a command on a machine that is near. sshd lets it be two megabytes, and copies what the
command has not taken yet with each packet that comes: for a young connection that is most of what a transfer costs."""


class Broken(OSError):
    """The other side reads no more. Whether the connection is lost, reading says."""


class Channel:
    """One channel, of a session or of a tunnel. What waits without a limit ends with the connection at the latest.

    Attributes:
        machine: what it is called in errors.
        waits: a shell at the other end waits for a script.
    """

    def __init__(self, channel: paramiko.Channel, machine: str) -> None:
        self._channel = channel
        self.machine = machine
        self.waits = False
        self._answer = _Answer()
        channel.event = self._answer

    # -- a session's beginning

    def terminal(self, kind: str, rows: int, columns: int, deadline: float) -> None:
        """Gives what is executed a terminal.

        Raises:
            ShellError: it is refused; ShellLost: the connection ended.
            TimeoutError: there is no answer at `deadline`, on the monotonic clock.
        """
        with self._requested("gives no terminal: its sshd refuses one (PermitTTY?)", deadline):
            self._channel.get_pty(kind, columns, rows)

    def execute(self, command: str, deadline: float) -> None:
        """Begins a command. Raises what `terminal` does."""
        with self._requested("runs no command: its sshd refuses to", deadline):
            self._channel.exec_command(command)
        transport = self._channel.get_transport()
        stream: Watched = transport.sock
        # OpenSSH grants again what was taken, however little; another server may wait until half of its own is.
        if stream.is_near and "OpenSSH" in transport.remote_version:
            with self._channel.lock:
                self._channel.out_window_size = min(self._channel.out_window_size, _NEAR_WINDOW)

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
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._channel.status_event.wait(left):
            raise TimeoutError
        if self._channel.exit_status < 0 and not self._channel.eof_received:
            raise self.lost()
        return int(self._channel.exit_status)

    @property
    def is_open(self) -> bool:
        """Nothing is known of an end."""
        return not (self._channel.closed or self._channel.eof_received)

    @property
    def has_ended(self) -> bool:
        """The other side has said that nothing more comes; otherwise only the connection's end ends the reading."""
        return bool(self._channel.eof_received)

    def lost(self, error: BaseException | None = None) -> ShellLost:
        """The error that says so, with what is known of the reason."""
        transport = self._channel.get_transport()
        stream: Watched = transport.sock
        reason = transport.saved_exception or error
        why = stream.silent or (f"{type(reason).__name__}: {reason}".rstrip(": ") if reason else None)
        words = f": {why}" if why else ""
        return ShellLost(f"the connection to {self.machine} was lost while a command ran there{words}")

    def fileno(self) -> int:
        """Readable when there is something to read."""
        return int(self._channel.fileno())

    def close(self) -> None:
        """Repeating it does nothing."""
        with contextlib.suppress(*channel_errors()):  # what the connection's end has closed already
            self._channel.close()

    @contextlib.contextmanager
    def _requested(self, refusal: str, deadline: float) -> Iterator[None]:
        import paramiko

        self._answer.deadline = deadline
        try:
            yield
        except TimeoutError:
            raise
        except channel_errors() as error:
            # A refused channel is closed from here, too; one whose connection ended is not.
            if isinstance(error, paramiko.SSHException) and self._channel.eof_sent:
                raise ShellError(f"{self.machine} {refusal}") from error
            raise self.lost(error) from error


class _Answer(threading.Event):
    """For the answer to a request paramiko waits without a limit; with this one until the deadline."""

    deadline = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        left = max(0.0, self.deadline - time.monotonic())
        if not super().wait(left if timeout is None else min(left, timeout)):
            raise TimeoutError
        return True
