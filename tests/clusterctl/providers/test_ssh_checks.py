"""What a machine is asked before it becomes a node, in every shell that may be its /bin/sh."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterctl.providers.ssh.checks import THIS_VERSION, question, wrong_address
from tests.shells import SHELLS

ABI = sysconfig.get_config_var("SOABI")
NAME = f"python{THIS_VERSION}"
Ask = Callable[..., list[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A Python as distributions install it, whose interpreter says that it was started."""
    library = tmp_path / "lib" / NAME / "lib-dynload"
    library.mkdir(parents=True)
    (library / f"_json.{ABI}.so").touch()
    (tmp_path / "bin").mkdir()
    interpreter = tmp_path / "bin" / NAME
    interpreter.write_text("#!/bin/sh\necho started\n")
    interpreter.chmod(0o755)
    (tmp_path / "bin" / "python3").symlink_to(NAME)
    return tmp_path


@pytest.fixture(params=SHELLS, ids=shlex.join)
def ask(request: pytest.FixtureRequest, root: Path) -> Ask:
    """The words of the first line that is answered."""

    def ask(python: str = "python3", *ports: int) -> list[str]:
        shell = [str(shutil.which(request.param[0])), *request.param[1:]]
        ran = subprocess.run(
            [*shell, "-c", question(python, ports)],
            cwd=root,
            env={"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": str(root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return ran.stdout.partition("\n")[0].split()

    return ask


@pytest.mark.parametrize("python", ["python3", NAME, "{root}/bin/python3"])
def test_a_usual_python_is_told_by_its_files(ask: Ask, root: Path, python: str) -> None:
    version, abi, disk, now = ask(python.format(root=root))
    assert (version, abi) == (THIS_VERSION, ABI)
    assert int(disk) == pytest.approx(shutil.disk_usage(root).free, rel=0.2)
    assert float(now) == pytest.approx(time.time(), abs=5.0)


def test_whose_ports_are_asked_for_is_started(ask: Ask) -> None:
    assert ask("python3", 8000) == ["started"]


@pytest.mark.parametrize(
    "change",
    [
        f"rm lib/{NAME}/lib-dynload/*",
        f"mv bin/{NAME} bin/wrapped; ln -s wrapped bin/{NAME}",
        f"rm bin/python3; cp bin/{NAME} bin/python3",
        "printf '#!/bin/sh\\nexit 1' > bin/date; chmod 755 bin/date",
    ],
)
def test_any_other_is_started(ask: Ask, root: Path, change: str) -> None:
    subprocess.run(["sh", "-c", change], cwd=root, check=True)
    assert ask() == ["started"]


def test_where_there_is_none_nothing_is_said_of_it(ask: Ask, root: Path) -> None:
    shutil.rmtree(root / "bin")
    assert ask(f"{root}/bin/python3") == []


def test_a_python_in_the_home_folder_is_named_by_a_tilde(ask: Ask, root: Path) -> None:
    (root / "own pythons").mkdir()
    shutil.copy(root / "bin" / NAME, root / "own pythons" / "python")
    assert ask("~/own pythons/python") == ["started"]
    assert ask(f"{root}/own pythons/python") == ["started"]


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
