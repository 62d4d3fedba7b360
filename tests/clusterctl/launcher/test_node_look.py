"""What a machine is asked first, and what its answer means."""

from __future__ import annotations

import os
import pathlib
import platform
import socket
import subprocess
import sys
import sysconfig

import pytest

from autoscaler.provider import SetupError
from clusterctl.artefacts.target import Target
from clusterctl.launcher.node_look import Found, Question

HERE = sys.version_info[:2]
ABI = sysconfig.get_config_var("SOABI")
LIBC = "-".join(platform.libc_ver())


def ask(question: Question) -> str:
    command = ["/bin/sh", "-c", question.command()]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def question(folder: pathlib.Path, python: str = sys.executable, reaches: str = "") -> Question:
    return Question(python, str(folder), HERE, reaches)


def test_a_machine_says_what_it_has(tmp_path: pathlib.Path) -> None:
    asked = question(tmp_path)
    python = os.path.realpath(sys.executable)
    assert asked.read(ask(asked)) == Found(python, "", ABI, LIBC)
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "digest").write_text("abc-def\n")
    assert asked.read(ask(asked)) == Found(python, "abc-def", ABI, LIBC)


def test_a_machine_without_python_is_told_so(tmp_path: pathlib.Path) -> None:
    asked = question(tmp_path, "/nowhere/python3")
    with pytest.raises(SetupError, match="not found") as failed:
        asked.read(ask(asked))
    assert failed.value.step == "python version"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_whether_it_reaches_the_head(tmp_path: pathlib.Path, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as head:
        head.bind((host.strip("[]"), 0))
        asked = question(tmp_path, reaches=f"{host}:{head.getsockname()[1]}")
        with pytest.raises(SetupError, match=r"refused.*firewall") as failed:
            asked.read(ask(asked))
        assert failed.value.step == "reach the head"
        head.listen()
        assert asked.read(ask(asked)).python


@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n",
        "digest\n",
        "\n2.7 /usr/bin/python\n",
        "\nsh: 1: python3: not found\n",
        f"\n{HERE[0]}.{HERE[1]}\n",
        f"\n{HERE[0]}.{HERE[1]} {ABI} {LIBC}\n",
    ],
)
def test_what_is_no_fitting_python(output: str) -> None:
    with pytest.raises(SetupError, match="needs Python") as failed:
        Question("python3", "~/f", HERE).read(output)
    assert failed.value.step == "python version"


@pytest.mark.parametrize(
    ("abi", "libc", "words"),
    [
        ("pypy311-pp73-x86_64-linux-gnu", "glibc-2.36", "PyPy"),
        ("cpython-312-x86_64-linux-musl", "-", "musl"),
        ("cpython-310-x86_64-linux-gnu", "glibc-2.36", "Python is 3.10"),
    ],
)
def test_any_python_for_which_there_is_a_runtime_will_do(abi: str, libc: str, words: str) -> None:
    asked = Question("python3", "~/f", None)
    found = asked.read("\n3.14 cpython-314-aarch64-linux-gnu glibc-2.36 /my python/bin/python3\n")
    assert found.python == "/my python/bin/python3"
    assert found.target() == Target((3, 14), "aarch64")
    with pytest.raises(SetupError, match=words) as failed:
        asked.read(f"\n3.1 {abi} {libc} /python\n").target()
    assert failed.value.step == "python version"
