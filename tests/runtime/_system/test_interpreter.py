"""What this library changes about the interpreter, and the switch that turns all of it off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

SETTINGS = """
import gc, json, sys
before = sys.getswitchinterval()
import runtime as ray
from runtime._wire.messages.worker import Push
from runtime._system import interpreter
with interpreter.startup():
    rests = not gc.isenabled()
    class Imported: pass
frozen = gc.get_freeze_count() > 0

@ray.remote
def settings():
    return sys.getswitchinterval() == before, interpreter.IS_PLAIN, gc.get_freeze_count() > 0

@ray.remote
class Counter:
    def __init__(self):
        self.total = 0
    def add(self, number):
        self.total += number
        return self.total

@ray.remote(num_returns="streaming")
def count(limit):
    yield from range(limit)

ray.init(num_cpus=2)
of_driver = sys.getswitchinterval() == before, interpreter.IS_PLAIN, frozen
of_worker = ray.get(settings.remote())
counter = Counter.remote()
large = ray.put(b"x" * 1_000_000)
results = [
    ray.get([counter.add.remote(number) for number in range(100)])[-1],
    [ray.get(ref) for ref in count.remote(3)],
    len(ray.get(large)),
]
tracks = Push.__struct_config__.gc
ray.shutdown()
print(json.dumps([rests, tracks, of_driver, of_worker, results]))
"""
JOINING_NODE = """
import json, sys
before = set(sys.modules)
import clusterctl.head.join
print(json.dumps(sorted(set(sys.modules) - before)))
"""
ZYGOTE = """
import json, sys
from runtime._process import main, zygote
main.prepare()
first = list(sys.modules)
zygote._preimport()
print(json.dumps([first, list(sys.modules)]))
"""
HEAVY = {"argparse", "ctypes", "psutil", "queue", "yaml"}
"""Modules that a node agent needs later or never. Each takes milliseconds of the some tens that joining takes."""
OF_WORKERS = ("runtime._owner", "runtime._executor", "runtime._process")


def printed(program: str, **variables: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
        timeout=120,
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_program_runs_with_and_without_the_settings(is_plain: bool) -> None:
    found = printed(SETTINGS, RUNTIME_PLAIN_INTERPRETER="1" if is_plain else "0")
    rests, tracks, of_driver, of_worker, results = found
    assert results == [4950, [0, 1, 2], 1_000_000]
    assert (rests, tracks) == (not is_plain, is_plain)
    assert of_driver == of_worker == [is_plain, is_plain, not is_plain]


def test_a_joining_node_imports_neither_heavy_modules_nor_the_workers_part() -> None:
    imported = set(printed(JOINING_NODE))
    assert "runtime._node.agent" in imported
    assert not HEAVY & imported
    assert not [name for name in imported if name.startswith(OF_WORKERS)]


def test_a_zygote_imports_the_public_api_for_its_workers_and_no_command_line() -> None:
    first, later = map(set, printed(ZYGOTE))
    assert (
        not {"argparse", "shutil", "runtime.api"} & first
    )  # workers that start at once do not wait for more
    assert {"runtime.api", "runtime.actor", "runtime.runtime_context"} <= later
