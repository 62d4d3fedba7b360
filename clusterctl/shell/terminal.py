"""Joins the caller's terminal with a program in a pseudo-terminal of its own, as an ssh client does.

Works without a terminal too: what stdin brings is typed into the program, and its end is typed as Ctrl-D.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence

from clusterctl.errors import process_status

_END_OF_INPUT = b"\x04"
_AGAIN_S = 0.3


def join(arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    """Runs a program in a new pseudo-terminal until it ends; returns its exit status."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execvpe(arguments[0], list(arguments), dict(environment))
        finally:
            os._exit(127)
    stdin, stdout = sys.stdin.fileno(), sys.stdout.fileno()
    try:
        with _raw(stdin), _window_size(stdin, master):
            _copy(stdin, stdout, master)
    finally:
        os.close(master)
    _, status = os.waitpid(pid, 0)
    return process_status(os.waitstatus_to_exitcode(status))


def _copy(stdin: int, stdout: int, master: int) -> None:
    sources = [stdin, master]
    while True:
        # A program that was not listening yet missed the end, so it is typed until the program has ended.
        ready = select.select(sources, [], [], None if stdin in sources else _AGAIN_S)[0]
        if not ready:
            _write(master, _END_OF_INPUT)
        if master in ready:
            try:
                data = os.read(master, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # EIO: the last process on the other side has left
                    raise
                return
            if not data:
                return
            _write(stdout, data)
        if stdin in ready:
            data = os.read(stdin, 65536)
            if not data:
                sources.remove(stdin)
            _write(master, data or _END_OF_INPUT)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


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
def _window_size(descriptor: int, master: int) -> Iterator[None]:
    """The program's window is as large as the caller's, also after the caller's changes."""
    if not os.isatty(descriptor):
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        yield
        return

    def copy(*_: object) -> None:
        size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)

    previous = signal.signal(signal.SIGWINCH, copy)
    copy()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, previous)
