"""Patterns mean what rsync's manual page says."""

from __future__ import annotations

import pytest

from clusterctl.sync.rules import pattern, rules


@pytest.mark.parametrize(
    ("text", "path", "is_folder", "fits"),
    [
        ("*.o", "a/b/x.o", False, True),
        ("*.o", "x.os", False, False),
        ("build", "a/build", True, True),
        ("build/", "build", False, False),
        ("build/", "a/build", True, True),
        ("/build", "build", True, True),
        ("/build", "a/build", True, False),
        ("a/b", "x/a/b", False, True),
        ("a/b", "xa/b", False, False),
        ("/a/b", "x/a/b", False, False),
        ("a/*/c", "a/b/c", False, True),
        ("a/*/c", "a/b/b/c", False, False),
        ("a/**/c", "a/b/b/c", False, True),
        ("**/.git", "x/.git", True, True),
        ("**/.git/**", "x/.git/config", False, True),
        ("data/***", "data", True, True),
        ("data/***", "x/data/y/z", False, True),
        ("data/***", "mydata", True, False),
        ("file[0-9]", "file7", False, True),
        ("file[!0-9]", "file7", False, False),
        ("file[z-a]", "filez", False, False),
        ("file[[x]", "file[", False, True),
        ("what?", "what/", False, False),
        ("a\\*b", "a*b", False, True),
        ("a\\*b", "axb", False, False),
    ],
)
def test_patterns(text: str, path: str, is_folder: bool, fits: bool) -> None:
    assert pattern(text).matches(path, is_folder) is fits


def test_the_first_that_matches_decides() -> None:
    chosen = rules(["+ keep.log", "*.log"])
    assert chosen.leaves_out("a.log", False)
    assert not chosen.leaves_out("keep.log", False)


def test_git_never_travels_unless_asked_for() -> None:
    assert rules().leaves_out("a/.git", True)
    assert not rules(["+ .git"]).leaves_out(".git", True)
    assert not rules().leaves_out(".github", True)
