"""Starting and stopping real daemons."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runtime._session import (
    Daemon,
    DaemonError,
    find_agent,
    new_session_dir,
    start_control,
    start_local,
    start_node,
    write_secret,
)
from runtime._session.daemons import start_module


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: those of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="cs-") as root:
        monkeypatch.setenv("CLUSTERCTL_TMPDIR", root)
        yield Path(root)


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    started: list[Daemon] = []
    yield started
    for daemon in reversed(started):
        daemon.stop()


def family(daemon: Daemon) -> list[psutil.Process]:
    return [*psutil.Process(daemon.pid).children(recursive=True), psutil.Process(daemon.pid)]


def test_a_local_session_comes_up_and_leaves_nothing(root: Path, daemons: list[Daemon]) -> None:
    daemon = start_local(num_cpus=1)
    daemons.append(daemon)
    assert Path(daemon.ready["unix_path"]).is_socket()
    processes = family(daemon)
    daemon.stop()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    assert list(root.iterdir()) == []


def test_a_killed_local_session_takes_its_processes_with_it(daemons: list[Daemon]) -> None:
    daemon = start_local(num_cpus=1)
    daemons.append(daemon)
    processes = family(daemon)
    daemon.kill()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive


def test_a_cluster_comes_up_and_its_head_is_found(daemons: list[Daemon]) -> None:
    session = new_session_dir()
    secret = write_secret(session)
    control = start_control(session, secret)
    daemons.append(control)
    head = start_node(control.ready["address"], session, secret, num_cpus=1, head=True)
    daemons.append(head)
    worker = start_node(control.ready["address"], new_session_dir(), secret, num_cpus=1, node_id="ab" * 28)
    daemons.append(worker)
    assert worker.ready["node_id"] == "ab" * 28
    found = find_agent(control.ready["address"])
    assert found is not None
    assert found.unix_path == head.ready["unix_path"]
    worker.stop()
    head.stop()
    assert head.process.returncode == 0
    assert find_agent("auto") is None


def test_a_node_with_another_secret_is_refused(daemons: list[Daemon]) -> None:
    session, other = new_session_dir(), new_session_dir()
    control = start_control(session, write_secret(session))
    daemons.append(control)
    with pytest.raises(DaemonError, match="secret"):
        start_node(control.ready["address"], other, write_secret(other), num_cpus=1)


def test_a_port_in_use_is_named(daemons: list[Daemon]) -> None:
    session = new_session_dir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DaemonError, match=str(port)):
            start_control(session, write_secret(session), port=port)


def test_wrong_resources_are_refused_in_the_daemons_words(root: Path) -> None:
    with pytest.raises(DaemonError, match="cannot be negative"):
        start_local(num_cpus=-1)
    assert list(root.iterdir()) == []


def test_a_daemon_that_cannot_even_start_shows_the_end_of_its_log() -> None:
    session = new_session_dir()
    with pytest.raises(DaemonError, match="No module named"):
        start_module("runtime.no_such_module", [], session, "agent", False, 20.0)


def test_a_ctrl_c_for_the_caller_does_not_reach_a_daemon(daemons: list[Daemon]) -> None:
    daemon = start_local(num_cpus=1)
    daemons.append(daemon)
    assert os.getpgid(daemon.pid) != os.getpgid(0)
    detached = start_control(*_session(), detached=True)
    daemons.append(detached)
    assert os.getsid(detached.pid) == detached.pid


def _session() -> tuple[str, str]:
    session = new_session_dir()
    return session, write_secret(session)


def test_sigterm_ends_an_agent_cleanly(daemons: list[Daemon], root: Path) -> None:
    daemon = start_local(num_cpus=1)
    daemons.append(daemon)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0


def test_a_session_directory_is_private() -> None:
    session = Path(new_session_dir())
    secret = Path(write_secret(str(session)))
    assert session.stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_text().strip()) == 64
    with pytest.raises(FileExistsError):
        write_secret(str(session))


def test_a_daemon_ends_with_its_starter_unless_it_is_detached(root: Path) -> None:
    script = """
import os, sys
from runtime._session import new_session_dir, start_control, write_secret
session = new_session_dir()
secret = write_secret(session)
kept = start_control(session, secret, detached=True)
bound = start_control(session, secret, state=":memory:")
print(kept.pid, bound.pid, flush=True)
sys.stdin.read()
"""
    starter = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdin is not None
    assert starter.stdout is not None
    kept, bound = (psutil.Process(int(pid)) for pid in starter.stdout.readline().split())
    starter.kill()
    starter.wait()
    _, alive = psutil.wait_procs([bound], timeout=60)
    assert not alive
    assert kept.is_running()
    kept.terminate()
    psutil.wait_procs([kept], timeout=60)
    starter.stdin.close()
    starter.stdout.close()


def test_too_long_a_folder_is_told_before_anything_is_made(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 80)
    with pytest.raises(OSError, match=r"bytes too long for Unix sockets: set CLUSTERCTL_TMPDIR"):
        new_session_dir(str(deep))
