"""The records of the agents of this host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from runtime._node import registry
from runtime._session import find_agent


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", str(tmp_path))
    return tmp_path / f"clusterctl-{os.getuid()}"


Publish = Callable[[registry.NodeRecord], registry.Published]
IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_PUBLISH = """
import os, sys, msgspec
from runtime._node import registry
record = msgspec.json.decode(sys.argv[1], type=registry.NodeRecord)
if "--locked" in sys.argv:
    registry.publish(record)
else:
    registry._lock = lambda file: False
    registry.publish(record)
os._exit(0)
"""


@pytest.fixture
def publish() -> Iterator[Publish]:
    """Publishes records, as an agent in this process does; the locks go with the test."""
    made: list[registry.Published] = []

    def publish(record: registry.NodeRecord) -> registry.Published:
        made.append(registry.publish(record))
        return made[-1]

    yield publish
    for published in made:
        published.withdraw()


def publish_and_die(record: registry.NodeRecord, locked: bool = True) -> None:
    """Publishes a record in a process that then ends without withdrawing it."""
    words = [msgspec.json.encode(record).decode(), *(["--locked"] if locked else [])]
    subprocess.run([sys.executable, "-c", _PUBLISH, *words], check=True)


@pytest.fixture
def other_namespace() -> Callable[[str], str]:
    """Runs a Python program in a process namespace of its own, as in another container, and returns what it says."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare of util-linux is missing")
    if subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("process namespaces may not be made here")

    def run(program: str) -> str:
        command = [*IN_A_NAMESPACE, sys.executable, "-c", program]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    return run


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


def test_the_youngest_comes_first(publish: Publish) -> None:
    for number in (1, 3, 2):
        publish(record(number))
    assert [found.unix_path for found in registry.records()] == ["/socket3", "/socket2", "/socket1"]


def test_records_and_their_directories_are_private(base: Path, publish: Publish) -> None:
    publish(record(1))
    assert base.stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_when_the_last_record_goes(base: Path) -> None:
    registry.publish(record(1)).withdraw()
    assert not base.exists()


def test_a_dead_agents_record_is_removed(base: Path) -> None:
    publish_and_die(record(1))
    assert registry.records() == []
    assert not base.exists()


def test_without_locks_the_process_decides(base: Path) -> None:
    publish_and_die(record(1), locked=False)
    publish_and_die(record(2, pid=dead_pid()), locked=False)
    publish_and_die(record(3, process_started_s=1.0), locked=False)  # a reused process id
    assert [found.unix_path for found in registry.records()] == ["/socket1"]


def test_a_killed_local_session_is_cleared(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    publish_and_die(record(1, local=True, session_dir=str(session)))
    registry.records()
    assert not session.exists()


def test_a_session_of_another_container_is_left_alone(
    tmp_path: Path, publish: Publish, other_namespace: Callable[[str], str]
) -> None:
    session = tmp_path / "session"
    session.mkdir()
    publish(record(1, local=True, session_dir=str(session)))
    said = other_namespace("from runtime._node import registry; print(registry.records())")
    assert said == "[]\n"  # it could not use this one
    assert session.exists()
    assert [found.unix_path for found in registry.records()] == ["/socket1"]


def test_a_session_that_was_killed_in_another_container_is_cleared(
    tmp_path: Path, other_namespace: Callable[[str], str]
) -> None:
    session = tmp_path / "session"
    session.mkdir()
    publish_and_die(record(1, local=True, session_dir=str(session)))
    other_namespace("from runtime._node import registry; registry.records()")
    assert not session.exists()


def test_a_linked_record_goes_with_its_agent(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", str(tmp_path / "elsewhere"))
    published = registry.publish(record(1))
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", str(tmp_path))
    registry.publish_link(published.path)
    assert [found.unix_path for found in registry.records()] == ["/socket1"]
    published.withdraw()
    assert registry.records() == []
    assert not base.exists()


def test_a_broken_record_is_ignored(base: Path, publish: Publish) -> None:
    publish(record(1))
    (base / "nodes" / "x.json").write_text("{")
    assert len(registry.records()) == 1


def test_a_directory_that_is_open_to_others_is_closed(base: Path) -> None:
    base.mkdir(mode=0o755)
    base.chmod(0o755)
    registry.make_private_dir(base)
    assert base.stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_taken_for_a_private_directory(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    target.chmod(0o755)
    base.symlink_to(target)
    with pytest.raises(OSError, match=r"is a symbolic link: remove it or set CLUSTERCTL_TMPDIR"):
        registry.make_private_dir(str(base))
    assert target.stat().st_mode & 0o777 == 0o755
    target.rmdir()
    with pytest.raises(OSError, match="is a symbolic link"):
        registry.make_private_dir(str(base))
    base.unlink()
    base.touch()
    with pytest.raises(OSError, match="is no folder"):
        registry.make_private_dir(str(base))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a folder away")
def test_a_directory_of_another_user_is_refused(base: Path) -> None:
    base.mkdir()
    os.chown(base, 12345, -1)
    with pytest.raises(OSError, match="belongs to user 12345"):
        registry.make_private_dir(str(base))


def test_local_sessions_are_found_by_auto_only(publish: Publish) -> None:
    publish(record(1, local=True))
    assert find_agent(None) is None
    found = find_agent("auto")
    assert found is not None
    assert found.local


def test_what_a_worker_started_finds_its_own_cluster(publish: Publish) -> None:
    parent = os.getppid()
    started_s = registry._process_started_s(parent)
    publish(record(1, pid=parent, process_started_s=started_s, local=True))
    publish(record(2))
    found = find_agent("auto")
    assert found is not None
    assert found.unix_path == "/socket1"


def test_the_head_is_preferred(publish: Publish) -> None:
    publish(record(1, is_head=True))
    publish(record(2))
    found = find_agent("auto")
    assert found is not None
    assert found.unix_path == "/socket1"


def test_an_agent_is_found_by_its_cluster(publish: Publish) -> None:
    publish(record(1))
    publish(record(2, control_address="127.0.0.1:2000"))
    found = find_agent("127.0.0.1:2000")
    assert found is not None
    assert found.unix_path == "/socket2"
    assert find_agent("127.0.0.1:3000") is None


def test_localhost_is_this_machines_loopback(publish: Publish) -> None:
    publish(record(1))
    publish(record(2, control_address="127.0.0.1:2000"))
    publish(record(3, control_address="localhost:3000"))
    for address, socket in (("localhost:2000", "/socket2"), ("127.0.0.1:3000", "/socket3")):
        found = find_agent(address)
        assert found is not None
        assert found.unix_path == socket
    assert find_agent("localhost:4000") is None
