"""Google's SDK against the pretended platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterctl.providers import prices, retries
from clusterctl.providers.gcp import api as apis
from clusterctl.providers.gcp.provider import GcpMachines
from clusterctl.providers.protocol import Seat
from clusterctl.spec.load import load_text
from tests.testbed.gcp.server import Cloud


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.setattr(apis, "_PAUSE_S", 0.01)
    monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(prices, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(retries, "OPERATORS_PATIENCE_S", 0.1)
    with Cloud() as cloud:
        yield cloud
        apis.of.cache_clear()


@pytest.fixture
def make(cloud: Cloud, tmp_path: Path) -> Callable[..., GcpMachines]:
    def make(
        cluster_id: str = "c-1", name: str = "c", more: str = "", seat: Seat = Seat.OPERATOR, **settings: str
    ) -> GcpMachines:
        spec = load_text(
            f"cluster_name: {name}\nhead_node_type: small\navailable_node_types: {{small: {{}}, gpu: {{}}}}\n"
            f"provider: {{type: gcp, region: us-west1, project_id: a-project, endpoint: '{cloud.endpoint}'{more}}}\n"
        )
        known = {} if "owner_file" in settings else {"owner": "me"}
        return GcpMachines(spec, cluster_id, {**known, "folder": str(tmp_path / name), **settings}, seat)

    return make


@pytest.fixture
def provider(make: Callable[..., GcpMachines]) -> GcpMachines:
    return make()
