"""A test that hangs on purpose: its report shows where every process was, and nothing of it is left."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

from tests.leaks import tagged_processes

ROOT = pathlib.Path(__file__).parents[1]
HANGS = """
    import threading
    import pytest
    import runtime as ray

    @ray.remote
    def wait_in_a_task_for_ever():
        threading.Event().wait()

    @pytest.fixture(scope="module", autouse=True)
    def cluster():
        ray.init(num_cpus=1)
        yield
        ray.shutdown()

    @pytest.mark.timeout(4)
    def test_that_hangs():
        ray.get(wait_in_a_task_for_ever.remote())

    def test_after_it():
        pass
"""


def test_a_test_that_hangs_shows_the_stacks_of_every_process(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_hangs.py").write_text(textwrap.dedent(HANGS))
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}"]
    command += ["-p", "tests.conftest", str(tmp_path / "test_hangs.py")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 skipped in" in ran.stdout
    assert "Timeout (>4.0s) from pytest-timeout" in ran.stdout
    stacks = ran.stdout.split("stacks of every process of the run", 1)[1]
    for role in ("driver", "node agent", "zygote", "worker"):
        assert f"=== {role} " in stacks
    assert "in wait_in_a_task_for_ever" in stacks.split("=== worker ", 1)[1]
    run_id = os.environ["CLUSTERCTL_TEST_RUN"]
    assert not [line for line in tagged_processes(run_id).values() if "test_hangs" in line]
