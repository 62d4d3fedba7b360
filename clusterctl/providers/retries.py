"""When a call of a cloud is made again. The SDKs' own retries are off: they hide that a cloud wants fewer calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from autoscaler.provider import ProviderError, Throttled, Transient

T = TypeVar("T")
OPERATORS_PATIENCE_S = 60.0
"""Of an operator, whom nobody else retries for. The autoscaler has its own patience."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0
_LEAST_TRIES = 5


def patiently(call: Callable[[], T], patience_s: float, *, repeatable: bool = True) -> T:
    """The result of a call that is made again while it raises `Transient`, with growing pauses: for so long, and a few
    times at least, as a laptop may have slept meanwhile.

    Args:
        patience_s: 0: it is made once.
        repeatable: to be carried out twice does no harm; else it is repeated only if it certainly was not.
    """
    until = time.monotonic() + patience_s
    pause_s, left = _FIRST_PAUSE_S, _LEAST_TRIES if patience_s else 1
    while True:
        left -= 1
        try:
            return call()
        except Transient as error:
            wait_s = random.uniform(pause_s / 2, pause_s)
            is_open = not repeatable and not isinstance(error, Throttled)
            if is_open or (time.monotonic() + wait_s > until and left <= 0):
                raise
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, max(_LONGEST_PAUSE_S, error.retry_after_s))


def while_raising(
    kind: type[ProviderError],
    call: Callable[[], T],
    for_s: float,
    poll_s: float,
    worth_it: Callable[[], bool] = lambda: True,
) -> T:
    """The result of a call that is made again while it raises errors of a kind, for so long at the most.

    Args:
        worth_it: asked before each further call; false: the error is raised.
    """
    until = time.monotonic() + for_s
    while True:
        try:
            return call()
        except kind:
            if time.monotonic() > until or not worth_it():
                raise
            time.sleep(poll_s)
