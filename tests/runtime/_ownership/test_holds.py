"""One module changes hold counts."""

from __future__ import annotations

import ast
import pathlib

import runtime

ROOT = pathlib.Path(runtime.__file__).parent
ALLOWED = {("records.py", name) for name in ("hold", "release", "hold_all", "release_all")}


def test_only_hold_and_release_change_a_hold_count() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                targets: list[ast.expr] = []
                if isinstance(node, ast.Assign):
                    targets = node.targets
                elif isinstance(node, ast.AugAssign | ast.AnnAssign):
                    targets = [node.target]
                if any(isinstance(target, ast.Attribute) and target.attr == "holds" for target in targets):
                    found.add((path.name, function.name))
    assert found == ALLOWED
