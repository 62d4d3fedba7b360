"""Progress bars of tasks and actors, which the driver shows below its output."""

from __future__ import annotations

import builtins
import copy
import json
import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from runtime._process import progress
from runtime._process.core_worker import current_or_none
from runtime._process.progress import BarManager
from runtime._system import settings

__all__ = ["BarManager", "instance", "safe_print", "tqdm"]

_print = builtins.print


class tqdm:  # the name that tqdm's users know
    """A progress bar with the main part of tqdm's interface, for tasks, actors and drivers.

    Args:
        iterable: the items to iterate over, or None.
        desc: text in front of the bar.
        total: the number of steps; default: the length of `iterable`.
        unit: name of a step.
        position: order among the bars of one process.
        flush_interval_s: minimum time between two reports; default 1 s.
    """

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float | None = None,
    ) -> None:
        if total is None and iterable is not None:
            try:
                total = len(iterable)  # type: ignore[arg-type]
            except TypeError:
                total = None
        self._iterable = iterable
        self._desc = desc or ""
        self._total = total
        self._unit = unit or "it"
        core = current_or_none()
        self._in_worker = core is not None and not core.is_driver
        self._ip = core.session.node_host if core is not None else "127.0.0.1"
        self._position = position or 0
        self._uuid = uuid.uuid4().hex
        self._x = 0
        self._closed = False
        self._interval_s = 1.0 if flush_interval_s is None else flush_interval_s
        self._reported_s = float("-inf")

    def set_description(self, desc: str) -> None:
        """Sets the text in front of the bar."""
        self._desc = desc
        self._report()

    def update(self, n: int = 1) -> None:
        """Advances the bar by `n` steps."""
        self._x += n
        self._report()

    def refresh(self) -> None:
        """Reports, if `flush_interval_s` has passed."""
        self._report()

    def close(self) -> None:
        """Removes the bar. Idempotent."""
        if not self._closed:
            self._closed = True
            self._report(now=True)

    @property
    def total(self) -> int | None:
        """The number of steps."""
        return self._total

    @total.setter
    def total(self, total: int | None) -> None:
        self._total = total

    @property
    def n(self) -> int:
        """The number of steps done."""
        return self._x

    @n.setter
    def n(self, n: int) -> None:
        self._x = n

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise ValueError("No iterable provided")
        for item in self._iterable:
            yield item
            self.update(1)

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _report(self, now: bool = False) -> None:
        at = time.monotonic()
        if not now and at - self._reported_s < self._interval_s:
            return
        self._reported_s = at
        state = {
            "x": self._x,
            "pos": self._position,
            "desc": self._desc,
            "total": self._total,
            "unit": self._unit,
            "ip": self._ip,
            "pid": os.getpid(),
            "uuid": self._uuid,
            "closed": self._closed,
        }
        if self._in_worker:
            sys.stdout.write(f"{progress.TOKEN}{json.dumps(state)}\n")
            sys.stdout.flush()
        else:
            instance().process_state_update(copy.deepcopy(state))


def instance() -> BarManager:
    """The object that draws the bars of this process. From the first call on, `print` writes above the bars, unless
    RAY_TQDM_PATCH_PRINT is 0."""
    core = current_or_none()
    bars = progress.manager(core.session.node_host if core is not None else "127.0.0.1")
    if settings.TQDM_PATCH_PRINT.get() and builtins.print is _print:
        builtins.print = safe_print
    return bars


def safe_print(*args: Any, **kwargs: Any) -> None:
    """`print` that hides the bars meanwhile."""
    bars = progress.manager_or_none()
    shared = kwargs.get("file") in (None, sys.stdout, sys.stderr)
    if bars is None or not shared:
        _print(*args, **kwargs)
        return
    try:
        bars.hide_bars()
        _print(*args, **kwargs)
    finally:
        bars.unhide_bars()
