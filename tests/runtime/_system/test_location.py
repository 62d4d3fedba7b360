"""Where the packages are found, asked in a Python that imports them from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from runtime._system import location

QUESTION = (
    "from runtime._system import location as l; print(l.is_zipped(), l.is_installed(), l.index(), l.paths())"
)


def ask(path: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-P", "-S", "-c", QUESTION]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


def make(folder: Path) -> Path:
    """A folder with as much of these packages as the question needs."""
    package = folder / "runtime" / "_system"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "location.py").write_bytes(Path(location.__file__).read_bytes())
    return folder


def test_a_folder_in_site_packages_is_no_zip(tmp_path: Path) -> None:
    root = make(tmp_path / "site-packages" / "vendored")
    assert ask(root) == f"False False None ['{root}']"


def test_site_packages_themselves_are_found_without_help(tmp_path: Path) -> None:
    root = make(tmp_path / "site-packages")
    assert ask(root) == f"False True None ['{root}']"


def test_a_zip_is_known_wherever_it_lies(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    for parent, is_installed in (("anywhere", False), ("site-packages", True)):
        root = tmp_path / parent / "runtime.zip"
        root.parent.mkdir()
        with zipfile.ZipFile(root, "w") as archive:
            for file in source.rglob("*.py"):
                archive.write(file, file.relative_to(source))
        assert ask(root) == f"True {is_installed} None ['{root.parent}', '{root}']"
        Path(f"{root}.index").touch()
        assert ask(root) == f"True {is_installed} {root}.index ['{root.parent}', '{root}']"
