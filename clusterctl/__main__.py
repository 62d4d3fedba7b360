"""`python -m clusterctl` and the `clusterctl` command."""

from __future__ import annotations

import os
import signal
import sys

from runtime._system import interpreter

_INTERRUPTED = 130  # clusterctl.errors.ExitCode.INTERRUPTED, whose import may be what was interrupted


def main() -> None:
    """Runs the command line and exits."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not when somebody had it ignored
        signal.signal(signal.SIGINT, _end_early)
    status: str | int | None = 0
    try:
        with interpreter.startup():
            from clusterctl.app import app
        app(prog_name="clusterctl")
    except SystemExit as end:
        status = end.code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is over: what the command said stays true
    _flush()
    if status == _INTERRUPTED:
        # A Ctrl-C inside an exec() makes CPython kill itself with SIGINT at the end, although it was handled.
        os._exit(_INTERRUPTED)
    sys.exit(status)


def _flush() -> None:
    """Writes what is buffered. Where nobody reads it any more, Python's own attempt at the end must not fail: that
    would change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        except ValueError:
            continue  # closed


def _end_early(number: int, frame: object) -> None:
    """Ctrl-C before the command has begun: nothing was done, so nothing has to be undone."""
    os.write(2, b"error: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
