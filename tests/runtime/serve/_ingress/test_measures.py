"""Metrics of an ingress, as requests leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime.serve._ingress.measures import Measures, is_failure
from tests.runtime.serve._ingress.conftest import Served
from tests.runtime.serve._ingress.test_http import ask


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, float, dict[str, str]]]:
    """What reaches the process's metrics: (kind, name, value, tags)."""
    from runtime.util import metrics

    found = []

    class Recorder:
        def record(self, kind: str, name: str, _: str, __: Any, value: float, tags: Any) -> None:
            found.append((kind, name, value, dict(tags)))

        def count_all(self, name: str, _: str, __: Any, values: list[float], tags: Any) -> None:
            for value in values:
                self.record("histogram", name, _, __, value, tags)

    monkeypatch.setattr(metrics, "metrics", Recorder())
    return found


def test_requests_are_counted_by_route_and_status(serve: Callable[..., Served], recorded: list[Any]) -> None:
    served = serve()
    measures = Measures("http", "n1")
    served.app._measures = measures
    assert ask(served, "/sub/ok")[0] == 200
    assert ask(served, "/sub/ok")[0] == 200
    assert ask(served, "/full")[0] == 503
    served.until(served.is_idle)

    async def record() -> None:
        measures.close()

    served.run(record())
    counts = {
        (tags["route"], tags.get("status_code") or tags.get("error_code"), name): value
        for kind, name, value, tags in recorded
        if kind == "counter"
    }
    assert counts == {
        ("/sub", "200", "serve_num_http_requests"): 2,
        ("/full", "503", "serve_num_http_requests"): 1,
        ("/full", "503", "serve_num_http_error_requests"): 1,
    }
    latencies = [value for _, name, value, _ in recorded if name == "serve_http_request_latency_ms"]
    assert len(latencies) == 3
    assert min(latencies) > 0
    assert ("gauge", "serve_num_ongoing_http_requests", 0, {"node_id": "n1"}) in recorded


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        ("200", False),
        ("404", True),
        ("503", True),
        ("1000", False),
        ("1011", True),
        ("OK", False),
        ("INTERNAL", True),
    ],
)
def test_which_status_is_a_failure(status: str, failed: bool) -> None:
    assert is_failure(status) is failed
