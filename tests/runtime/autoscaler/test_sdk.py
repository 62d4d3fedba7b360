"""request_resources: what it tells the control store, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import runtime as ray
from runtime._wire.messages.control import WatchClusterState
from runtime._worker.core_worker import current
from runtime.autoscaler.sdk import request_resources
from tests.polling import eventually


@pytest.fixture(scope="module")
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=1)
    yield
    ray.shutdown()


def requested() -> list[dict[str, int]]:
    state: Any = current().ask(WatchClusterState(-1, 0.0))
    return list(state.requested)


@pytest.mark.usefixtures("session")
def test_each_call_replaces_the_last_one() -> None:
    request_resources(num_cpus=2, bundles=[{"GPU": 0.5}])
    assert requested() == [{"CPU": 10_000}, {"CPU": 10_000}, {"GPU": 5_000}]
    request_resources(bundles=[{"CPU": 3}])
    assert requested() == [{"CPU": 30_000}]
    request_resources(num_cpus=0)
    assert requested() == []


@pytest.mark.usefixtures("session")
def test_bundles_may_choose_their_nodes() -> None:
    request_resources(1, [{"CPU": 2}, {"CPU": 3}], [{"zone": "a"}, {"zone": "!b"}])
    state: Any = current().ask(WatchClusterState(-1, 0.0))
    assert state.requested == [{"CPU": 10_000}, {"CPU": 20_000}, {"CPU": 30_000}]
    assert state.requested_selectors == [{}, {"zone": "a"}, {"zone": "!b"}]
    request_resources(num_cpus=0)
    with pytest.raises(AssertionError, match="have the same length"):
        request_resources(bundle_label_selectors=[{"zone": "a"}])


@pytest.mark.usefixtures("session")
def test_it_ends_with_the_program() -> None:
    address = ray.get_runtime_context().gcs_address
    program = f"""
import runtime as ray
from runtime._wire.messages.control import WatchClusterState
from runtime._worker.core_worker import current
from runtime.autoscaler.sdk import request_resources
ray.init(address={address!r})
request_resources(num_cpus=7)
state = current().ask(WatchClusterState(-1, 0.0))
print(len(state.requested))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "7", done.stderr
    assert eventually(lambda: requested() == [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_cpus": "2"}, TypeError),
        ({"num_cpus": True}, TypeError),
        ({"num_cpus": -1}, ValueError),
        ({"bundles": [3]}, TypeError),
        ({"bundles": [{"CPU": -1}]}, ValueError),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": ["x"]}, TypeError),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": [{"zone": "in("}]}, ValueError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        request_resources(**arguments)
