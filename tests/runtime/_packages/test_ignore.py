"""The rules of .gitignore."""

from __future__ import annotations

import pytest

from runtime._packages.ignore import ignored, parse


@pytest.mark.parametrize(
    ("patterns", "path", "is_folder", "expected"),
    [
        ("*.log", "a.log", False, True),
        ("*.log", "deep/down/a.log", False, True),
        ("*.log", "a.logs", False, False),
        ("/a.log", "a.log", False, True),
        ("/a.log", "b/a.log", False, False),
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("build/", "x/build", True, True),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, False),
        ("a/*", "a/b", False, True),
        ("a/*", "a/b/c", False, False),
        ("**/x", "x", False, True),
        ("**/x", "a/b/x", False, True),
        ("a/**", "a/b/c", False, True),
        ("a/**", "a", True, False),
        ("a/**/z", "a/z", False, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("fil?.py", "file.py", False, True),
        ("fil?.py", "fil/.py", False, False),
        ("[abc].py", "b.py", False, True),
        ("[!abc].py", "b.py", False, False),
        ("[!abc].py", "d.py", False, True),
        ("[z-a].py\n*.log", "a.log", False, True),
        ("[z-a].py", "z.py", False, False),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("!keep.log\n*.log", "keep.log", False, True),
        ("# comment\n\n", "comment", False, False),
        ("\\#name", "#name", False, True),
        ("trailing   ", "trailing", False, True),
        ("a.b", "axb", False, False),
        ("(x)", "(x)", False, True),
    ],
)
def test_rules(patterns: str, path: str, is_folder: bool, expected: bool) -> None:
    assert ignored(path, is_folder, parse(patterns)) is expected


@pytest.mark.parametrize(
    ("path", "expected"), [("sub/x", True), ("x", False), ("other/x", False), ("sub/d/x", False)]
)
def test_a_nested_file_speaks_for_its_folder(path: str, expected: bool) -> None:
    assert ignored(path, False, parse("/x", "sub")) is expected
