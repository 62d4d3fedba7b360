"""A driver that is killed takes everything of its own with it, and nothing else."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import psutil
import pytest

import runtime as ray
from runtime._core.environments import PACKAGES
from runtime._process.core_worker import current
from runtime._wire.messages.control import KvKeys
from runtime.cluster_utils import Cluster
from tests.integration.drivers import Driver, session_files
from tests.polling import eventually
from tests.processes import is_alive

PROGRAM = """
import os, subprocess, time
import runtime as ray
ray.init({arguments})

@ray.remote(num_cpus=0)
class Actor:
    def pid(self):
        return os.getpid()

@ray.remote
def task():
    return os.getpid(), subprocess.Popen(["sleep", "1000"]).pid

@ray.remote
def busy():
    time.sleep(1000)

actor = Actor.remote()
print("pids", ray.get(actor.pid.remote()), *ray.get(task.remote()), flush=True)
refs = [busy.remote() for _ in range(4)]
big = ray.put(b"x" * 10_000_000)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_local_session_goes_with_its_driver() -> None:
    before = set(session_files())
    driver = Driver(PROGRAM.format(arguments="num_cpus=2"))
    pids = [int(pid) for pid in driver.line("pids ").split()]
    driver.line("ready")
    assert all(map(is_alive, pids))
    driver.kill()
    assert eventually(lambda: not any(map(is_alive, pids)))
    assert eventually(lambda: set(session_files()) <= before)
    driver.close()


def test_a_node_that_gets_sigterm_again_and_again_leaves_nothing() -> None:
    before = set(session_files())
    driver = Driver(PROGRAM.format(arguments="num_cpus=2"))
    pids = [int(pid) for pid in driver.line("pids ").split()]
    driver.line("ready")
    zygote = psutil.Process(pids[0]).parent()
    assert zygote is not None
    agent = zygote.parent()
    assert agent is not None

    def is_gone() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.terminate()
        return not is_alive(agent.pid)

    assert eventually(is_gone)
    assert eventually(lambda: not any(map(is_alive, [*pids, zygote.pid])))
    assert eventually(lambda: set(session_files()) <= before)
    driver.close()


def test_a_cluster_stays_when_one_of_its_drivers_dies(cluster: Cluster) -> None:
    driver = Driver(PROGRAM.format(arguments=f"address={cluster.address!r}"))
    pids = [int(pid) for pid in driver.line("pids ").split()]
    driver.line("ready")
    ray.init(address=cluster.address)
    driver.kill()
    assert eventually(lambda: not any(map(is_alive, pids)))
    assert eventually(lambda: ray.available_resources().get("CPU") == 2)
    full = ray.cluster_resources()["object_store_memory"]
    assert eventually(lambda: ray.available_resources()["object_store_memory"] == full)

    @ray.remote
    def still_works() -> str:
        return "yes"

    assert ray.get(still_works.remote(), timeout=60) == "yes"
    driver.close()


def test_a_driver_that_ends_by_itself_leaves_nothing() -> None:
    before = set(session_files())
    driver = Driver(
        """
        import runtime as ray
        ray.init(num_cpus=1)
        print("value", ray.get(ray.remote(lambda: 5).remote()), flush=True)
        """
    )
    assert driver.line("value ") == "5"
    assert driver.process.wait(60) == 0
    assert eventually(lambda: set(session_files()) <= before)
    driver.close()


def test_a_driver_that_raises_ends_with_its_own_status() -> None:
    driver = Driver(
        """
        import sys
        import runtime as ray
        ray.init(num_cpus=1)
        print("ready", flush=True)
        sys.exit(7)
        """
    )
    driver.line("ready")
    assert driver.process.wait(60) == 7
    driver.close()


PACKAGES_PROGRAM = """
import time
import runtime as ray
ray.init({address!r}, namespace="n", runtime_env={{"py_modules": {modules!r}}})

@ray.remote(num_cpus=0, max_restarts=-1)
class Actor:
    def value(self):
        import packed_module
        return packed_module.VALUE

actor = Actor.options(name={name!r} or None, lifetime="detached" if {name!r} else None).remote()
print("value", ray.get(actor.value.remote()), flush=True)
time.sleep(1000)
"""


def packages() -> int:
    return len(current().call_agent(KvKeys(PACKAGES)).keys)


def test_packages_go_when_no_driver_and_no_detached_actor_needs_them(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "packed_module.py").write_text("VALUE = 7")
    (tmp_path / "other_module.py").write_text("VALUE = 8")
    both = [str(tmp_path / "packed_module.py"), str(tmp_path / "other_module.py")]
    ray.init(address=cluster.address, namespace="n")
    leaving = Driver(PACKAGES_PROGRAM.format(address=cluster.address, modules=both, name=""))
    staying = Driver(PACKAGES_PROGRAM.format(address=cluster.address, modules=both[:1], name="stays"))
    assert leaving.line("value ") == staying.line("value ") == "7"
    assert packages() == 2
    leaving.kill()
    assert eventually(lambda: packages() == 1)
    staying.kill()
    actor = ray.get_actor("stays")
    assert ray.get(actor.value.remote()) == 7
    ray.kill(actor, no_restart=False)  # its next process needs the package again
    assert eventually(lambda: ray.get(actor.value.options(max_task_retries=-1).remote()) == 7)
    assert packages() == 1
    ray.kill(actor)
    assert eventually(lambda: packages() == 0)
    leaving.close()
    staying.close()
