"""Where references were made, with RAY_record_ref_creation_sites."""

from __future__ import annotations

import importlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, exceptions, ray

Cluster: Any = importlib.import_module(f"{NAME}.cluster_utils").Cluster
state: Any = importlib.import_module(f"{NAME}.util.state")
HERE = pathlib.Path(__file__).name


@pytest.fixture(scope="module", autouse=True)
def cluster(no_leaks: None) -> Iterator[Any]:
    """A head without CPUs for tasks. A test adds the node that it loses."""
    config = {"health_check_failure_threshold": 3, "health_check_period_ms": 300}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_record_ref_creation_sites", "1")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": config})
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


@ray.remote(max_retries=0)
def make() -> Any:
    return np.zeros(2**18)


@ray.remote(num_cpus=0)
class Maker:
    def make(self) -> None:
        return None

    def inner_site(self) -> str:
        return str(self.make_inside().call_site())

    def make_inside(self) -> Any:
        return make.remote()


def site(kind: str, *functions: str) -> str:
    """The pattern of a call site that begins with these functions of this file. Ray has frames of its own between."""
    between = "[^|]*" if OWN else ".*?"
    return rf"\({kind}\)" + "".join(rf"{between}\| \S*{HERE}:{function}:\d+" for function in functions)


def test_references_know_where_they_were_made() -> None:
    actor = Maker.remote()
    this = "test_references_know_where_they_were_made"
    assert re.match(site("task call", this), make.remote().call_site())
    assert re.match(site("actor call", this), actor.make.remote().call_site())
    assert re.match(site("task call", "make_inside", "inner_site"), ray.get(actor.inner_site.remote()))


@pytest.mark.skipif(not OWN, reason="names frames of its own for put")
def test_listed_objects_tell_it() -> None:
    ref = ray.put(1)
    rows = [row for row in state.list_objects(detail=True) if row.object_id == ref.hex()]
    assert [
        bool(re.match(site("put object", "test_listed_objects_tell_it"), row.call_site)) for row in rows
    ] == [True]


def test_errors_of_lost_objects_tell_it(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    ref = make.remote()
    ray.wait([ref], timeout=60, fetch_local=False)
    cluster.remove_node(node, allow_graceful=False)
    with pytest.raises(exceptions.ObjectReconstructionFailedError) as caught:
        ray.get(ref, timeout=60)
    made_at = (
        rf"The ObjectRef was created at: \(task call\)\s+\S*{HERE}:test_errors_of_lost_objects_tell_it:\d+\n"
    )
    assert re.search(made_at, str(caught.value))
    assert eventually(lambda: len([node for node in ray.nodes() if node["Alive"]]) == 1)
