"""Workers that start with a library's modules imported, through the public API."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import random
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

import runtime as ray
from runtime import exceptions
from runtime._extension import gangs
from runtime._extension.workers import preloaded
from runtime.util.placement_group import placement_group
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

HAS_TORCH = importlib.util.find_spec("torch") is not None
PACKAGED = """\
import os, random, sys
pid = os.getpid()
variable = os.environ.get("EW_VARIABLE")
threads = os.environ["OMP_NUM_THREADS"]
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an archive with a module. The job's own folder has another one."""
    folder = tmp_path_factory.mktemp("preloaded")
    set_by_the_user = os.environ.pop("OMP_NUM_THREADS", None)
    with zipfile.ZipFile(folder / "package.zip", "w") as archive:
        archive.writestr("top/ew_packaged.py", PACKAGED)
        archive.writestr("top/ew_fails.py", "raise OSError('no library for it')\n")
    own = folder / "own"
    own.mkdir()
    (own / "ew_of_job.py").write_text("import os\npid = os.getpid()\n")
    sys.path.insert(0, str(own))
    ray.init(num_cpus=4, num_gpus=2)
    yield f"file://{folder}/package.zip"
    ray.shutdown()
    sys.path.remove(str(own))
    if set_by_the_user is not None:
        os.environ["OMP_NUM_THREADS"] = set_by_the_user


@ray.remote
class Worker:
    def facts(self, module: str) -> dict[str, Any]:
        found = sys.modules[module]
        return {
            "pid": os.getpid(),
            "imported in": found.pid,
            "variable": getattr(found, "variable", None),
            "threads then": getattr(found, "threads", None),
            "threads": os.environ["OMP_NUM_THREADS"],
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "path": sys.path,
            "random": random.random(),
        }

    def torch_facts(self) -> tuple[int, int, float]:
        torch = sys.modules["torch"]
        return os.getppid(), torch.get_num_threads(), float(torch.rand(1, dtype=torch.float64))

    def all_reduce(self, rank: int, meeting: str) -> float:
        import torch

        distributed = torch.distributed
        distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
        total = torch.full((1000, 10), rank + 1.0) @ torch.ones(10, 1)
        distributed.all_reduce(total)
        distributed.destroy_process_group()
        return float(total[0])


def test_names_are_added_to_those_of_the_user() -> None:
    given = {"preload": ["a", "b"], "env_vars": {"A": "1"}}
    assert preloaded("b", "c", runtime_env=given) == {"preload": ["a", "b", "c"], "env_vars": {"A": "1"}}
    assert preloaded("a") == {"preload": ["a"]}
    assert given["preload"] == ["a", "b"]


def test_forked_workers_share_an_import_and_differ_in_what_is_theirs(package: str) -> None:
    env = preloaded("ew_packaged", runtime_env={"py_modules": [package], "env_vars": {"EW_VARIABLE": "1"}})
    workers = [Worker.options(runtime_env=env, num_cpus=cpus, num_gpus=1).remote() for cpus in (1, 2)]
    one, two = ray.get([worker.facts.remote("ew_packaged") for worker in workers])
    assert one["imported in"] == two["imported in"]
    assert len({one["pid"], two["pid"], one["imported in"]}) == 3
    assert [(each["variable"], each["threads then"], each["threads"]) for each in (one, two)] == [
        ("1", "1", "1"),
        ("1", "1", "2"),
    ]
    assert {one["gpus"], two["gpus"]} == {"0", "1"}
    assert one["random"] != two["random"]
    plain = Worker.options(runtime_env={"py_modules": [package], "env_vars": {"EW_VARIABLE": "1"}}).remote()
    path = ray.get(plain.__ray_call__.remote(lambda _: sys.path))
    assert one["path"] == path


def test_what_is_in_the_jobs_folder_is_imported_by_each_worker(package: str) -> None:
    env = {**preloaded("ew_of_job", "ew_packaged"), "py_modules": [package]}
    facts = [ray.get(Worker.options(runtime_env=env).remote().facts.remote("ew_of_job")) for _ in range(2)]
    assert all(each["pid"] == each["imported in"] for each in facts)


def test_an_import_that_fails_is_the_tasks_error(package: str) -> None:
    @ray.remote
    def task() -> None:
        pass

    env = {**preloaded("ew_fails"), "py_modules": [package]}
    with pytest.raises(exceptions.RuntimeEnvSetupError) as caught:
        ray.get(task.options(runtime_env=env).remote())
    assert "Failed to import ew_fails, which runtime_env['preload'] names" in str(caught.value)
    assert 'ew_fails.py", line 1' in str(caught.value)
    assert "OSError: no library for it" in str(caught.value)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torch_is_imported_once_for_a_gang_that_computes_together(
    package: str, tmp_path: pathlib.Path
) -> None:
    with gangs.together() as gang:
        group = placement_group([{"CPU": 2}, {"CPU": 1}])
        workers = [
            Worker.options(
                runtime_env=preloaded("torch"),
                num_cpus=cpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            ).remote()
            for index, cpus in enumerate((2, 1))
        ]
    gang.wait(60)
    (parent, two, first), (same, one, second) = ray.get([each.torch_facts.remote() for each in workers])
    assert parent == same
    assert (two, one) == (2, 1)
    assert first != second
    meeting = f"file://{tmp_path}/meeting"
    calls = [worker.all_reduce.remote(rank, meeting) for rank, worker in enumerate(workers)]
    assert ray.get(calls, timeout=60) == [30.0, 30.0]
