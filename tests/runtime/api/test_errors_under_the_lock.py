"""Errors of user code are rebuilt by those who read them: the engine's own threads run no import of the user's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from tests.under_test import NAME, OWN

MODULE = """
import builtins

gate = getattr(builtins, "gate", None)
if gate is not None:  # in the driver
    with gate:
        pass


class Trouble(Exception):
    pass
"""
PROGRAM = """
import builtins, threading
import {name} as ray
from {name}.util.state import list_tasks

builtins.gate = threading.Lock()
ray.init(num_cpus=4)

@ray.remote(max_retries=2, retry_exceptions=[KeyError])
def fail():
    import trouble
    raise trouble.Trouble("no luck")

@ray.remote
def take(value):
    return value

class Base:
    def ok(self):
        return True

    @ray.method(max_task_retries=2, retry_exceptions=[KeyError])
    def fail(self):
        import trouble
        raise trouble.Trouble("no luck")

@ray.remote
class Fails(Base):
    def __init__(self, *_):
        import trouble
        raise trouble.Trouble("no luck")

@ray.remote
class Lives(Base):
    def __init__(self, *_):
        pass

with builtins.gate:  # until the end of this block an import of `trouble` in this process never returns
    failed = fail.remote()
    lives = Lives.remote()
    refs = [
        failed,
        take.remote(failed),
        Fails.remote().ok.remote(),
        Lives.remote(failed).ok.remote(),
        lives.ok.remote(),
        lives.fail.remote(),
        fails_again := lives.fail.remote(),
    ]
    ready, _ = ray.wait(refs, num_returns=len(refs), timeout=60)
    assert len(ready) == len(refs), ready
    list_tasks()
    assert ray.get(take.remote(1), timeout=60) == 1

import trouble

for ref in (refs[0], refs[1], refs[5], refs[6]):
    try:
        ray.get(ref, timeout=60)
    except trouble.Trouble as error:
        assert "no luck" in str(error)
    else:
        raise AssertionError("nothing was raised")
for ref in refs[2:4]:
    try:
        ray.get(ref, timeout=60)
    except ray.exceptions.ActorDiedError as error:
        assert "error raised in its creation task" in str(error) and "no luck" in str(error), str(error)
    else:
        raise AssertionError("nothing was raised")
assert ray.get(refs[4], timeout=60)
rows = [row for row in list_tasks(detail=True) if row.state == "FAILED"]
assert sum("no luck" in (row.error_message or "") for row in rows) >= 4, rows
print("worked")
"""


@pytest.mark.skipif(not OWN, reason="it shows where this engine rebuilds errors")
def test_an_import_of_an_errors_module_that_waits_for_the_program(tmp_path: pathlib.Path) -> None:
    (tmp_path / "trouble.py").write_text(MODULE)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM.replace("{name}", NAME))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("worked\n")
