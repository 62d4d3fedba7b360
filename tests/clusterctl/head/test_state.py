"""What a new life of the head keeps of the old state."""

from __future__ import annotations

import os
import pathlib

from clusterctl.head.state import begin_new_life
from runtime._control.storage import open_storage


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
