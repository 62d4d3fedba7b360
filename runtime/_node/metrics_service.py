"""The node's metrics as Prometheus reads them: those of user programs as its processes reported them last, and what the
agent itself knows of the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from runtime._wire.messages.node import Metric, MetricsReport

from .processes import Process

log = logging.getLogger(__name__)

KEPT_DEAD = 1000
_REQUEST_TIMEOUT_S = 5.0
_MAX_HEADER_BYTES = 16 * 1024


class Sample(msgspec.Struct):
    """One line: a name, its labels and a value."""

    name: str
    labels: list[tuple[str, str]]
    value: float


class Family(msgspec.Struct):
    """The samples under one name."""

    kind: str  # counter gauge histogram
    description: str
    samples: list[Sample] = msgspec.field(default_factory=list)


class MetricsService:
    """Keeps what was reported and serves it over HTTP.

    Args:
        host: where to listen.
        labels: of every sample.
        own: what the agent knows: (name, description, value, labels).
    """

    def __init__(
        self,
        host: str,
        labels: list[tuple[str, str]],
        own: Callable[[], Iterable[tuple[str, str, float, list[tuple[str, str]]]]],
    ) -> None:
        self._host = host
        self._labels = labels
        self._own = own
        self._reports: dict[bytes, MetricsReport] = {}
        self._dead: set[bytes] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Begins to listen on a free port.

        Raises:
            OSError: it cannot.
        """
        self._server = await asyncio.start_server(self._answer, self._host, 0, limit=_MAX_HEADER_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()

    def report(self, process: Process, message: MetricsReport) -> None:
        """A process says what its metrics are."""
        self._reports[process.address.worker_id] = message

    def process_ended(self, worker_id: bytes) -> None:
        """What a dead process counted still counts; what it measured does not hold any more."""
        report = self._reports.get(worker_id)
        if report is None:
            return
        self._reports[worker_id] = MetricsReport(
            [m for m in report.metrics if m.kind != "gauge"], report.at_s
        )
        self._dead.add(worker_id)
        for oldest in [known for known in self._reports if known in self._dead][:-KEPT_DEAD]:
            del self._reports[oldest]
            self._dead.discard(oldest)

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        families: dict[str, Family] = {}
        for name, description, value, labels in self._own():
            family = families.setdefault(f"ray_{name}", Family("gauge", description))
            family.samples.append(Sample(f"ray_{name}", [*self._labels, *labels], value))
        for worker_id, report in self._reports.items():
            for metric in report.metrics:
                _add(families, metric, [*self._labels, ("WorkerId", worker_id.hex())])
        lines: list[str] = []
        for name, family in families.items():
            lines.append(f"# HELP {name} {_escaped(family.description)}")
            lines.append(f"# TYPE {name} {family.kind}")
            lines += [_line(sample) for sample in family.samples]
        return "\n".join(lines) + "\n"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.partition(b" ")
                path = rest.partition(b" ")[0].partition(b"?")[0]
                if method != b"GET" or path not in (b"/", b"/metrics"):
                    status, body = "404 Not Found", "GET /metrics\n"
                else:
                    status, body = "200 OK", self.text()
                data = body.encode()
                header = (
                    f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(header.encode() + data)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a reader of metrics went away: %s", error)
        finally:
            writer.close()


def _add(families: dict[str, Family], metric: Metric, labels: list[tuple[str, str]]) -> None:
    name = f"ray_{metric.name}"
    if metric.kind == "histogram":
        family = families.setdefault(name, Family("histogram", metric.description))
        for series in metric.series:
            tags = [*labels, *series.tags]
            *buckets, total = series.numbers
            count = 0.0
            for boundary, amount in zip([*metric.boundaries, float("inf")], buckets, strict=True):
                count += amount
                le = "+Inf" if boundary == float("inf") else repr(float(boundary))
                family.samples.append(Sample(f"{name}_bucket", [*tags, ("le", le)], count))
            family.samples.append(Sample(f"{name}_count", tags, count))
            family.samples.append(Sample(f"{name}_sum", tags, total))
        return
    # Ray shows a counter under both names.
    names = [(name, "gauge"), (f"{name}_total", "counter")] if metric.kind == "counter" else [(name, "gauge")]
    for shown, kind in names:
        family = families.setdefault(shown, Family(kind, metric.description))
        for series in metric.series:
            family.samples.append(Sample(shown, [*labels, *series.tags], series.numbers[0]))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{key}="{_escaped(value, quotes=True)}"' for key, value in sample.labels)
    return f"{sample.name}{{{labels}}} {sample.value!r}"


def _escaped(text: str, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def machine_metrics() -> list[tuple[str, str, float, list[tuple[str, str]]]]:
    """What the machine says of itself."""
    import psutil  # not before somebody asks: the agent comes up faster

    memory = psutil.virtual_memory()
    return [
        ("node_cpu_utilization", "CPU in use, in percent", psutil.cpu_percent(), []),
        ("node_cpu_count", "CPUs of the machine", float(psutil.cpu_count() or 1), []),
        ("node_mem_used", "memory in use, in bytes", float(memory.used), []),
        ("node_mem_available", "memory to be had, in bytes", float(memory.available), []),
        ("node_mem_total", "memory of the machine, in bytes", float(memory.total), []),
    ]
