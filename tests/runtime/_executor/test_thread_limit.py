"""How many threads numerical libraries start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from runtime._executor import thread_limit
thread_limit.begin()
seen = [os.environ["OMP_NUM_THREADS"]]
for resources in ({"CPU": 30_000}, {"CPU": 5_000}, {"CPU_group_0_abc": 20_000, "CPU": 0}, {}):
    thread_limit.follow_lease(resources)
    seen.append(os.environ["OMP_NUM_THREADS"])
print(*seen)
"""


@pytest.mark.parametrize(("own", "seen"), [("", "1 3 1 2 1"), ("7", "7 7 7 7 7")])
def test_as_many_as_the_lease_has_cpus_unless_the_user_says_it(own: str, seen: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if own:
        environment["OMP_NUM_THREADS"] = own
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == seen.split(), done.stderr


EARLY = """
import sys, types
from runtime._executor import thread_limit
told = []
thread_limit.begin()
sys.modules["torch"] = types.SimpleNamespace(set_num_threads=told.append)
thread_limit.preloaded(sys.argv[1:])
for cpus in (1, 3, 2, 2, 1):
    thread_limit.follow_lease({"CPU": cpus * 10_000})
    if thread_limit.pending:
        thread_limit.apply()
thread_limit.follow_lease({"CPU": 20_000})
thread_limit.follow_lease({"CPU": 10_000})
print(thread_limit.pending, told)
"""


@pytest.mark.parametrize(("preloaded", "told"), [(["torch"], "0 [3, 2, 1]"), ([], "0 []")])
def test_libraries_that_were_imported_before_the_first_lease_are_told(
    preloaded: list[str], told: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", EARLY, *preloaded], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == told, done.stderr
