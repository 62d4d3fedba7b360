"""What `up` runs on a worker: a process that joins the cluster and becomes the node agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import runtime
from clusterctl.launcher.runtimes.engine_nodes import join_command
from clusterctl.providers.gcp.metadata import NOTICES
from clusterctl.startup.order import JoinOrder
from runtime._clients.control import ControlClient
from runtime._node.zygote_spawn import daemon_environment
from runtime._session import Daemon, new_session_dir, start_control, write_secret
from runtime._wire.messages.control import GetNodes
from tests.polling import eventually
from tests.processes import is_alive
from tests.testbed.metadata import MetadataServer


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


class Machine:
    """Where the start command runs, as a launcher's shell runs it."""

    def __init__(self, control: Daemon) -> None:
        self.session = new_session_dir()
        self._order = JoinOrder(
            address=control.ready["address"],
            secret_file=str(Path(control.log_path).parent.parent / "secret"),
            host="127.0.0.1",
            resources={"CPU": 2},
            node_type="small",
        )
        self._started: list[subprocess.Popen[str]] = []

    def start(self, **order: Any) -> subprocess.Popen[str]:
        told = JoinOrder(
            **{name: getattr(self._order, name) for name in self._order.__struct_fields__} | order
        )
        own = {"CLUSTERCTL_PYTHON": sys.executable, "CLUSTERCTL_SESSION_DIR": self.session}
        shell = subprocess.Popen(
            ["/bin/sh", "-c", join_command(told)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=daemon_environment() | own,
            start_new_session=True,
        )
        self._started.append(shell)
        return shell

    def join(self, **order: Any) -> tuple[int, str, str]:
        """Exit status, output, errors; the end of the output is awaited, so nobody may hold it open."""
        shell = self.start(**order)
        output, errors = shell.communicate(timeout=60)
        return shell.returncode, output, errors

    def agents(self) -> list[psutil.Process]:
        """Those that join, and those that have joined."""
        mine = f"CLUSTERCTL_SESSION_DIR={self.session}".encode()
        found = []
        for process in psutil.process_iter():
            try:
                is_mine = mine in Path(f"/proc/{process.pid}/environ").read_bytes()
                if is_mine and "clusterctl.head.join" in process.cmdline()[1:5]:
                    found.append(process)
            except (OSError, psutil.Error):
                continue  # it has ended
        return found

    def close(self) -> None:
        for process in self.agents():
            process.terminate()
        assert eventually(lambda: not self.agents())
        for shell in self._started:
            shell.communicate(timeout=60)


@pytest.fixture
def machine(control: Daemon) -> Iterator[Machine]:
    machine = Machine(control)
    yield machine
    machine.close()


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of a control store that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_it_outlives_its_starter_has_nothing_of_it_and_works(control: Daemon, machine: Machine) -> None:
    status, output, errors = machine.join()
    assert (status, errors) == (0, "")
    record = json.loads(output)
    (agent,) = machine.agents()
    assert record["pid"] == agent.pid == os.getsid(agent.pid)
    streams = [os.readlink(f"/proc/{agent.pid}/fd/{number}") for number in range(3)]
    assert streams == ["/dev/null", *[f"{machine.session}/logs/agent.log"] * 2]
    files = [os.readlink(file) for file in Path(f"/proc/{agent.pid}/fd").iterdir()]
    assert not [file for file in files if file.startswith("pipe:") or file.endswith("start.lock")]
    assert os.readlink(f"/proc/{agent.pid}/cwd") == "/"
    ignored = next(
        line for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines() if "SigIgn" in line
    )
    assert not int(ignored.split()[1], 16) & (1 << signal.SIGQUIT - 1 | 1 << signal.SIGINT - 1)
    runtime.init(address=control.ready["address"])
    try:
        (alive,) = runtime.nodes()
        assert alive["Resources"]["CPU"] == 2

        @runtime.remote(num_cpus=1)
        def parent() -> int:
            return os.getppid()

        zygote = runtime.get(parent.remote())
        assert [child.pid for child in agent.children()] == [zygote]
    finally:
        runtime.shutdown()
    assert machine.join() == (0, output, "")  # it runs already


def test_a_machine_that_is_taken_back_drains_its_node(control: Daemon, machine: Machine) -> None:
    async def states() -> list[str]:
        secret = (Path(control.log_path).parent.parent / "secret").read_bytes().strip()
        client = ControlClient.over_tcp(control.ready["address"], secret)
        try:
            await client.start(30.0)
            return [node.state for node in (await client.call(GetNodes())).nodes]
        finally:
            await client.close()

    with MetadataServer() as metadata:
        machine.join(notices=msgspec.structs.replace(NOTICES, server=metadata.server))
        assert eventually(lambda: len(metadata.asked) == 2)
        assert asyncio.run(states()) == ["ALIVE"]
        metadata.give_notice()
        assert eventually(lambda: asyncio.run(states()) == ["DRAINING"])
    log = Path(machine.session, "logs", "agent.log").read_text(encoding="utf-8")
    assert "Google takes this spot machine back within 30 seconds" in log


def test_it_starts_no_process_before_it_has_work(machine: Machine) -> None:
    machine.join()
    (agent,) = machine.agents()
    assert not agent.children()


def test_one_that_cannot_join_says_why_and_is_gone(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("another\n")
    (tmp_path / "secret").chmod(0o600)
    for order, why in (
        ({"secret_file": str(tmp_path / "secret")}, "error: the node could not join 127.0.0.1:"),
        ({"secret_file": str(tmp_path / "none")}, "error: there is no secret file"),
        ({"host": "not an address"}, "error: the node could not join 127.0.0.1:"),
    ):
        status, output, errors = machine.join(**order)
        assert status != 0
        assert output == ""
        assert errors.startswith(why)
        assert "did not come up" in errors
        assert eventually(lambda: not machine.agents())


def begun(machine: Machine, address: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A start that is under way, and its process that is about to join."""
    shell = machine.start(address=address)
    log = Path(machine.session, "logs", "agent.log")
    assert eventually(log.exists)
    (agent,) = machine.agents()
    return shell, agent


def test_a_start_that_is_ended_leaves_nothing(machine: Machine, silent: str) -> None:
    shell, agent = begun(machine, silent)
    os.killpg(shell.pid, signal.SIGTERM)
    assert eventually(lambda: not is_alive(agent.pid))
    assert machine.join()[0] == 0  # it is nobody's turn any more


def test_nobody_waits_for_one_that_was_killed(machine: Machine, silent: str) -> None:
    shell, agent = begun(machine, silent)
    agent.kill()
    output, errors = shell.communicate(timeout=60)
    assert (shell.returncode != 0, output) == (True, "")
    assert "the node agent did not come up" in errors


def test_one_whose_starter_is_gone_is_found_by_the_next(machine: Machine) -> None:
    shell = machine.start()
    assert eventually(machine.agents)
    shell.kill()
    status, output, _ = machine.join()
    assert status == 0
    pid = json.loads(output)["pid"]
    # If the second was first, the one before it ends when it comes to its turn.
    assert eventually(lambda: [agent.pid for agent in machine.agents()] == [pid])
