"""The journal in a folder, local and remote."""

from __future__ import annotations

import pathlib

import fsspec
import pytest

from runtime.train._run.storage import RunStorage
from runtime.tune._core import records
from runtime.tune._run import journal


def storage(tmp_path: pathlib.Path, kind: str) -> RunStorage:
    if kind == "local":
        made = RunStorage(str(tmp_path), "experiment")
    else:
        made = RunStorage(str(tmp_path), "experiment", fsspec.filesystem("memory"))
    made.open()
    return made


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_what_was_flushed_comes_back_and_more_is_appended(tmp_path: pathlib.Path, kind: str) -> None:
    where = storage(tmp_path, kind)
    assert journal.read(where, "abcde") == []
    for number in range(3):
        book = journal.Journal(where, "abcde")
        book.write((records.PAUSED, number))
        book.flush()
        book.flush()
        book.write((records.PAUSED, number + 10))
        book.close()
    assert [record[1] for record in journal.read(where, "abcde")] == [0, 10, 1, 11, 2, 12]
    assert journal.read(where, "other") == []


def test_a_local_record_needs_no_flush_and_a_half_one_is_cut_off(tmp_path: pathlib.Path) -> None:
    where = storage(tmp_path, "local")
    book = journal.Journal(where, "abcde")
    book.write((records.PAUSED, 1))
    assert journal.read(where, "abcde") == [(records.PAUSED, 1)]
    book.close()
    path = tmp_path / "experiment" / journal.name_of("abcde")
    with path.open("ab") as file:
        file.write(b"half")
    book = journal.Journal(where, "abcde")
    book.write((records.PAUSED, 2))
    book.close()
    assert [record[1] for record in journal.read(where, "abcde")] == [1, 2]
