"""Files in memory without a descriptor: shared ones show what is written, private ones keep it."""

from __future__ import annotations

import gc
import mmap
import os
import pathlib
import weakref
from typing import Any

import pytest

from runtime._owner import mapped_files


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)
    return path


def view(block: Any) -> memoryview:
    return memoryview(block).cast("B")


def is_open(path: pathlib.Path) -> bool:
    """Whether a descriptor of this process leads to the file."""
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(link) == str(path):
                return True
        except FileNotFoundError:
            pass  # another thread has closed it meanwhile
    return False


def mappings(path: pathlib.Path) -> int:
    return pathlib.Path("/proc/self/maps").read_text().count(str(path))


def test_a_shared_mapping_is_the_file(path: pathlib.Path) -> None:
    block = mapped_files.map(str(path), 100)
    assert not is_open(path)
    view(block)[0] = 77
    assert path.read_bytes()[:3] == bytes([77, 1, 2])


def test_a_private_mapping_is_a_copy_of_what_is_written(path: pathlib.Path) -> None:
    offset = mmap.PAGESIZE + 5  # not at the start of a page
    block = mapped_files.map_private(str(path), offset, 300, None)
    assert bytes(view(block)) == path.read_bytes()[offset : offset + 300]
    view(block)[0] = 200
    assert view(block)[0] == 200
    assert path.read_bytes()[offset] == 5


def test_a_mapping_goes_with_its_last_user(path: pathlib.Path) -> None:
    class Kept:
        pass

    kept = Kept()
    alive = weakref.ref(kept)
    blocks: list[Any] = [
        mapped_files.map(str(path), 100),
        mapped_files.map_private(str(path), 0, 100, kept),
    ]
    del kept
    last = [view(block)[:10] for block in blocks]
    blocks.clear()
    gc.collect()
    assert mappings(path) == 2
    assert alive() is not None
    last.clear()
    gc.collect()
    assert mappings(path) == 0
    assert alive() is None


def test_a_file_that_is_not_there(tmp_path: pathlib.Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        mapped_files.map(missing, 1)
    with pytest.raises(FileNotFoundError):
        mapped_files.map_private(missing, 0, 1, None)


def test_what_cannot_be_mapped(path: pathlib.Path) -> None:
    for map_nothing in (
        lambda: mapped_files.map(str(path), 0),
        lambda: mapped_files.map_private(str(path), 0, 0, None),
    ):
        with pytest.raises(OSError, match="Invalid argument"):
            map_nothing()
    assert not is_open(path)
