"""Metrics of the requests that an ingress takes, under Ray's names. They are gathered and recorded a few times per
second: one request costs the time to append a number to a list."""

from __future__ import annotations

import asyncio

from runtime.serve.metrics import LATENCIES_MS
from runtime.util import metrics

RECORD_S = 0.5
_TAGS = ("route", "method", "application", "status_code")
_ERROR_TAGS = ("route", "error_code", "method", "application")
Key = tuple[str, str, str, str]
"""Route, method, application and status."""


class Measures:
    """Of one ingress and protocol. Belongs to the event loop on which the first request ends.

    Args:
        protocol: "http" or "grpc".
        node: id of the node.
    """

    def __init__(self, protocol: str, node: str) -> None:
        name = "gRPC" if protocol == "grpc" else "HTTP"
        self._requests = metrics.Counter(
            f"serve_num_{protocol}_requests", f"{name} requests that have ended.", _TAGS
        )
        self._errors = metrics.Counter(
            f"serve_num_{protocol}_error_requests", f"{name} requests that have failed.", _ERROR_TAGS
        )
        self._latency = metrics.Histogram(
            f"serve_{protocol}_request_latency_ms", f"How long {name} requests took.", LATENCIES_MS, _TAGS
        )
        self._ongoing = metrics.Gauge(
            f"serve_num_ongoing_{protocol}_requests", f"{name} requests that are under way.", ("node_id",)
        )
        self._ongoing.set_default_tags({"node_id": node})
        self._latencies: dict[Key, list[float]] = {}
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, key: Key, seconds: float, running: int) -> None:
        """A request has ended; `running` others have not."""
        latencies = self._latencies.get(key)
        if latencies is None:
            latencies = self._latencies[key] = []
        latencies.append(seconds * 1000)
        self._running = running
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RECORD_S, self.record)

    def record(self) -> None:
        """Records what was gathered."""
        self._timer = None
        self._ongoing.set(self._running)
        gathered, self._latencies = self._latencies, {}
        for key, latencies in gathered.items():
            tags = dict(zip(_TAGS, key, strict=True))
            self._requests.inc(len(latencies), tags)
            self._latency._observe_all(latencies, tags)
            route, method, application, status = key
            if is_failure(status):
                self._errors.inc(
                    len(latencies), dict(zip(_ERROR_TAGS, (route, status, method, application), strict=True))
                )

    def close(self) -> None:
        """Records what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self.record()


def is_failure(status: str) -> bool:
    """Whether a request with this status counts as failed: of HTTP, a code that closed a WebSocket, or a name of
    gRPC."""
    if status.isdigit():
        return status == "1011" or 400 <= int(status) < 600
    return status != "OK"
