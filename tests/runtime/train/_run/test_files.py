"""Paths, URIs and file systems."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from runtime.train._run import files
from runtime.train._run.files import LocalFiles, RemoteFiles

pafs = pytest.importorskip("pyarrow.fs")

ROOT = pathlib.Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("path", "filesystem", "is_local"),
    [
        ("/a", None, True),
        ("a", None, True),
        ("~/a", None, True),
        ("file:///a", None, True),
        ("local:///a", None, True),
        ("s3://a/b", None, False),
        ("memory://a", None, False),
        ("/a", pafs.LocalFileSystem(), True),
        ("/a", fsspec.filesystem("file"), True),
        ("/a", MemoryFileSystem(), False),
        ("/a", pafs.SubTreeFileSystem("/", pafs.LocalFileSystem()), False),
    ],
)
def test_which_are_local(path: str, filesystem: Any, is_local: bool) -> None:
    assert files.is_local(path, filesystem) is is_local
    if is_local:
        own, where = files.resolve(path, filesystem)
        assert isinstance(own, LocalFiles)
        assert where == {"a": os.path.abspath("a"), "~/a": os.path.expanduser("~/a")}.get(path, "/a")


def test_file_systems_of_both_libraries() -> None:
    inner = MemoryFileSystem()
    for filesystem in (inner, pafs.PyFileSystem(pafs.FSSpecHandler(inner))):
        own, path = files.resolve("/x/y/", filesystem)
        assert isinstance(own, RemoteFiles)
        assert own.filesystem is inner
        assert path == "/x/y"
    assert files.resolve("memory://x/y", inner)[1] == "/x/y"
    assert files.public("memory://x/y") == (inner, "/x/y")
    assert isinstance(files.public("/x")[0], pafs.LocalFileSystem)


@pytest.mark.parametrize(
    ("path", "joined", "parent", "name"),
    [
        ("/a", "/a/x/y", "/", "a"),
        ("/a/b/", "/a/b/x/y", "/a", "b"),
        ("a/b", "a/b/x/y", "a", "b"),
        ("/odd?a=b/c", "/odd?a=b/c/x/y", "/odd?a=b", "c"),
        ("s3://bucket/a b", "s3://bucket/a b/x/y", "s3://bucket", "a b"),
        ("s3://bucket/a?r=1&e=h%3A2", "s3://bucket/a/x/y?r=1&e=h%3A2", "s3://bucket?r=1&e=h%3A2", "a"),
    ],
)
def test_paths(path: str, joined: str, parent: str, name: str) -> None:
    assert files.join(path, "x", "", "y") == joined
    assert files.split(path) == (parent, name)


def test_secrets_are_not_shown() -> None:
    assert files.shown("s3://key:secret@bucket/a?session_token=x") == "s3://...@bucket/a"
    assert files.shown("/a@b/c?d=e") == "/a@b/c?d=e"


def test_local_paths_need_no_library(tmp_path: pathlib.Path) -> None:
    code = f"""
import sys
from runtime.train import Checkpoint, Result
from runtime.train._run.storage import RunStorage
storage = RunStorage({str(tmp_path)!r}, "run")
storage.open()
checkpoint = Checkpoint.from_directory({str(tmp_path / "own")!r})
part = storage.upload(checkpoint, "a", 0, lambda: False)
with storage.commit("a", [part], {{}}).as_directory() as folder:
    pass
assert Result.from_path({str(tmp_path / "run")!r}).checkpoint.path == folder
print({{"fsspec", "pyarrow", "pandas", "torch", "numpy"}} & set(sys.modules))
"""
    (tmp_path / "own").mkdir()
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert found.stdout == "set()\n", found.stderr
