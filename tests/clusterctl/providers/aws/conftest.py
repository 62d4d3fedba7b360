"""AWS as `tests.testbed.aws` plays it. Real hosts are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterctl.providers import cloud, prices, retries
from clusterctl.providers.aws import clients, network
from clusterctl.providers.aws import provider as module
from tests.clusterctl.providers.aws.cluster import Cluster, Make
from tests.testbed.aws import Aws, as_a_person


@pytest.fixture(scope="module")
def service() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws


@pytest.fixture
def aws(service: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setattr(retries, "OPERATORS_PATIENCE_S", 2.0)
    monkeypatch.setattr(prices, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(module, "_YOUNG_S", 1.0)
    monkeypatch.setattr(clients, "_YOUNG_S", 1.0)
    monkeypatch.setattr(clients, "_YOUNG_POLL_S", 0.02)
    monkeypatch.setattr(network, "_LAG_S", 0.0)
    monkeypatch.setattr(module, "_POLL_S", 0.02)
    monkeypatch.setattr(cloud, "_POLL_S", 0.02)
    service.reset()
    with as_a_person():
        yield service


@pytest.fixture
def cluster(aws: Aws, tmp_path: Path) -> Make:
    return lambda **parts: Cluster(aws, tmp_path, **parts)
