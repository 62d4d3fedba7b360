"""The table of what works as in Ray says nothing that no test shows."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).parents[2]
TABLE = ROOT / "docs" / "ray-compatibility.md"
STATES = ("works", "differs", "not yet")
SECTIONS = ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7")


@dataclass(frozen=True)
class Row:
    line: int
    name: str
    state: str
    how: str
    tests: tuple[str, ...]


def rows() -> list[Row]:
    found = []
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if not line.startswith("|") or line.startswith(("|---", "| name | state |")):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(cells) == 4, (
            f"line {number} has {len(cells)} cells, not name, state, how / why, test: {line}"
        )
        name, state, how, test = cells
        found.append(Row(number, name, state, how, tuple(re.findall(r"`([^`]+)`", test))))
    return found


@functools.cache
def defined_in(path: str) -> frozenset[str]:
    """The functions of a file, methods as `Class::test`."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def problem(test: str) -> str | None:
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"{test}: there is no file {path}"
    name = name.partition("[")[0]
    if not name.rpartition("::")[2].startswith("test_") or name not in defined_in(path):
        return f"{test}: {path} has no such test"
    return None


def test_every_row_has_a_name_and_a_known_state() -> None:
    wrong = [f"line {row.line}: {row}" for row in rows() if not row.name or row.state not in STATES]
    assert wrong == []


def test_what_works_is_shown_by_a_test_that_exists() -> None:
    wrong = [
        f"line {row.line}: {row.name} names no test"
        for row in rows()
        if row.state == "works" and not row.tests
    ]
    wrong += [f"line {row.line}: {text}" for row in rows() for test in row.tests if (text := problem(test))]
    assert wrong == []


def test_what_differs_says_how() -> None:
    assert [f"line {row.line}: {row.name}" for row in rows() if row.state == "differs" and not row.how] == []


def test_every_section_is_there() -> None:
    titles = re.findall(r"^## (1\.\d) ", TABLE.read_text(), re.MULTILINE)
    assert tuple(titles) == SECTIONS
