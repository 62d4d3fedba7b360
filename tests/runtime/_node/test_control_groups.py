"""Control groups of a node, in a hierarchy of the kernel's.

Where no hierarchy of version 2 has the controllers cpu and memory, groups without controllers, and with another one,
show all but the effect of the values.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from runtime._core.isolation import Isolation
from runtime._node.control_groups import PREFIX, NodeGroups, remove_abandoned
from runtime._session.daemons import start_local
from tests.groups import Group, parent_group
from tests.polling import eventually


@pytest.fixture
def parent(no_leaks: None) -> Iterator[Group]:
    with parent_group() as group:
        yield group


def isolation(group: Group, *controllers: str) -> Isolation:
    return Isolation(str(group.folder), controllers, {}, {}, {})


def group_of(pid: int) -> str:
    [line] = [
        line
        for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        if line.startswith("0::")
    ]
    return line


def test_a_local_node_and_its_end(parent: Group) -> None:
    before = group_of(os.getpid())
    daemon = start_local(num_cpus=1, isolation=isolation(parent))
    assert group_of(daemon.pid).endswith("/system")
    [folder] = parent.groups()
    assert folder.name.startswith(PREFIX)
    assert group_of(os.getpid()) == before
    daemon.stop(60.0)
    assert eventually(lambda: parent.groups() == [])


def test_a_node_that_was_killed(parent: Group) -> None:
    daemon = start_local(num_cpus=1, isolation=isolation(parent))
    daemon.kill()
    start_local(num_cpus=1, isolation=isolation(parent)).stop(
        60.0
    )  # also removes the files of the killed one

    def is_removed() -> bool:
        remove_abandoned(str(parent.folder))  # the processes of the killed one may have ended only now
        return parent.groups() == []

    assert eventually(is_removed)


def test_groups_with_processes_of_others_stay(parent: Group) -> None:
    abandoned = parent.folder / f"{PREFIX}999999999_0"
    (abandoned / "system").mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as process:
        (abandoned / "system" / "cgroup.procs").write_text(str(process.pid))
        remove_abandoned(str(parent.folder))
        assert (abandoned / "system").is_dir()
        process.kill()
    assert eventually(lambda: remove_abandoned(str(parent.folder)) or parent.groups() == [])


def test_a_path_without_groups(tmp_path: pathlib.Path, parent: Group) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        NodeGroups.begin(Isolation(str(tmp_path / "none"), (), {}, {}, {}))
    with pytest.raises(ValueError, match="no control group hierarchy of version 2"):
        NodeGroups.begin(Isolation(str(tmp_path), (), {}, {}, {}))
    with pytest.raises(ValueError, match="lacks the controllers unheard-of"):
        NodeGroups.begin(isolation(parent, "unheard-of"))
    assert parent.groups() == []


def test_a_value_that_the_kernel_refuses_leaves_nothing(parent: Group) -> None:
    before = group_of(os.getpid())
    with pytest.raises(ValueError, match="No control groups for this node"):
        NodeGroups.begin(Isolation(str(parent.folder), (), {}, {"no.such": "1"}, {}))
    assert group_of(os.getpid()) == before
    assert eventually(lambda: parent.groups() == [])


def test_controllers_and_values(parent: Group) -> None:
    name, file, value = parent.controller()
    described = Isolation(str(parent.folder), (name,), {file: value}, {file: value}, {file: value})
    groups = NodeGroups.begin(described)
    try:
        workers = pathlib.Path(groups.workers)
        for folder in (workers, workers.parent / "system", workers.parent):
            assert (folder / file).read_text().strip() == value
        assert group_of(os.getpid()).endswith("/system")
    finally:
        groups.end()
    assert parent.groups() == []


def test_a_path_with_processes_of_its_own(parent: Group) -> None:
    name, _, _ = parent.controller()
    with subprocess.Popen(["sleep", "600"]) as process:
        (parent.folder / "cgroup.procs").write_text(str(process.pid))
        with contextlib.suppress(OSError):
            (parent.folder / "cgroup.subtree_control").write_text(f"-{name}")
        try:
            with pytest.raises(ValueError, match="It has processes of its own"):
                NodeGroups.begin(isolation(parent, name))
        finally:
            process.kill()
    assert parent.groups() == []
