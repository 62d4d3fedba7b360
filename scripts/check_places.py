#!/usr/bin/env python3
"""Fails when docs/finding-your-way.md names a file, function or class that does not exist, or too many files for one
question.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "finding-your-way.md"
MOST_FILES = 3
PLACE = re.compile(r"`((?:runtime|clusterctl|autoscaler)/[\w/]+\.py)(?:::([\w.]+))?`")


def defined(text: str) -> set[str]:
    """The classes and functions of a module, methods as Class.method."""
    return set(_names(ast.parse(text), ""))


def _names(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{prefix}{child.name}"
            if isinstance(child, ast.ClassDef):
                yield from _names(child, f"{prefix}{child.name}.")


def problems(page: str, root: pathlib.Path = ROOT) -> list[str]:
    """What is wrong with the text of the page, a line each."""
    found = []
    for section in page.split("\n## ")[1:]:
        question = section.partition("\n")[0]
        places = PLACE.findall(section)
        files = {path for path, _ in places}
        if not places:
            found.append(f"{question!r} names no place")
        if len(files) > MOST_FILES:
            found.append(f"{question!r} names {len(files)} files; {MOST_FILES} are allowed")
    for path, name in PLACE.findall(page):
        file = root / path
        if not file.is_file():
            found.append(f"there is no file {path}")
        elif name and name not in defined(file.read_text(encoding="utf-8")):
            found.append(f"there is no {name} in {path}")
    return found


def main() -> int:
    lines = problems(PAGE.read_text(encoding="utf-8"))
    sys.stderr.writelines(f"docs/finding-your-way.md: {line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
