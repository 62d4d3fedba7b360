"""What workers print reaches the driver, with a prefix; duplicates are folded."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

from tests.under_test import NAME


def run(program: str, *patterns: str, options: str = "num_cpus=2") -> str:
    """Runs a driver until its output has every pattern, for lines travel behind results; then lets it end."""
    start = f"import {NAME} as ray, sys, os\nray.init({options})\n"
    stay = "\nprint('done', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", start + textwrap.dedent(program) + stay],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        output = ""
        for line in driver.stdout:  # ends with the driver; the test's own time limit bounds it
            output += re.sub(r"\x1b\[[0-9;]*m", "", line)
            if all(re.search(pattern, output, re.M) for pattern in ("^done$", *patterns)):
                break
        output += driver.communicate()[0]
    assert driver.returncode == 0, output
    return output


def test_prints_of_tasks_have_name_and_pid() -> None:
    output = run(
        """
        @ray.remote
        def speak():
            print("line one")
            print("to stderr", file=sys.stderr)
            return os.getpid()
        print("pid", ray.get(speak.remote()))
        """,
        "line one",
        "to stderr",
    )
    pid = re.search(r"^pid (\d+)$", output, re.M)
    assert pid is not None
    assert re.search(rf"\(speak pid={pid[1]}\).* line one", output)
    assert re.search(rf"\(speak pid={pid[1]}\).* to stderr", output)


def test_prints_of_actors_have_the_class() -> None:
    output = run(
        """
        @ray.remote
        class Speaker:
            def speak(self):
                print("from the actor")
        ray.get(Speaker.remote().speak.remote())
        """,
        "from the actor",
    )
    assert re.search(r"\(Speaker pid=\d+\).* from the actor", output)


def test_equal_lines_of_many_workers_are_folded() -> None:
    output = run(
        """
        @ray.remote(num_cpus=0)
        class Speaker:
            def speak(self):
                print("the same line")
        speakers = [Speaker.remote() for _ in range(4)]
        ray.get([speaker.speak.remote() for speaker in speakers])
        """,
        "the same line.*repeated",
    )
    assert len([line for line in output.splitlines() if "the same line" in line]) <= 3


def test_log_to_driver_can_be_switched_off() -> None:
    output = run(
        """
        @ray.remote
        def speak():
            print("nobody hears this")
        ray.get(speak.remote())
        """,
        options="num_cpus=1, log_to_driver=False",
    )
    assert "nobody hears this" not in output


def test_an_error_that_nobody_looked_at_is_logged_once_and_one_that_was_read_is_not() -> None:
    output = run(
        """
        @ray.remote
        def fail(what):
            raise ValueError(what)
        ref = fail.remote("this was read")
        try:
            ray.get(ref)
        except ValueError:
            pass
        del ref
        fail.remote("nobody looked")
        """,
        "ValueError: nobody looked",
    )
    assert len(re.findall("Unhandled error", output)) == 1
    assert "this was read" not in output


def test_unhandled_errors_can_be_ignored() -> None:
    output = run(
        """
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        ray.shutdown()
        ray.init(num_cpus=1)
        @ray.remote
        def fail():
            raise ValueError("nobody looked")
        ready, _ = ray.wait([fail.remote()])
        del ready
        @ray.remote
        def speak():
            print("the last words")
        ray.get(speak.remote())
        """,
        "the last words",
    )
    assert "nobody looked" not in output
