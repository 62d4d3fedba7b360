"""Shows a run in the program that waits for it: a table on a terminal, a line in the log elsewhere."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import runtime
from runtime._extension import terminal
from runtime.exceptions import GetTimeoutError, RayError
from runtime.train._core import table
from runtime.train._core.states import State
from runtime.train._run import room

if TYPE_CHECKING:
    from runtime.train._api.config import ScalingConfig

log = logging.getLogger(__name__)
TABLE_S = 1.0
LINE_S = 30.0
ROOM_S = 5.0
"""A run without room says so after this time, and then after twice as long, and so on."""
LOOK_S = 5.0
"""How long the controller may take to answer; then nothing is shown this time."""


def wait_for(run: Any, controller: Any, name: str, scaling: ScalingConfig) -> None:
    """Waits until a run has ended.

    Args:
        run: the reference to its result.
        controller: its actor.
        scaling: its workers.
    """
    rates, start = table.Rates(), time.monotonic()
    key = f"train run {name}"
    line_s, room_s = start + LINE_S, start + ROOM_S
    try:
        while True:
            is_shown = terminal.is_shown()
            now = time.monotonic()
            pause_s = TABLE_S if is_shown else max(0.0, min(line_s, room_s) - now)
            ready, _ = runtime.wait([run], timeout=pause_s, fetch_local=False)
            if ready:
                return
            view = _look(controller)
            now = time.monotonic()
            if now >= room_s:
                room_s = now + (now - start)
                if view is None or view.state in (State.SCHEDULING.value, State.RESCHEDULING.value):
                    _warn_of_shortage(name, scaling, now - start)
            is_time = is_shown or now >= line_s
            if not is_time:
                continue
            line_s = now + LINE_S
            if view is None:
                continue
            of_ranks = rates.of(view, now)
            if is_shown:
                terminal.show(key, table.lines(name, view, of_ranks, now - start))
            else:
                log.info("%s", table.line(name, view, of_ranks, now - start))
    finally:
        terminal.remove(key)


def _warn_of_shortage(name: str, scaling: ScalingConfig, waited_s: float) -> None:
    try:
        lacking = room.shortage(scaling)
    except (RayError, GetTimeoutError) as error:
        log.info("train run %s: it is not known whether there is room: %s", name, error)
        return
    if lacking:
        log.warning("train run %s, %.0f s after its start: %s", name, waited_s, lacking)


def _look(controller: Any) -> table.RunView | None:
    try:
        view: table.RunView | None = runtime.get(controller.look.remote(), timeout=LOOK_S)
    except (RayError, GetTimeoutError):  # it restarts, or ends
        return None
    return view
