"""What a new life of the head keeps of the old state."""

from __future__ import annotations

import os
import pathlib

from clusterctl.head import state
from clusterctl.head.state import begin_new_life
from runtime._control import storage
from runtime._control.storage import open_storage
from runtime._system import files
from tests.killed_writers import killed_after_each_line


def test_jobs_and_packages_stay_and_the_rest_goes(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "state.sqlite")
    old = open_storage(path)
    kept = ("kv:jobs", "kv:packages", "kv:package_holds", "kv:job_requests")
    for table in (*kept, "kv:autoscaler", "nodes"):
        old.put(table, b"k", table.encode())
    old.commit()
    old.close()
    assert begin_new_life(path)
    new = open_storage(path)
    assert [new.get(table, b"k") for table in kept] == [table.encode() for table in kept]
    assert [new.get(table, b"k") for table in ("kv:autoscaler", "nodes")] == [None, None]
    new.close()
    assert os.listdir(tmp_path) == ["state.sqlite"]


def test_without_an_old_state_there_is_nothing_to_do(tmp_path: pathlib.Path) -> None:
    assert not begin_new_life(str(tmp_path / "none"))


def test_whoever_begins_a_new_life_may_be_killed_at_any_moment(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "state.sqlite")
    old = open_storage(path)
    for number in range(3):
        old.put("kv:jobs", b"%d" % number, b"job")
    old.put("nodes", b"n", b"node")
    old.commit()
    old.close()
    sources = {str(module.__file__) for module in (state, storage, files)}
    for _ in killed_after_each_line(lambda: begin_new_life(path), sources):
        kept = open_storage(path)
        assert [key for key, _ in kept.scan("kv:jobs")] == [b"0", b"1", b"2"]
        kept.close()
    assert os.listdir(tmp_path) == ["state.sqlite"]
