"""`python -m clusterctl` and the `clusterctl` command."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

_INTERRUPTED = 130  # clusterctl.errors.ExitCode.INTERRUPTED, whose import may be what was interrupted


def main() -> NoReturn:
    """Runs the command line and exits."""
    try:
        from clusterctl.app import app

        app(prog_name="clusterctl")
        status: str | int | None = 0
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        # A Ctrl-C inside an exec() makes CPython kill itself with SIGINT at the end, although it was handled.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(_INTERRUPTED)
    sys.exit(status)


if __name__ == "__main__":
    main()
