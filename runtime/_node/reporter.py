"""Reports of this node to the control store: its resources, its demand and since when it is idle; also the
heartbeat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from runtime._clients.control import ControlClient
from runtime._core.ledger import Ledger
from runtime._wire.messages.base import Demand
from runtime._wire.messages.control import NodeReport

MIN_INTERVAL_S = 0.05
FREED_INTERVAL_S = 0.005
"""After the end of an actor: the control store may have another one that waits for its resources."""
LOOK_S = 1.0
"""How often to look for changes without an event."""

HEARTBEAT_S = 3.0
"""The longest time between two reports: each wakes the control store, which receives those of all agents."""


class Reporter:
    """Sends a report after each change, at most every 50 ms (5 ms after an actor's end), and at least every 3 s.

    Args:
        is_busy: whether anything holds the node.
        demands: what waits here.
        held: the leases of workers of this node, by request.
        bound_by: what else holds the node.
        store_used_bytes: how much memory objects take.
        on_beat: called every second.
    """

    def __init__(
        self,
        node_id: bytes,
        control: ControlClient,
        ledger: Ledger,
        is_busy: Callable[[], bool],
        demands: Callable[[], list[Demand]],
        held: Callable[[], list[Demand]],
        bound_by: Callable[[], str],
        store_used_bytes: Callable[[], int],
        on_beat: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._control = control
        self._ledger = ledger
        self._is_busy = is_busy
        self._demands = demands
        self._held = held
        self._bound_by = bound_by
        self._store_used_bytes = store_used_bytes
        self._on_beat = on_beat
        self._last: NodeReport | None = None
        self._last_sent = float("-inf")
        self._pending: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self.idle_since_s = time.time()

    def start(self) -> None:
        """Begins to report. The first report goes out at once."""
        self._beat()

    def close(self) -> None:
        """Ends reporting."""
        for handle in (self._pending, self._heartbeat):
            if handle is not None:
                handle.cancel()
        self._heartbeat = self._pending = None

    def changed(self) -> None:
        """Something that the control store should know may have changed."""
        if self._pending is None:
            self._report_after(MIN_INTERVAL_S)

    def freed(self) -> None:
        """An actor's resources are free."""
        if self._pending is not None:
            self._pending.cancel()
        self._report_after(FREED_INTERVAL_S)

    def _report_after(self, interval_s: float) -> None:
        if self._heartbeat is not None:
            loop = asyncio.get_running_loop()
            delay_s = max(0.0, self._last_sent + interval_s - loop.time())
            self._pending = loop.call_later(delay_s, self._report)

    def report_now(self) -> None:
        """Reports now, so that the report precedes later messages."""
        if self._pending is not None:
            self._pending.cancel()
        if self._heartbeat is not None:
            self._report()

    def note_idleness(self) -> None:
        """Takes note of whether anything holds the node, between reports."""
        if self._is_busy():
            self.idle_since_s = 0.0
        elif not self.idle_since_s:
            self.idle_since_s = time.time()

    def repeat(self) -> None:
        """The next report goes out even if nothing changed: the control store is a new one, or may have counted
        what it asked for twice, as its own promise and as ours."""
        self._last = None
        self.changed()

    def _report(self, force: bool = False) -> None:
        self._pending = None
        self.note_idleness()
        report = NodeReport(
            self._node_id,
            dict(self._ledger.total),
            dict(self._ledger.available),
            self._demands(),
            self.idle_since_s,
            self._store_used_bytes(),
            self._held(),
            self._bound_by(),
        )
        if force or report != self._last:
            self._last = report
            self._last_sent = asyncio.get_running_loop().time()
            self._control.send(report, keep=False)

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        silent_s = loop.time() - self._last_sent
        # Half a look less: the last report may have gone out somewhat after its own.
        self._report(force=silent_s > HEARTBEAT_S - LOOK_S / 2)
        self._heartbeat = loop.call_later(LOOK_S, self._beat)
        self._on_beat()
