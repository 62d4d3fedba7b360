"""A driver goes on although nobody reads what its workers print."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.under_test import NAME, OWN

pytestmark = pytest.mark.skipif(
    not OWN, reason="Ray prints on a thread of its own too, and waits for it at its end"
)
START = f"""
import sys, os
import {NAME} as ray
from runtime._process import printing

@ray.remote
def speak(number):
    print("\\n".join(f"{{number}} {{line}} " + "x" * 100 for line in range(2000)))
    return number

def work():
    for start in range(10):  # more than two megabytes of output
        assert ray.get([speak.remote(start * 4 + n) for n in range(4)], timeout=60) == [start * 4 + n for n in range(4)]
"""


def driver(program: str, stdout: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_DEDUP_LOGS": "0"},
    )


def test_a_driver_whose_output_nobody_reads_goes_on_and_ends() -> None:
    program = """
        printing.PATIENCE_S = 0.5
        ray.init(num_cpus=2)
        work()
        print("worked", file=sys.stderr, flush=True)
        """
    read, write = os.pipe()
    try:
        with driver(program, write) as process:
            os.close(write)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "worked" in errors
        assert "Lines of workers are missing: nobody read this output" in errors
    finally:
        os.close(read)


def test_a_pipe_that_is_read_only_after_the_end_loses_no_line() -> None:
    program = """
        ray.init(num_cpus=1)

        @ray.remote
        def few():
            for number in range(500):
                print(f"line {number:04} " + "z" * 70)

        ray.get(few.remote(), timeout=60)
        """
    with driver(program, subprocess.PIPE) as process:
        assert process.wait(timeout=120) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = process.stdout.read(), process.stderr.read()
    assert len(output) > 47_000
    assert [line.split()[3] for line in output.splitlines()] == [f"{number:04}" for number in range(500)]
    assert "missing" not in errors


def test_what_waited_is_printed_when_somebody_reads_again() -> None:
    program = """
        ray.init(num_cpus=2)
        work()
        print("worked", file=sys.stderr, flush=True)
        sys.stdin.read()
        """
    with driver(program, subprocess.PIPE) as process:
        assert process.stderr is not None
        while "worked" not in (line := process.stderr.readline()):
            assert line, "the driver has ended"
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.count("(speak pid=") == 80_000


def test_an_output_of_the_programs_own_may_call_the_api() -> None:
    program = """
        import io, threading
        called = threading.Event()

        class Out(io.StringIO):
            def write(self, text):
                if "say" in text:
                    assert ray.get(ray.put(1)) == 1 and ray.get(echo.remote(2), timeout=60) == 2
                    called.set()
                return super().write(text)

        @ray.remote
        def echo(value):
            return value

        @ray.remote
        def say():
            print("say")

        ray.init(num_cpus=2)
        sys.stdout = Out()
        ray.get(say.remote(), timeout=60)
        assert called.wait(60)
        ray.get(say.remote(), timeout=60)
        ray.shutdown()
        print("worked", file=sys.stderr, flush=True)
        """
    with driver(program, subprocess.DEVNULL) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "worked" in errors
