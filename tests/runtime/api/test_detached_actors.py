"""Detached actors, and what they own, after the driver that made them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")

DRIVER = """
    import os
    import time

    import {name} as ray

    ray.init("{address}", namespace="{namespace}")

    @ray.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.value = 0

        def add(self):
            self.value += 1
            return self.value

    @ray.remote
    def double(value):
        return 2 * value

    @ray.remote(max_retries=0)
    def until_there(path):
        while not os.path.exists(path):
            time.sleep(0.02)
        return "done"

    @ray.remote(num_cpus=0)
    class Supervisor:
        def __init__(self):
            self.child = Counter.remote()
            self.named = Counter.options(name="named child").remote()
            self.ref = ray.put("kept")

        def children(self):
            return ray.get([self.child.add.remote(), self.named.add.remote()])

        def child_handle(self):
            return [self.child]

        def double(self):
            return ray.get([double.remote(value) for value in range(3)])

        def kept(self):
            return ray.get(self.ref)

        def begin(self, path):
            self.waiting = until_there.remote(path)
            self.group = ray.util.placement_group([{{"CPU": 1}}])
            return self.group.wait(60)

        def end(self):
            return ray.get(self.waiting), ray.util.placement_group_table(self.group)["state"]

    Counter.options(name="mortal").remote()
    supervisor = Supervisor.options(name="supervisor", lifetime="detached").remote()
    print(ray.get(supervisor.children.remote()), ray.get(supervisor.begin.remote("{file}")))
"""


def run_driver(file: pathlib.Path) -> str:
    context = ray.get_runtime_context()
    program = textwrap.dedent(DRIVER).format(
        name=NAME, address=context.gcs_address, namespace=context.namespace, file=file
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}
    return subprocess.check_output([sys.executable, "-c", program], env=environment, text=True, timeout=120)


def exists(name: str) -> bool:
    try:
        ray.get_actor(name)
    except ValueError:
        return False
    return True


def test_what_a_detached_actor_owns_lives_as_long_as_it_does(tmp_path: pathlib.Path) -> None:
    assert "[1, 1] True" in run_driver(tmp_path / "there")
    assert eventually(lambda: not exists("mortal"))
    supervisor: Any = ray.get_actor("supervisor")
    assert ray.get(supervisor.children.remote(), timeout=30) == [2, 2]
    assert ray.get(supervisor.double.remote(), timeout=30) == [0, 2, 4]
    assert ray.get(supervisor.kept.remote(), timeout=30) == "kept"
    (tmp_path / "there").touch()
    assert ray.get(supervisor.end.remote(), timeout=30) == ("done", "CREATED")
    named: Any = ray.get_actor("named child")
    assert ray.get(named.add.remote(), timeout=30) == 3
    child = ray.get(supervisor.child_handle.remote(), timeout=30)[0]
    ray.kill(supervisor)
    assert eventually(lambda: not exists("named child"))
    with pytest.raises(exceptions.ActorDiedError, match="owner"):
        ray.get(child.add.remote(), timeout=30)
    assert eventually(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])
