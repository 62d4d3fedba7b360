"""The page that says where things are decided names places that exist, and few for each question."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "finding-your-way.md"
MODULE = "class C:\n    async def m(self): ...\n\ndef f(): ...\n"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("check_places", ROOT / "scripts" / "check_places.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_right(script: Any) -> None:
    assert script.problems(PAGE.read_text()) == []


def test_there_are_at_least_twelve_questions() -> None:
    assert PAGE.read_text().count("\n## ") >= 12


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ("`runtime/a.py::f` `runtime/a.py::C.m` `runtime/a.py`", None),
        ("`runtime/a.py::g`", "there is no g in runtime/a.py"),
        ("`runtime/a.py::C.f`", "there is no C.f in runtime/a.py"),
        ("`runtime/b.py::f`", "there is no file runtime/b.py"),
        ("somewhere", "'Where?' names no place"),
    ],
)
def test_what_is_found(script: Any, tmp_path: pathlib.Path, places: str, problem: str | None) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "a.py").write_text(MODULE)
    found = script.problems(f"# Page\n\n## Where?\n\n{places}\n", tmp_path)
    assert found == ([problem] if problem else [])


def test_a_question_has_three_files_at_most(script: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "runtime").mkdir()
    for name in "abcd":
        (tmp_path / "runtime" / f"{name}.py").write_text(MODULE)
    places = " ".join(f"`runtime/{name}.py::f`" for name in "abcd")
    assert script.problems(f"\n## Where?\n\n{places}\n", tmp_path) == [
        "'Where?' names 4 files; 3 are allowed"
    ]
