"""What workers print reaches the driver, with a prefix; duplicates are folded."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

from tests.under_test import NAME

INIT = f"import {NAME} as ray, sys, time, os\nray.init(num_cpus=2)\n"

# Lines travel behind the result; the driver stays long enough for them to arrive.
STAY = "\ntime.sleep(2)\n"


def run(program: str) -> tuple[str, str]:
    """Runs a driver to its end; its output and its error output."""
    done = subprocess.run(
        [sys.executable, "-c", INIT + textwrap.dedent(program) + STAY],
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout), re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)


def test_prints_of_tasks_have_name_and_pid() -> None:
    out, err = run(
        """
        @ray.remote
        def speak():
            print("line one")
            print("to stderr", file=sys.stderr)
            return os.getpid()
        print("pid", ray.get(speak.remote()))
        """
    )
    pid = re.search(r"^pid (\d+)$", out, re.M)
    assert pid is not None
    assert re.search(rf"\(speak pid={pid[1]}\).* line one", out + err)
    assert re.search(rf"\(speak pid={pid[1]}\).* to stderr", out + err)


def test_prints_of_actors_have_the_class() -> None:
    out, err = run(
        """
        @ray.remote
        class Speaker:
            def speak(self):
                print("from the actor")
        ray.get(Speaker.remote().speak.remote())
        """
    )
    assert re.search(r"\(Speaker pid=\d+\).* from the actor", out + err)


def test_equal_lines_of_many_workers_are_folded() -> None:
    out, err = run(
        """
        @ray.remote(num_cpus=0)
        class Speaker:
            def speak(self):
                print("the same line")
        speakers = [Speaker.remote() for _ in range(4)]
        ray.get([speaker.speak.remote() for speaker in speakers])
        time.sleep(4)
        """
    )
    lines = [line for line in (out + err).splitlines() if "the same line" in line]
    assert 1 <= len(lines) <= 3
    assert any("repeated" in line for line in lines)


def test_log_to_driver_can_be_switched_off() -> None:
    program = f"""
import {NAME} as ray, time
ray.init(num_cpus=1, log_to_driver=False)

@ray.remote
def speak():
    print("nobody hears this")
ray.get(speak.remote())
"""
    done = subprocess.run(
        [sys.executable, "-c", program + STAY], capture_output=True, text=True, timeout=80, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "nobody hears this" not in done.stdout + done.stderr
