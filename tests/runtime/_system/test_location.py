"""Where the packages are found, asked in a Python that imports them from there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from runtime._system import location

QUESTION = "from runtime._system import location as l; print(l.is_installed(), l.ROOT)"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    return folder


def ask(python: Path, path: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        [python, "-P", "-c", QUESTION], env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def make(folder: Path) -> Path:
    """A folder with as much of these packages as the question needs."""
    package = folder / "runtime" / "_system"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "location.py").write_bytes(Path(location.__file__).read_bytes())
    return folder


def test_a_source_tree_needs_help_to_be_found(tmp_path: Path) -> None:
    assert ask(Path(sys.executable), make(tmp_path)) == f"False {tmp_path}"


def test_the_name_of_a_folder_says_nothing(tmp_path: Path, environment: Path) -> None:
    root = make(tmp_path / "site-packages")
    assert ask(environment / "bin" / "python", root) == f"False {root}"


def test_site_packages_of_an_environment_are_found_by_its_own_python_alone(environment: Path) -> None:
    [site] = environment.glob("lib/python*/site-packages")
    root = make(site)
    assert ask(environment / "bin" / "python", root) == f"True {root}"
    assert ask(Path(sys.executable), root) == f"False {root}"
