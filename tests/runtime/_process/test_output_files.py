"""A worker goes on in a new file when its agent has renamed the one it writes to."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from runtime._process import output_files


@pytest.fixture
def log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[pathlib.Path, int]]:
    """A log, and the only descriptor that is known to lead to it."""
    monkeypatch.setattr(output_files, "_descriptors", {False: [], True: []})
    path = tmp_path / "worker.out"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    output_files.add_descriptor(descriptor, False)
    yield path, descriptor
    os.close(descriptor)


def rename(path: pathlib.Path) -> pathlib.Path:
    return path.rename(f"{path}.1")


def test_it_goes_on_in_a_new_file(log: tuple[pathlib.Path, int]) -> None:
    path, descriptor = log
    os.write(descriptor, b"before ")
    old = rename(path)
    os.write(descriptor, b"meanwhile")
    output_files.reopen(str(path), False)
    os.write(descriptor, b"after")
    assert old.read_bytes() == b"before meanwhile"
    assert path.read_bytes() == b"after"


def test_what_leads_elsewhere_stays(log: tuple[pathlib.Path, int], tmp_path: pathlib.Path) -> None:
    path, descriptor = log
    elsewhere = os.open(tmp_path / "elsewhere", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        output_files.add_descriptor(elsewhere, False)
        output_files.add_descriptor(10**6, False)  # a task has closed it
        rename(path)
        output_files.reopen(str(path), True)  # errors go to another file
        assert not path.exists()
        output_files.reopen(str(path), False)
        os.write(elsewhere, b"mine")
        os.write(descriptor, b"ours")
    finally:
        os.close(elsewhere)
    assert path.read_bytes() == b"ours"
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_nothing_was_renamed(log: tuple[pathlib.Path, int]) -> None:
    path, descriptor = log
    output_files.reopen(str(path), False)
    os.write(descriptor, b"on")
    assert path.read_bytes() == b"on"
