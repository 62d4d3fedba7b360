"""Metrics of the requests of a replica. They are gathered and recorded a few times per second: one request costs little
more than the time it takes to append a number to a list."""

from __future__ import annotations

from runtime.serve import metrics
from runtime.serve._replica.running import Running


class Measures:
    """Of one replica. Made after `context.set_replica`, which tells the tags."""

    def __init__(self) -> None:
        route = ("route",)
        metrics.Counter("serve_deployment_replica_starts", "Times that a replica was started.").inc()
        self._requests = metrics.Counter(
            "serve_deployment_request_counter", "Requests that have ended.", route
        )
        self._errors = metrics.Counter(
            "serve_deployment_error_counter", "Requests that raised.", ("route", "exception_type")
        )
        self._latency = metrics.Histogram(
            "serve_deployment_processing_latency_ms", "How long requests ran.", metrics.LATENCIES_MS, route
        )
        self._ongoing = metrics.Gauge("serve_replica_processing_queries", "Requests that run.")
        self._ongoing.set(0)
        self._latencies: dict[str, list[float]] = {}
        self._failed: dict[tuple[str, str], int] = {}

    def ended(self, request: Running, seconds: float) -> None:
        """A request has ended."""
        route = request.meta.route
        latencies = self._latencies.get(route)
        if latencies is None:
            latencies = self._latencies[route] = []
        latencies.append(seconds * 1000)
        if request.error is not None:
            key = (route, type(request.error).__name__)
            self._failed[key] = self._failed.get(key, 0) + 1

    def record(self, ongoing: int) -> None:
        """Records what was gathered."""
        self._ongoing.set(ongoing)
        gathered, self._latencies = self._latencies, {}
        for route, latencies in gathered.items():
            tags = {"route": route}
            self._requests.inc(len(latencies), tags)
            self._latency._observe_all(latencies, tags)
        failed, self._failed = self._failed, {}
        for (route, kind), count in failed.items():
            self._errors.inc(count, {"route": route, "exception_type": kind})
