"""How worker processes end, and the children that user code forked."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn


def flush_output() -> None:
    """Writes out what user code printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # user code closed it, or the disk is full: nobody is left to tell


def exit_status(error: SystemExit) -> int:
    """The status that Python itself would end with."""
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def end_fork() -> NoReturn:
    """User code forked, and the child came back from it: the call is its parent's, who answers for it."""
    error = sys.exception()
    status = 0
    if isinstance(error, SystemExit):
        status = exit_status(error)
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    flush_output()
    os._exit(status)
