"""The thread that looks at the running executions of this process now and then, and shows bars and metrics."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import runtime
from runtime._extension import store, terminal
from runtime.data._exec.state import Execution
from runtime.data.context import DataContext
from runtime.exceptions import RayError

from . import bars, gauges
from .views import ExecutionView, view

log = logging.getLogger(__name__)
BARS_S = 0.2
"""How often bars are drawn."""
BEFORE_BARS_S = 0.5
"""Executions that end sooner show none."""
METRICS_S = 1.0
"""How often metrics are set."""
SPILLED_S = 5.0
"""How often the stores are asked what lies on disk."""
_numbers = itertools.count()


class Watched:
    """One execution that is looked at.

    Args:
        now: the clock of its loop.
    """

    def __init__(
        self, name: str | None, execution: Execution, context: DataContext, now: Callable[[], float]
    ) -> None:
        self.name = f"{name or 'dataset'}_{next(_numbers)}"
        self.has_bars = context.enable_progress_bars
        self.has_operator_bars = context.enable_operator_progress_bars
        self.patches_print = context.use_ray_tqdm
        self.since_s = time.monotonic()
        self._execution = execution
        self._now = now

    def view(self) -> ExecutionView:
        """What it does now."""
        return view(self._execution, self._now())


class Watcher:
    """All executions of this process. Its thread runs as long as there is one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: list[Watched] = []
        self._thread: threading.Thread | None = None
        self._metrics_due_s = 0.0
        self._spilled_due_s = 0.0

    @contextmanager
    def watching(self, watched: Watched) -> Iterator[None]:
        """Shows an execution until the block ends. What was shown goes then, but for a last line on a terminal."""
        failed = False
        if watched.has_bars and watched.patches_print and terminal.is_shown():
            _patch_print()  # before the caller prints: a line that is written while bars are drawn would break them
        with self._changed:
            self._watched.append(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="data sets' progress", daemon=True)
                self._thread.start()
        try:
            yield
        except BaseException as error:
            failed = not isinstance(error, GeneratorExit)
            raise
        finally:
            self._remove(watched, failed)

    def _remove(self, watched: Watched, failed: bool) -> None:
        with self._changed:
            self._watched.remove(watched)
            self._changed.notify()
            terminal.remove(watched.name, [bars.last_line(watched.name, watched.view(), failed)])
            gauges.remove(watched.name)

    def _run(self) -> None:
        try:
            while not self._is_over():
                now = time.monotonic()
                on_disk = None
                if now >= self._spilled_due_s:
                    self._spilled_due_s = now + SPILLED_S
                    on_disk = _on_disk()
                with self._changed:  # nothing is shown of an execution that was removed
                    self._look(now, on_disk)
        except Exception:
            log.exception("the progress of data sets cannot be shown")
            with self._changed:
                self._thread = None

    def _is_over(self) -> bool:
        """Waits until the next look. Whether there is nothing to look at any more."""
        with self._changed:
            pause_s = BARS_S if terminal.is_shown() else METRICS_S
            if not self._changed.wait_for(lambda: not self._watched, pause_s):
                return False
            self._thread = None
            return True

    def _look(self, now: float, on_disk: Callable[[str], int] | None) -> None:
        shows_bars = terminal.is_shown()
        sets_metrics = now >= self._metrics_due_s
        for watched in self._watched:
            seen = watched.view()
            if shows_bars and watched.has_bars and now - watched.since_s >= BEFORE_BARS_S:
                terminal.show(watched.name, bars.lines(watched.name, seen, watched.has_operator_bars))
            if sets_metrics:
                self._metrics_due_s = now + METRICS_S
                gauges.show(watched.name, seen)
            if on_disk is not None:
                gauges.show_spilled(watched.name, seen, on_disk)


def _patch_print() -> None:
    """Has `print` write above the bars, as `tqdm_ray` does."""
    from runtime.experimental import tqdm_ray

    tqdm_ray.instance()


def _on_disk() -> Callable[[str], int] | None:
    """How many bytes of the objects of tasks with a name lie on disk; None if the stores do not answer."""
    if (
        not runtime.is_initialized()
    ):  # whoever iterates has called `shutdown`: asking would start another session
        return None
    try:
        stores = store.stores()
    except RayError:
        return None
    found: dict[str, int] = {}
    for each in stores:
        for name, held in each.tags.items():
            found[name] = found.get(name, 0) + held.disk_bytes
    return lambda name: found.get(name[:200], 0)


watcher = Watcher()
"""The one of this process."""
