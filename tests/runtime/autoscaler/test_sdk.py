"""request_resources: what it tells the control store, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import runtime as ray
from runtime._process.core_worker import current
from runtime._wire.messages.control import WatchClusterState
from runtime.autoscaler.sdk import request_resources
from tests.polling import eventually


@pytest.fixture(scope="module")
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=1)
    yield
    ray.shutdown()


def requested() -> list[tuple[dict[str, int], int]]:
    state: Any = current().ask(WatchClusterState(-1, 0.0))
    return list(zip(state.requested, state.requested_counts, strict=True))


def owners() -> dict[str, bool]:
    """Who requests something -> whether it ends with this program."""
    state: Any = current().ask(WatchClusterState(-1, 0.0))
    return {who.owner: who.job_id == current().job_id for who in state.requesters}


@pytest.mark.usefixtures("session")
def test_each_call_replaces_the_last_one() -> None:
    request_resources(num_cpus=2, bundles=[{"GPU": 0.5}])
    assert requested() == [({"CPU": 10_000}, 2), ({"GPU": 5_000}, 1)]
    request_resources(bundles=[{"CPU": 3}])
    assert requested() == [({"CPU": 30_000}, 1)]
    request_resources(num_cpus=0)
    assert requested() == []


@pytest.mark.usefixtures("session")
def test_equal_bundles_are_counted() -> None:
    request_resources(50_000, [{"CPU": 2}, {"CPU": 1}, {"CPU": 2}, {"CPU": 0}])
    assert requested() == [({"CPU": 10_000}, 50_001), ({"CPU": 20_000}, 2)]
    request_resources()
    assert requested() == []


@pytest.mark.usefixtures("session")
def test_bundles_may_choose_their_nodes() -> None:
    request_resources(1, [{"CPU": 2}, {"CPU": 2}], [{"zone": "a"}, {"zone": "!b"}])
    state: Any = current().ask(WatchClusterState(-1, 0.0))
    assert state.requested == [{"CPU": 10_000}, {"CPU": 20_000}, {"CPU": 20_000}]
    assert state.requested_selectors == [{}, {"zone": "a"}, {"zone": "!b"}]
    request_resources(num_cpus=0)


@pytest.mark.usefixtures("session")
def test_owners_have_requests_of_their_own() -> None:
    request_resources(1)
    request_resources(2, owner="with the program")
    request_resources(3, owner="on its own", ttl_s=3600.0)
    program = current().job_id.hex()
    assert owners() == {program: True, "with the program": True, "on its own": False}
    request_resources(4, owner="on its own", ttl_s=3600.0)
    assert sorted(count for _, count in requested()) == [1, 2, 4]
    for owner in (None, "with the program", "on its own"):
        request_resources(num_cpus=0, owner=owner)
    assert owners() == {}


@pytest.mark.usefixtures("session")
def test_it_is_forgotten_when_its_time_is_over() -> None:
    request_resources(5, ttl_s=0.2)
    assert eventually(lambda: requested() == [])


@pytest.mark.usefixtures("session")
def test_it_ends_with_the_program() -> None:
    address = ray.get_runtime_context().gcs_address
    program = f"""
import runtime as ray
from runtime._wire.messages.control import WatchClusterState
from runtime._process.core_worker import current
from runtime.autoscaler.sdk import request_resources
ray.init(address={address!r})
request_resources(num_cpus=7)
request_resources(num_cpus=8, ttl_s=3600)
request_resources(num_cpus=9, owner="named")
request_resources(num_cpus=10, owner="stays", ttl_s=3600)
state = current().ask(WatchClusterState(-1, 0.0))
print(state.requested_counts)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[8, 9, 10]", done.stderr
    assert eventually(lambda: owners() == {"stays": False})
    request_resources(num_cpus=0, owner="stays")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_cpus": "2"}, TypeError),
        ({"num_cpus": 1.0}, TypeError),
        ({"num_cpus": -1}, ValueError),
        ({"bundles": 3}, TypeError),
        ({"bundles": [3]}, TypeError),
        ({"bundles": [{1: 1}]}, TypeError),
        ({"bundles": [{"CPU": True}]}, TypeError),
        ({"bundles": [{"CPU": "1"}]}, TypeError),
        ({"bundles": [{"CPU": -1}]}, ValueError),
        ({"bundle_label_selectors": [{"zone": "a"}]}, ValueError),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": []}, ValueError),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": ["x"]}, ValueError),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": [{"zone": 1}]}, ValueError),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": [{"zone": "in("}]}, ValueError),
        ({"num_cpus": 1, "ttl_s": 0.0}, ValueError),
        ({"num_cpus": 1, "ttl_s": float("inf")}, ValueError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        request_resources(**arguments)


def test_a_program_must_be_connected() -> None:
    program = "from runtime.autoscaler.sdk import request_resources\nrequest_resources(1)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "RuntimeError: Ray is not initialized yet" in done.stderr
