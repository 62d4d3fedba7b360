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
