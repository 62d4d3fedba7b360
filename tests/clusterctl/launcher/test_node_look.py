"""What a machine is asked first, and what its answer means."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys

import pytest

from autoscaler.provider import SetupError
from clusterctl.launcher.node_look import Found, Question

HERE = sys.version_info[:2]


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
    assert asked.read(ask(asked)) == Found(python, "")
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "digest").write_text("abc-def\n")
    assert asked.read(ask(asked)) == Found(python, "abc-def")


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
    ],
)
def test_what_is_no_fitting_python(output: str) -> None:
    with pytest.raises(SetupError, match="needs Python") as failed:
        Question("python3", "~/f", HERE).read(output)
    assert failed.value.step == "python version"
