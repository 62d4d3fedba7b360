"""docs/incumbents.md names a test for each of its rows, and each test of tests/rows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = 25
_LINE = re.compile(r"^\| (?P<number>\d+) \|.*\| (?P<tests>[^|]*) \|$", re.MULTILINE)
_TEST = re.compile(r"\[(?P<words>[^]]+)\]\(\.\./(?P<file>tests/rows/\w+\.py)\)")


def told() -> dict[int, set[tuple[str, str]]]:
    """Row -> (file, test) of each of its tests."""
    found: dict[int, set[tuple[str, str]]] = {}
    for line in _LINE.finditer((ROOT / "docs" / "incumbents.md").read_text()):
        number = int(line["number"])
        tests = _TEST.finditer(line["tests"])
        found[number] = {
            (test["file"], f"test_row_{number:02}_{test['words'].replace(' ', '_')}") for test in tests
        }
    return found


def written() -> set[tuple[str, str]]:
    """(file, test) of all tests of rows."""
    return {
        (str(file.relative_to(ROOT)), node.name)
        for file in (ROOT / "tests" / "rows").glob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_row_has_a_test() -> None:
    assert list(told()) == list(range(1, ROWS + 1))
    assert all(told().values())


def test_the_table_names_every_test_and_only_such_as_there_are() -> None:
    assert set().union(*told().values()) == written()
