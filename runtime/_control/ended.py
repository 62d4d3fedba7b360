"""The processes that have ended, the tasks they had submitted, and the cluster's events, for `runtime.util.state`."""

from __future__ import annotations

from collections import deque
from typing import Any

from runtime._control.context import Handlers
from runtime._control.events import ClusterEvents
from runtime._core.row_filters import chosen
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Ok
from runtime._wire.messages.control import EndedRows, ListEnded, ReportEnded

KEPT = {"tasks": 10_000, "workers": 1_000}
"""How many rows there are of each kind, the latest; in memory alone."""


class EndedService:
    """Keeps the last rows that were reported.

    Args:
        events: is told of processes.
    """

    def __init__(self, events: ClusterEvents) -> None:
        self._events = events
        self._rows: dict[str, deque[dict[str, Any]]] = {
            kind: deque(maxlen=most) for kind, most in KEPT.items()
        }

    def handlers(self) -> Handlers:
        return {ListEnded: self.list_ended, ReportEnded: self.report}

    def list_ended(self, _: Channel, message: ListEnded) -> EndedRows:
        """The rows that pass; none of a kind that nothing is kept of."""
        rows = self._events.rows if message.kind == "cluster_events" else self._rows.get(message.kind, ())
        return EndedRows(chosen(rows, message.filters, message.limit))

    def report(self, _: Channel, message: ReportEnded) -> Ok:
        """Takes rows. A report may come twice."""
        kept = self._rows.get(message.kind)
        if kept is None:
            raise CallError(ErrorKind.INVALID, f"nothing is kept of {message.kind!r}")
        kept.extend(message.rows)
        if message.kind == "workers":
            self._events.processes_ended(message.rows)
        return Ok()
