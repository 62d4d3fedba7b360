"""How long the API is asked again, on a clock of the test."""

from __future__ import annotations

import pytest

from autoscaler.provider import PortClosed, ShellError
from clusterctl import api_client
from clusterctl.api_client import ApiClient, TunnelLog
from clusterctl.errors import Unreachable


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("failure", "least_s", "most_s", "words"),
    [
        (PortClosed("h:22: port 8265: Connection refused"), 3.0, 8.0, "does not answer"),
        (ShellError("h:22: its sshd opens no tunnel"), 55.0, 60.0, "no way to the head of cluster 'c': h:22"),
        (None, 55.0, 60.0, "does not answer"),
    ],
)
def test_a_head_that_has_ended_is_told_before_a_network_that_fails(
    monkeypatch: pytest.MonkeyPatch, failure: ShellError | None, least_s: float, most_s: float, words: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(api_client, "time", clock)
    client = ApiClient("http://127.0.0.1:1", "secret", "c", tunnel=TunnelLog(failure))
    with pytest.raises(Unreachable, match=words):
        client.request("GET", "/api/version", patience_s=60.0)
    assert least_s <= clock.now_s <= most_s
