"""From what the user names to files."""

from __future__ import annotations

import os
import pathlib

import fsspec
import pyarrow.fs as pafs
import pytest

from runtime.data.io.filesystems import resolve
from runtime.data.io.paths import expand


@pytest.fixture
def tree(tmp_path):
    for name in (
        "a/1.csv",
        "a/2.CSV",
        "b/c/3.csv.gz",
        "b/4.txt",
        "_tmp/5.csv",
        ".staging/6.csv",
        "_k=1/7.csv",
        "a/_in/8.csv",
        "a/.dot/_9.csv",
        "a/.staging-1/10.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


IN_A = ["a/.dot/_9.csv", "a/1.csv", "a/2.CSV", "a/_in/8.csv"]
"""Below the folder a, only unfinished writes are left out."""


def names(tree, *given, **options):
    filesystem, paths = resolve([tree / path for path in given])
    return [os.path.relpath(file.path, tree) for file in expand(filesystem, paths, **options)]


def test_folders_are_walked_without_hidden_names(tree):
    assert names(tree, "") == [*IN_A, "b/4.txt", "b/c/3.csv.gz"]
    assert names(tree, "a/_in", "a/.dot") == ["a/_in/8.csv"]


def test_lists_keep_their_order_and_what_is_named_is_read(tree):
    assert names(tree, "b/4.txt", "_tmp/5.csv", "a") == ["b/4.txt", "_tmp/5.csv", "a/1.csv", "a/2.CSV"]


def test_patterns(tree):
    assert names(tree, "*/*.csv") == ["a/1.csv"]
    assert names(tree, "**/*.csv*") == ["a/.dot/_9.csv", "a/1.csv", "a/_in/8.csv", "b/c/3.csv.gz"]
    assert names(tree, "[ab]") == [*IN_A, "b/4.txt", "b/c/3.csv.gz"]
    assert names(tree, "b/?.txt") == ["b/4.txt"]
    with pytest.raises(FileNotFoundError, match=r"No file matches .*\.json"):
        names(tree, "*.json")


def test_a_name_with_the_marks_of_a_pattern(tree):
    (tree / "[1].csv").write_text("x")
    assert names(tree, "[1].csv") == ["[1].csv"]


def test_extensions(tree):
    assert names(tree, "", extensions=["csv"]) == IN_A
    assert names(tree, "", extensions=[".csv.gz"]) == ["b/c/3.csv.gz"]
    with pytest.raises(ValueError, match="extensions"):
        names(tree, "", extensions=["tsv"])


def test_missing_paths(tree):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        names(tree, "nowhere")
    assert names(tree, "nowhere", "b/4.txt", ignore_missing=True) == ["b/4.txt"]
    assert names(tree, "nowhere", ignore_missing=True) == []


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(ValueError, match="no file to read"):
        names(tmp_path, "")


def test_paths_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    given = ["a", "~/b", "file:///c", "local:///d", pathlib.Path("/e f%20")]
    assert [resolve(path)[1] for path in given] == [
        [str(tmp_path / "a")],
        [str(tmp_path / "b")],
        ["/c"],
        ["/d"],
        ["/e f%20"],
    ]


def test_given_file_systems_and_schemes(tmp_path):
    assert resolve("file:///x", pafs.LocalFileSystem())[1] == ["/x"]
    assert resolve("memory://x/y", fsspec.filesystem("memory"))[1] == ["/x/y"]
    assert resolve("bucket://x/y", pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()))[1] == [
        "x/y"
    ]
    with pytest.raises(ValueError, match="pyarrow"):
        resolve("/x", object())


def test_paths_that_cannot_be_read_together():
    with pytest.raises(ValueError, match="same file system"):
        resolve(["memory://a", "/b"])
    with pytest.raises(ValueError, match="No paths"):
        resolve([])
    with pytest.raises(ValueError, match="string"):
        resolve([1])
