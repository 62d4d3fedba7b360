"""Runtime environments on nodes where the driver is not."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.under_test import NAME, exceptions, ray

cluster_utils: Any = importlib.import_module(f"{NAME}.cluster_utils")


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Options of tasks that run on another node than the driver's, whose job brought files."""
    root = tmp_path_factory.mktemp("files")
    (root / "hello").write_text("world")
    (root / "env_far_module.py").write_text("VALUE = 5\n")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1, resources={"far": 1})
    ray.init(address=cluster.address, runtime_env={"working_dir": str(root), "env_vars": {"ENV_A": "job"}})
    yield {"resources": {"far": 0.1}}
    ray.shutdown()
    cluster.shutdown()


@ray.remote
def look() -> Any:
    import os

    import env_far_module  # type: ignore[import-not-found]

    return (
        pathlib.Path("hello").read_text(),
        env_far_module.VALUE,
        os.environ["ENV_A"],
        os.environ.get("ENV_B"),
    )


@ray.remote
class Looker:
    def look(self) -> Any:
        return ray.get(look.remote())


def test_files_and_variables_reach_every_node(far: Any) -> None:
    assert ray.get(look.options(**far).remote()) == ("world", 5, "job", None)
    env = {"env_vars": {"ENV_B": "task"}}
    assert ray.get(look.options(runtime_env=env, **far).remote()) == ("world", 5, "job", "task")
    assert ray.get(Looker.options(runtime_env=env, **far).remote().look.remote()) == (
        "world",
        5,
        "job",
        "task",
    )


def test_what_fails_there_is_told_here(far: Any) -> None:
    bad = {"working_dir": "file:///does/not/exist.zip"}
    hosts = {node["NodeManagerAddress"] for node in ray.nodes()}
    with pytest.raises(exceptions.RuntimeEnvSetupError, match="does/not/exist") as caught:
        ray.get(look.options(runtime_env=bad, **far).remote())
    assert any(f"[Node {host}]" in str(caught.value) for host in hosts), "it says where that happened"
    with pytest.raises(exceptions.RuntimeEnvSetupError, match="does/not/exist"):
        ray.get(Looker.options(runtime_env=bad, **far).remote().look.remote())
    assert ray.get(look.options(**far).remote())[1] == 5
