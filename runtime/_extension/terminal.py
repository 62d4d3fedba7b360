"""Lines that stay below the output of this process, as long as something runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from runtime._process import progress
from runtime._process.core_worker import current_or_none


def is_shown() -> bool:
    """Whether this is a driver at a terminal."""
    core = current_or_none()
    if core is None or not core.is_driver:
        return False
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def show(key: str, lines: Sequence[str]) -> None:
    """Shows lines in place of those that were shown under the key."""
    _bars().show_lines(key, lines)


def remove(key: str, last_lines: Sequence[str] = ()) -> None:
    """Removes the lines of a key, and prints others for good."""
    _bars().remove_lines(key, last_lines)


def _bars() -> progress.BarManager:
    core = current_or_none()
    return progress.manager(core.session.node_host if core is not None else "127.0.0.1")
