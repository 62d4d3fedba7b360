"""Settings of the Python interpreter that this library changes, each with what it costs and what it gains.

Nothing else in these packages touches the garbage collector or the switch interval. The environment variable
`RUNTIME_PLAIN_INTERPRETER=1` turns all of it off, for debugging: daemons and workers inherit it from the driver.

- Records without garbage collection (`TRACK_RECORDS`). Gain: up to a third of the time of a submission where tasks
  queue up. Cost: a cycle through a record is never collected, so code that makes one must break it.
- No collections during a process's first imports (`startup`). Gain: a tenth of the start of a daemon or a command.
  Cost: none, as what is imported stays.
- Objects that stay are frozen (`startup`, `freeze`). Gain: later collections skip them, and forked workers share their
  pages. Cost: what has become garbage by then is never collected.
- A shorter switch interval (`shorten_switch_interval`). Gain: a reply beside user code that computes waits 1 ms
  per turn instead of 5 ms. Cost: threads of user code that compute switch more often.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from . import settings

IS_PLAIN = settings.PLAIN_INTERPRETER.get_or_default()
"""Whether the settings stay as Python has them."""

TRACK_RECORDS = IS_PLAIN
"""The `gc=` of the msgspec structs of which there may be millions, messages among them: whether the garbage collector
visits their instances. msgspec decides this when it creates the class."""

SWITCH_S = 0.001


@contextlib.contextmanager
def startup() -> Iterator[None]:
    """Context for the start of a process: the garbage collector rests meanwhile, and ignores what was made then."""
    if IS_PLAIN:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def freeze() -> None:
    """Tells the garbage collector to ignore all objects that exist now."""
    if not IS_PLAIN:
        gc.freeze()


def shorten_switch_interval() -> float | None:
    """Shortens the time for which a computing thread keeps the interpreter while other threads want it.

    To serve a message takes several turns. At Python's own 5 ms for each of them, replies would wait for tens of
    milliseconds beside user code that computes.

    Returns:
        What `restore_switch_interval` needs; None if nothing was changed.
    """
    before = sys.getswitchinterval()
    if IS_PLAIN or before <= SWITCH_S:
        return None
    sys.setswitchinterval(SWITCH_S)
    return before


def restore_switch_interval(before: float | None) -> None:
    """Undoes `shorten_switch_interval`, unless the program has set an interval of its own since."""
    if before is not None and sys.getswitchinterval() == SWITCH_S:
        sys.setswitchinterval(before)
