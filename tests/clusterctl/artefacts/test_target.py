"""What runtimes are made for."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest
from packaging.tags import parse_tag

from clusterctl.artefacts.target import Target, Unsupported, own_abi
from clusterctl.artefacts.wheels import supported


@pytest.mark.parametrize(
    ("abi", "libc", "target"),
    [
        ("cpython-311-x86_64-linux-gnu", "glibc-2.36", Target((3, 11), "x86_64", (2, 28))),
        ("cpython-314-aarch64-linux-gnu", "glibc-2.28", Target((3, 14), "aarch64", (2, 28))),
        ("cpython-312-x86_64-linux-gnu", "glibc-2.26", Target((3, 12), "x86_64", (2, 17))),
        ("cpython-312-x86_64-linux-gnu", "", Target((3, 12), "x86_64", (2, 28))),
    ],
)
def test_what_a_machine_says(abi: str, libc: str, target: Target) -> None:
    assert Target.read(abi, libc) == target
    assert target.abi == abi


@pytest.mark.parametrize(
    ("abi", "libc", "words"),
    [
        ("cpython-310-x86_64-linux-gnu", "glibc-2.36", "its Python is 3.10, and the engine needs 3.11"),
        ("cpython-39-x86_64-linux-gnu", "glibc-2.36", "its Python is 3.9"),
        ("pypy311-pp73-x86_64-linux-gnu", "glibc-2.36", "PyPy"),
        ("cpython-312-x86_64-linux-musl", "-", "musl"),
        ("cpython-313t-x86_64-linux-gnu", "glibc-2.36", "free-threaded or debug"),
        ("cpython-312-riscv64-linux-gnu", "glibc-2.36", "its CPU is riscv64"),
        ("cpython-312-x86_64-linux-gnu", "glibc-2.12", "glibc 2.17 or newer"),
        ("cpython-312-darwin", "-", "CPython on Linux"),
        ("", "", "CPython on Linux"),
    ],
)
def test_for_what_there_is_no_runtime(abi: str, libc: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        Target.read(abi, libc)


@pytest.mark.parametrize(
    ("tag", "fits"),
    [
        ("py3-none-any", True),
        ("cp312-cp312-manylinux_2_28_aarch64", True),
        ("cp36-abi3-manylinux2014_aarch64", True),
        ("cp312-cp312-manylinux_2_34_aarch64", False),
        ("cp312-cp312-manylinux_2_28_x86_64", False),
        ("cp311-cp311-manylinux_2_28_aarch64", False),
        ("cp313-abi3-manylinux_2_28_aarch64", False),
        ("cp312-cp312-musllinux_1_2_aarch64", False),
        ("pp311-pypy311_pp73-manylinux_2_28_aarch64", False),
    ],
)
def test_which_wheels_fit(tag: str, fits: bool) -> None:
    assert bool(parse_tag(tag) & supported(Target((3, 12), "aarch64"))) is fits


def test_the_kind_of_this_python() -> None:
    assert own_abi() == sysconfig.get_config_var("SOABI")
    assert Target.here() is not None


def test_threads_that_ask_at_once_get_the_same() -> None:
    """As those of a head that sets up two workers. In a new process, for what is asked first counts."""
    program = """
import sys, threading
from clusterctl.artefacts.target import own_abi
sys.setswitchinterval(1e-6)
start, found = threading.Barrier(8), []
def ask():
    start.wait()
    found.append(own_abi())
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*set(found))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [sysconfig.get_config_var("SOABI")]
