"""Joins the caller's terminal with a program in a pseudo-terminal of its own, as an ssh client does.

Works without a terminal too: what stdin brings is typed into the program, and its end is typed as Ctrl-D.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clusterctl.errors import process_status

from .piping import write_all

_END_OF_INPUT = b"\x04"
_AGAIN_S = 0.3
_MANY = 4096
_BLOCK = 65536


def join(arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    """Runs a program in a new pseudo-terminal until it ends; returns its exit status."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execvpe(arguments[0], list(arguments), dict(environment))
        finally:
            os._exit(127)
    try:
        connect(_Master(master))
    finally:
        os.close(master)
    _, status = os.waitpid(pid, 0)
    return process_status(os.waitstatus_to_exitcode(status))


class Terminal(Protocol):
    """A pseudo-terminal with a program on its other side."""

    def fileno(self) -> int:
        """Readable when there is something to read."""
        ...

    def recv(self, size: int, /) -> bytes:
        """Some of what the program shows; empty when the last process on the other side has left."""
        ...

    def sendall(self, data: bytes, /) -> None:
        """Types all of it. Raises OSError when nobody is on the other side."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """The window's size from now on."""
        ...


def window_size() -> tuple[int, int]:
    """Rows and columns of the caller's window; 24 and 80 without one."""
    if not os.isatty(sys.stdin.fileno()):
        return 24, 80
    size = os.get_terminal_size(sys.stdin.fileno())
    return size.lines, size.columns


def connect(terminal: Terminal) -> None:
    """Joins the caller's terminal with another until nobody is left on its other side."""
    stdin = sys.stdin.fileno()
    with _raw(stdin), _window_changes() as changed:
        terminal.resize(*window_size())
        _copy(stdin, sys.stdout.fileno(), terminal, changed)


@dataclass(frozen=True, slots=True)
class _Master:
    """The master side of a pseudo-terminal of this machine."""

    descriptor: int

    def fileno(self) -> int:
        return self.descriptor

    def recv(self, size: int, /) -> bytes:
        try:
            return os.read(self.descriptor, size)
        except OSError as error:
            if error.errno != errno.EIO:  # EIO: the last process on the other side has left
                raise
            return b""

    def sendall(self, data: bytes, /) -> None:
        write_all(self.descriptor, data)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.descriptor, (rows, columns))


def _copy(stdin: int, stdout: int, terminal: Terminal, changed: int) -> None:
    def send(data: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended, and reading says so
            terminal.sendall(data)

    shown = terminal.fileno()
    sources = [stdin, shown, changed]
    while True:
        # A program that was not listening yet missed the end, so it is typed until the program has ended.
        ready = select.select(sources, [], [], None if stdin in sources else _AGAIN_S)[0]
        if not ready:
            send(_END_OF_INPUT)
        if changed in ready:
            os.read(changed, _MANY)
            terminal.resize(*window_size())
        if shown in ready:
            data = terminal.recv(_BLOCK)
            if not data:
                return
            write_all(stdout, data)
        if stdin in ready:
            data = os.read(stdin, _BLOCK)
            if not data:
                sources.remove(stdin)
            send(data or _END_OF_INPUT)


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Every key goes to the program, Ctrl-C too, while this lasts."""
    if not os.isatty(descriptor):
        yield
        return
    saved = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)


@contextlib.contextmanager
def _window_changes() -> Iterator[int]:
    """Readable after the caller's window has changed. The signal only says so: whoever it interrupts may just be
    writing to the program, and could not be waited for."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def note(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):  # it is readable already
            os.write(writer, b"w")

    previous = signal.signal(signal.SIGWINCH, note)
    try:
        yield reader
    finally:
        signal.signal(signal.SIGWINCH, previous)
        os.close(reader)
        os.close(writer)
