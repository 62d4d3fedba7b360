"""A control group of version 2 for a test, with nothing in it."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.polling import eventually

_VALUES = {
    "memory": ("memory.min", "4096"),
    "pids": ("pids.max", "1000"),
    "cpu": ("cpu.weight", "50"),
    "hugetlb": ("hugetlb.2MB.max", "0"),
}
"""For each controller, a file in a group, and a value that does no harm."""


class Group:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.switched_on: set[str] = set()

    def groups(self) -> list[pathlib.Path]:
        """The groups in it."""
        return [path for path in self.folder.iterdir() if path.is_dir()]

    def controller(self) -> tuple[str, str, str]:
        """A controller that groups below may have, one of its files, and a value for it. Skips the test if there is
        none."""
        above = self.folder.parent
        with contextlib.suppress(OSError):
            for name in (above / "cgroup.controllers").read_text().split():
                if name in _VALUES:
                    if name not in (above / "cgroup.subtree_control").read_text().split():
                        (above / "cgroup.subtree_control").write_text(f"+{name}")
                        self.switched_on.add(name)
                    return name, *_VALUES[name]
        pytest.skip(f"the control group {above} has no controller to give")


@contextlib.contextmanager
def parent_group() -> Iterator[Group]:
    """Skips the test where no hierarchy of version 2 can be written."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(place, os.W_OK):
            folder = pathlib.Path(place) / f"clusterctl-test_{os.getpid()}_{os.urandom(4).hex()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            break
    else:
        pytest.skip("no control group hierarchy of version 2 can be written here")
    group = Group(folder)
    try:
        yield group
    finally:
        for root, folders, _ in os.walk(folder, topdown=False):
            for name in folders:
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(root, name))
        assert eventually(lambda: _is_removed(folder))
        for name in group.switched_on:
            with contextlib.suppress(OSError):  # another test has it
                (folder.parent / "cgroup.subtree_control").write_text(f"-{name}")


def _is_removed(folder: pathlib.Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
