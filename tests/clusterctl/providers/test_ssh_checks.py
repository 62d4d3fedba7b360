"""What a machine is asked before it becomes a node, in every shell that may be its /bin/sh."""

from __future__ import annotations

import platform
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterctl.providers.ssh.checks import question, wrong_address
from tests.shells import SHELLS

Ask = Callable[..., list[str]]


@pytest.fixture(params=SHELLS, ids=shlex.join)
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    """The words of the first line that is answered."""

    def ask(python: str, *ports: int) -> list[str]:
        shell = [str(shutil.which(request.param[0])), *request.param[1:]]
        ran = subprocess.run(
            [*shell, "-c", question(python, ports)],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return ran.stdout.partition("\n")[0].split()

    return ask


def test_a_python_says_what_it_is_and_which_ports_are_taken(ask: Ask) -> None:
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("", 0))
        taken.listen()
        free.bind(("", 0))
        ports = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        version, abi, libc, disk, now, *said = ask(sys.executable, *ports)
    assert (version, abi) == ("{}.{}".format(*sys.version_info), sysconfig.get_config_var("SOABI"))
    assert libc == "-".join(platform.libc_ver())
    assert int(disk) > 0
    assert float(now) == pytest.approx(time.time(), abs=60.0)
    assert said == [str(ports[0])]


def test_where_there_is_none_nothing_is_said_of_it(ask: Ask) -> None:
    assert ask("/nowhere/bin/python3") == []


def test_a_python_in_the_home_folder_is_named_by_a_tilde(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "own pythons").mkdir()
    (tmp_path / "own pythons" / "python").symlink_to(sys.executable)
    assert ask("~/own pythons/python") != []
    assert ask(f"{tmp_path}/own pythons/python") != []


@pytest.mark.parametrize(
    ("address", "is_head", "is_alone", "words"),
    [
        ("10.0.0.7", False, False, ""),
        ("fe80::1%eth0", True, False, ""),
        ("127.0.0.1", True, True, ""),
        ("127.0.0.1", True, False, "reached as itself"),
        ("127.0.0.1", False, False, "through a tunnel"),
        ("::1", False, False, "through a tunnel"),
        ("UNKNOWN", True, True, "does not know"),
        ("UNKNOWN", False, False, "does not know"),
    ],
)
def test_an_address_must_lead_other_nodes_to_the_machine(
    address: str, is_head: bool, is_alone: bool, words: str
) -> None:
    found = wrong_address("m", address, is_head, is_alone)
    assert bool(found) == bool(words)
    assert found is None or words in found.what
