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

    Counter.options(name="mortal").remote()
    supervisor = Supervisor.options(name="supervisor", lifetime="detached").remote()
    print(ray.get(supervisor.children.remote()))
"""


def run_driver() -> str:
    context = ray.get_runtime_context()
    program = textwrap.dedent(DRIVER).format(
        name=NAME, address=context.gcs_address, namespace=context.namespace
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}
    return subprocess.check_output([sys.executable, "-c", program], env=environment, text=True, timeout=60)


def exists(name: str) -> bool:
    try:
        ray.get_actor(name)
    except ValueError:
        return False
    return True


def test_what_a_detached_actor_owns_lives_as_long_as_it_does() -> None:
    assert "[1, 1]" in run_driver()
    assert eventually(lambda: not exists("mortal"))
    supervisor: Any = ray.get_actor("supervisor")
    assert ray.get(supervisor.children.remote(), timeout=30) == [2, 2]
    assert ray.get(supervisor.double.remote(), timeout=30) == [0, 2, 4]
    assert ray.get(supervisor.kept.remote(), timeout=30) == "kept"
    named: Any = ray.get_actor("named child")
    assert ray.get(named.add.remote(), timeout=30) == 3
    child = ray.get(supervisor.child_handle.remote(), timeout=30)[0]
    ray.kill(supervisor)
    assert eventually(lambda: not exists("named child"))
    with pytest.raises(exceptions.ActorDiedError, match="owner"):
        ray.get(child.add.remote(), timeout=30)
