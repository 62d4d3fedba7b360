"""The check for import cycles finds each kind of circle, and passes what is none."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "import_cycles.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_cycles", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(root: pathlib.Path, **sources: str) -> None:
    """Makes a package "p" with a package "sub": `sub` is its file, `sub_x` a module in it."""
    for name, source in {"__init__": "", "sub": "", **sources}.items():
        place = {"sub": "sub/__init__"}.get(name, name.replace("sub_", "sub/"))
        path = root / "p" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


def found(script: ModuleType, root: pathlib.Path) -> list[tuple[set[str], bool]]:
    return [(set(cycle.modules), cycle.for_types_only) for cycle in script.cycles(root, "p")]


def test_a_chain_is_no_circle(script: ModuleType, tmp_path: pathlib.Path) -> None:
    write(tmp_path, a="from p import b", b="import p.c", c="import os")
    assert found(script, tmp_path) == []


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "from p import a",
        "from p.a import name",
        "from . import a",
        "from .a import name",
        "def f():\n    from p.a import name",
        "try:\n    import p.a\nexcept ImportError:\n    pass",
    ],
)
def test_a_circle_is_found_however_it_is_closed(
    script: ModuleType, tmp_path: pathlib.Path, back: str
) -> None:
    write(tmp_path, a="from p import b", b="from p import c", c=back)
    assert found(script, tmp_path) == [({"p.a", "p.b", "p.c"}, False)]


@pytest.mark.parametrize(
    "imports",
    ["from typing import TYPE_CHECKING\nif TYPE_CHECKING", "import typing\nif typing.TYPE_CHECKING"],
)
def test_a_circle_for_the_type_checker_only_is_told_apart(
    script: ModuleType, tmp_path: pathlib.Path, imports: str
) -> None:
    write(tmp_path, a="from p import b", b=f"{imports}:\n    from p import a\nelse:\n    import os")
    assert found(script, tmp_path) == [({"p.a", "p.b"}, True)]


def test_a_package_and_its_module_make_a_circle(script: ModuleType, tmp_path: pathlib.Path) -> None:
    write(tmp_path, sub="from .inner import x", sub_inner="from p.sub import y")
    assert found(script, tmp_path) == [({"p.sub", "p.sub.inner"}, False)]


def test_two_dots_lead_to_the_package_above(script: ModuleType, tmp_path: pathlib.Path) -> None:
    write(tmp_path, a="from .sub import inner", sub_inner="from ..a import x")
    assert found(script, tmp_path) == [({"p.a", "p.sub.inner"}, False)]


def test_circles_apart_are_told_one_by_one(script: ModuleType, tmp_path: pathlib.Path) -> None:
    write(tmp_path, a="import p.b", b="import p.a", c="import p.d", d="import p.c", e="import p.a, p.c")
    assert found(script, tmp_path) == [({"p.a", "p.b"}, False), ({"p.c", "p.d"}, False)]


def test_the_exit_status_says_whether_there_are_circles(tmp_path: pathlib.Path) -> None:
    write(tmp_path, a="import p.b", b="import p.a")
    command = [sys.executable, str(SCRIPT), "--root", str(tmp_path), "p"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "2 modules import each other (at run time): p.a, p.b" in done.stdout


def test_our_packages_have_no_circle() -> None:
    command = [sys.executable, str(SCRIPT), "runtime", "autoscaler", "clusterctl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
