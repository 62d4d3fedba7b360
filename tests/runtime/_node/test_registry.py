"""The records of the agents of this host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime._node import registry
from runtime._session import find_agent


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", str(tmp_path))
    return tmp_path / f"clusterctl-{os.getuid()}"


def record(number: int, **changes: object) -> registry.NodeRecord:
    made = registry.record_of_this_process(
        bytes([number]) * 28,
        "127.0.0.1:1000",
        f"/socket{number}",
        "/nowhere",
        is_head=False,
        local=False,
        now=float(number),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_systems_temporary_directory_is_taken_if_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTERCTL_TMPDIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert registry.base_dir() == f"{tmp_path}/clusterctl-{os.getuid()}"
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/gone")
    assert registry.base_dir() == f"/tmp/clusterctl-{os.getuid()}"


def test_the_youngest_comes_first() -> None:
    for number in (1, 3, 2):
        registry.publish(record(number))
    assert [found.unix_path for found in registry.records()] == ["/socket3", "/socket2", "/socket1"]


def test_records_and_their_directories_are_private(base: Path) -> None:
    registry.publish(record(1))
    assert base.stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_when_the_last_record_goes(base: Path) -> None:
    registry.withdraw(registry.publish(record(1)))
    assert not base.exists()


def test_a_dead_agents_record_is_removed(base: Path) -> None:
    registry.publish(record(1, pid=dead_pid()))
    assert registry.records() == []
    assert not base.exists()


def test_a_reused_process_id_is_not_taken_for_the_agent() -> None:
    registry.publish(record(1, process_started_s=1.0))
    assert registry.records() == []


def test_a_killed_local_session_is_cleared(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    registry.publish(record(1, pid=dead_pid(), local=True, session_dir=str(session)))
    registry.records()
    assert not session.exists()


def test_a_broken_record_is_ignored(base: Path) -> None:
    registry.publish(record(1))
    (base / "nodes" / "x.json").write_text("{")
    assert len(registry.records()) == 1


def test_a_directory_that_is_open_to_others_is_closed(base: Path) -> None:
    base.mkdir(mode=0o755)
    base.chmod(0o755)
    registry.make_private_dir(base)
    assert base.stat().st_mode & 0o777 == 0o700


def test_local_sessions_are_found_by_auto_only() -> None:
    registry.publish(record(1, local=True))
    assert find_agent(None) is None
    found = find_agent("auto")
    assert found is not None
    assert found.local


def test_what_a_worker_started_finds_its_own_cluster() -> None:
    parent = os.getppid()
    started_s = registry._process_started_s(parent)
    registry.publish(record(1, pid=parent, process_started_s=started_s, local=True))
    registry.publish(record(2))
    found = find_agent("auto")
    assert found is not None
    assert found.unix_path == "/socket1"


def test_the_head_is_preferred() -> None:
    registry.publish(record(1, is_head=True))
    registry.publish(record(2))
    found = find_agent("auto")
    assert found is not None
    assert found.unix_path == "/socket1"


def test_an_agent_is_found_by_its_cluster() -> None:
    registry.publish(record(1))
    registry.publish(record(2, control_address="127.0.0.1:2000"))
    found = find_agent("127.0.0.1:2000")
    assert found is not None
    assert found.unix_path == "/socket2"
    assert find_agent("127.0.0.1:3000") is None


def test_localhost_is_this_machines_loopback() -> None:
    registry.publish(record(1))
    registry.publish(record(2, control_address="127.0.0.1:2000"))
    registry.publish(record(3, control_address="localhost:3000"))
    for address, socket in (("localhost:2000", "/socket2"), ("127.0.0.1:3000", "/socket3")):
        found = find_agent(address)
        assert found is not None
        assert found.unix_path == socket
    assert find_agent("localhost:4000") is None
