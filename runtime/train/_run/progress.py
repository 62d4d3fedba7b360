"""Shows a run in the program that waits for it: a table on a terminal, a line in the log elsewhere."""

from __future__ import annotations

import logging
import time
from typing import Any

import runtime
from runtime._extension import terminal
from runtime.exceptions import GetTimeoutError, RayError
from runtime.train._core import table

log = logging.getLogger(__name__)
TABLE_S = 1.0
LINE_S = 30.0
LOOK_S = 5.0
"""How long the controller may take to answer; then nothing is shown this time."""


def wait_for(run: Any, controller: Any, name: str) -> None:
    """Waits until a run has ended.

    Args:
        run: the reference to its result.
        controller: its actor.
    """
    rates, start = table.Rates(), time.monotonic()
    key = f"train run {name}"
    try:
        while True:
            is_shown = terminal.is_shown()
            ready, _ = runtime.wait([run], timeout=TABLE_S if is_shown else LINE_S, fetch_local=False)
            if ready:
                return
            view = _look(controller)
            now = time.monotonic()
            if view is None:
                continue
            of_ranks = rates.of(view, now)
            if is_shown:
                terminal.show(key, table.lines(name, view, of_ranks, now - start))
            else:
                log.info("%s", table.line(name, view, of_ranks, now - start))
    finally:
        terminal.remove(key)


def _look(controller: Any) -> table.RunView | None:
    try:
        view: table.RunView | None = runtime.get(controller.look.remote(), timeout=LOOK_S)
    except (RayError, GetTimeoutError):  # it restarts, or ends
        return None
    return view
