"""`init(enable_resource_isolation=True)`: daemons and workers in control groups of their own."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import runtime as ray
from runtime._core import isolation
from runtime._core.isolation import Isolation
from runtime._node.control_groups import remove_abandoned
from tests.groups import Group, parent_group
from tests.polling import eventually


@pytest.fixture
def parent(no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """A path for groups. They have no controllers, as those of cpu and memory may be in a hierarchy of version 1."""

    def without_controllers(path: str, *_: Any) -> Isolation:
        return Isolation(path, (), {}, {}, {})

    monkeypatch.setattr(isolation, "plan", without_controllers)
    with parent_group() as group:
        yield group


def own_group() -> str:
    lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    return next(line for line in lines if line.startswith("0::"))


@ray.remote
def group_of_a_task() -> str:
    return own_group()


@ray.remote
class Actor:
    def group(self) -> str:
        return own_group()


def test_workers_and_daemons_are_in_groups_of_their_own(parent: Group) -> None:
    ray.init(num_cpus=2, enable_resource_isolation=True, cgroup_path=str(parent.folder))
    try:
        [node] = parent.groups()
        for group in (ray.get(group_of_a_task.remote()), ray.get(Actor.remote().group.remote())):
            assert group.endswith(f"/{node.name}/workers")
        daemons = (node / "system" / "cgroup.procs").read_text().split()
        assert len(daemons) >= 2  # the agent and the zygote
        assert not own_group().endswith(("/workers", "/system"))
    finally:
        ray.shutdown()
    # The node has removed them, or had no time to.
    assert eventually(lambda: remove_abandoned(str(parent.folder)) or parent.groups() == [])


def test_the_error_says_what_is_missing(no_leaks: None, tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match="no control group hierarchy of version 2"):
        ray.init(num_cpus=1, enable_resource_isolation=True, cgroup_path=str(tmp_path))
    assert not ray.is_initialized()
