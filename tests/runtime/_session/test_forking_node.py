"""A node agent that is a fork of whoever starts it, with its zygote a fork of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import runtime
from runtime._session import Daemon, new_session_dir, start_control, write_secret
from runtime._session.forking_node import ForkedProcess
from tests.polling import eventually

FORK = """
import json, sys
from runtime._session.coming_up import DaemonError
from runtime._session.forking_node import fork_node
try:
    pid, ready = fork_node(*sys.argv[1:4], "127.0.0.1", {"CPU": 2}, {}, node_type="small")
    print(json.dumps({"pid": pid, **ready}))
except DaemonError as error:
    sys.exit(f"refused: {error}")
"""


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: those of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="cs-") as root:
        monkeypatch.setenv("CLUSTERCTL_TMPDIR", root)
        yield Path(root)


@pytest.fixture
def control() -> Iterator[Daemon]:
    session = new_session_dir()
    daemon = start_control(session, write_secret(session))
    yield daemon
    daemon.stop()


def fork(control: Daemon, secret: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """
    Args:
        before: Python that the process runs first.
    """
    own = str(Path(control.log_path).parent.parent / "secret")
    return subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            before + FORK,
            control.ready["address"],
            new_session_dir(),
            secret or own,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def before() -> str:
    """What the process that is forked runs first."""
    return ""


@pytest.fixture
def node(control: Daemon, before: str) -> Iterator[dict[str, Any]]:
    ran = fork(control, before=before)
    assert ran.returncode == 0, ran.stderr
    node = json.loads(ran.stdout)
    agent = psutil.Process(node["pid"])
    family = [agent, *agent.children(recursive=True)]
    yield node
    if agent.is_running():
        agent.terminate()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


def test_it_outlives_whoever_forked_it_and_works(control: Daemon, node: dict[str, Any]) -> None:
    assert os.getsid(node["pid"]) == node["pid"]
    (zygote,) = psutil.Process(node["pid"]).children()
    assert os.readlink(f"/proc/{zygote.pid}/fd/1").endswith("/logs/zygote.log")
    runtime.init(address=control.ready["address"])
    try:
        (alive,) = runtime.nodes()
        assert alive["Resources"]["CPU"] == 2

        @runtime.remote(num_cpus=1)
        def parent() -> int:
            return os.getppid()

        assert runtime.get(parent.remote()) == zygote.pid
    finally:
        runtime.shutdown()


def test_its_workers_have_all_of_openssl(control: Daemon, node: dict[str, Any]) -> None:
    runtime.init(address=control.ready["address"])
    try:

        @runtime.remote
        def uses_it() -> list[object]:
            import hashlib
            import hmac
            import ssl

            hashlib.scrypt(b"password", salt=b"salt", n=2, r=1, p=1)
            hashlib.new("sha3_256", b"data")
            return [
                hashlib.sha256.__name__,
                hmac.digest(b"key", b"data", "sha256") == hmac.new(b"key", b"data", "sha256").digest(),
                ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED,
            ]

        assert runtime.get(uses_it.remote()) == ["openssl_sha256", True, True]
    finally:
        runtime.shutdown()


def test_a_killed_agent_takes_its_zygote_along(node: dict[str, Any]) -> None:
    (zygote,) = psutil.Process(node["pid"]).children()
    os.kill(node["pid"], signal.SIGKILL)
    _, alive = psutil.wait_procs([zygote], timeout=60)
    assert not alive


def test_a_killed_zygote_is_replaced(node: dict[str, Any]) -> None:
    agent = psutil.Process(node["pid"])
    (zygote,) = agent.children()
    zygote.kill()
    assert eventually(lambda: [child.pid for child in agent.children()] not in ([], [zygote.pid]))


@pytest.mark.parametrize("before", ["import sys; sys.modules['runtime._worker.main'] = None"])
def test_a_zygote_that_fails_after_its_rest_is_replaced(control: Daemon, node: dict[str, Any]) -> None:
    (resting,) = psutil.Process(node["pid"]).children()
    runtime.init(address=control.ready["address"])
    try:

        @runtime.remote
        def parent() -> int:
            return os.getppid()

        assert runtime.get(parent.remote()) != resting.pid
        assert "runtime._worker.main" in Path(node["session_dir"], "logs", "zygote.log").read_text()
    finally:
        runtime.shutdown()


def test_one_that_cannot_join_says_why_and_is_gone(control: Daemon, tmp_path: Path) -> None:
    other = tmp_path / "secret"
    other.write_text("another\n")
    ran = fork(control, str(other))
    assert ran.returncode == 1
    assert ran.stderr.startswith("refused: ")


def test_a_forked_process_tells_its_end_as_popen_does() -> None:
    process = ForkedProcess(os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", "exit 3"]))
    assert process.wait() == process.wait(1.0) == process.poll() == 3
    process.kill()  # it has ended: nobody is hit
    process = ForkedProcess(os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", "100"]))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.kill()
    assert process.wait(60.0) == -signal.SIGKILL
