"""Machines joined by hand, and a person's terminal on the head."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clusterctl import processes
from clusterctl.api_client import ApiClient
from tests.clusterctl.cli import Cli
from tests.polling import eventually


@pytest.fixture
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("cli"))
    yield cli
    cli.run("start", "--stop")
    for record in (cli.folder / "home").glob("clusters/*/cluster.json"):
        cli.run("down", "-y", record.parent.name)


def test_a_head_and_a_node_started_by_hand(cli: Cli) -> None:
    ran = cli.run("start", "--head", "--resources", '{"CPU": 1}', "--json")
    assert ran.status == 0, ran.err
    head = ran.json()
    secret = pathlib.Path(head["secret_file"])
    assert secret.stat().st_mode & 0o077 == 0
    ran = cli.run("start", "--address", head["control_address"], "--secret-file", str(secret), "--json")
    assert ran.status == 0, ran.err
    api = ApiClient(head["api_url"], secret.read_text().strip(), "by-hand")
    assert eventually(lambda: len([n for n in api.get("/api/nodes") if n["state"] == "ALIVE"]) == 2)
    api.close()
    assert cli.run("start", "--stop").out == "2 ended\n"
    assert cli.run("start", "--stop").out == "nothing was started here\n"


def test_a_node_that_joins_by_a_token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = cli.run("node", "token")
    assert ran.status != 0
    assert "no head runs on this machine" in ran.err
    head = cli.run("start", "--head", "--host", "127.0.0.2", "--num-cpus", "1", "--json").json()
    token = cli.run("node", "token").out.strip()
    monkeypatch.setenv("CLUSTERCTL_JOIN_TOKEN", token)
    ran = cli.run("start", "--num-cpus", "2", "--labels", "zone=a", "--json")
    assert ran.status == 0, ran.err
    node = ran.json()
    assert node["control_address"] == head["control_address"]
    secret = pathlib.Path(node["secret_file"])
    assert secret.parent == pathlib.Path(node["session_dir"])
    assert secret.stat().st_mode & 0o077 == 0
    assert token.encode() not in pathlib.Path(f"/proc/{node['pid']}/environ").read_bytes()
    api = ApiClient(head["api_url"], secret.read_text().strip(), "by-hand")
    assert eventually(lambda: len([n for n in api.get("/api/nodes") if n["state"] == "ALIVE"]) == 2)
    (found,) = (each for each in api.get("/api/nodes") if not each["is_head"])
    api.close()
    assert (found["resources_total"]["CPU"], found["labels"]["zone"]) == (2, "a")
    monkeypatch.setenv("CLUSTERCTL_JOIN_TOKEN", token[:-9])
    ran = cli.run("start")
    assert ran.status != 0
    assert "the joining token is damaged" in ran.err
    assert token[:-9] not in ran.err
    monkeypatch.delenv("CLUSTERCTL_JOIN_TOKEN")
    assert cli.run("start", "--stop").out == "2 ended\n"


def test_the_api_of_a_head_that_other_machines_reach_is_on_its_loopback_only(cli: Cli) -> None:
    head = cli.run("start", "--head", "--host", "127.0.0.2", "--json").json()
    assert head["control_address"].startswith("127.0.0.2:")
    assert head["api_url"].startswith("http://127.0.0.1:")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", int(head["api_url"].rpartition(":")[2])), timeout=60)
    assert cli.run("start", "--stop").out == "1 ended\n"


def test_a_head_whose_grpc_does_not_work_says_so(
    cli: Cli, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc").mkdir()
    (tmp_path / "grpc" / "__init__.py").write_text("raise ImportError('a library is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ran = cli.run("start", "--head")
    assert ran.status == 0, ran.err
    assert "remote drivers: none: it does not start: ImportError: a library is missing" in ran.out
    assert "ray://" not in ran.out
    assert cli.run("start", "--stop").out == "1 ended\n"


def test_a_head_started_by_hand_says_how_remote_drivers_come_in(cli: Cli) -> None:
    ran = cli.run("start", "--head")
    assert ran.status == 0, ran.err
    address = ran.out.partition("RAY_ADDRESS=ray://")[2].partition(",")[0]
    assert address, ran.out
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=60).close()
    assert cli.run("start", "--stop").out == "1 ended\n"


def test_options_of_ray_start(cli: Cli, tmp_path: pathlib.Path) -> None:
    words = "--num-cpus 2 --num-gpus 1 --memory 1000000 --object-store-memory 80000000 --node-ip-address 127.0.0.2"
    spill = ["--object-spilling-directory", str(tmp_path / "spill"), "--dashboard-port", "0", "--json"]
    head = cli.run("start", "--head", *words.split(), *spill).json()
    assert head["control_address"].startswith("127.0.0.2:")
    secret = pathlib.Path(head["secret_file"]).read_text().strip()
    api = ApiClient(head["api_url"], secret, "by-hand")
    [node] = api.get("/api/nodes")
    api.close()
    brought = {
        name: node["resources_total"][name] for name in ("CPU", "GPU", "memory", "object_store_memory")
    }
    assert brought == {"CPU": 2, "GPU": 1, "memory": 1000000, "object_store_memory": 80000000}
    daemon = pathlib.Path(f"/proc/{head['pid']}/environ").read_bytes().split(b"\0")
    assert f"RAY_object_spilling_directory={tmp_path}/spill".encode() in daemon


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_head_that_ends_with_its_command(cli: Cli, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "clusterctl", "start", "--head", "--num-cpus", "1", "--block", "--json"]
    with subprocess.Popen(command, env=cli.env(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        head = json.loads(process.stdout.readline())
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not os.path.exists(head["session_dir"])
    assert not processes.is_alive(head["pid"], head["start_ticks"])
    assert cli.run("start", "--stop").out == "nothing was started here\n"


def test_a_command_that_waits_for_a_head_that_is_killed(cli: Cli) -> None:
    command = [sys.executable, "-m", "clusterctl", "start", "--head", "--num-cpus", "1", "--block", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=cli.env(), **pipes) as process:
        assert process.stdout is not None
        head = json.loads(process.stdout.readline())
        os.kill(head["pid"], signal.SIGKILL)
        assert "the head has ended; its logs are in" in process.communicate(timeout=60)[1]
        assert process.returncode == 1


def test_joining_fails_with_words(cli: Cli, tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0" * 64)
    secret.chmod(0o644)
    ran = cli.run("start", "--address", "127.0.0.1:1", "--secret-file", str(secret))
    assert ran.status == 2
    assert "chmod 600" in ran.err


def test_attach_opens_a_terminal_on_the_head(cli: Cli) -> None:
    assert cli.run("up", "-y", cli.spec("attached")).status == 0
    pid, master = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "clusterctl", "attach"], cli.env())
    shown = b""
    typed = b"tty; echo $CLUSTERCTL_MACHINE$((40 + 2)); exit 6\n"
    while True:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
        if typed and b"(head " in shown:
            os.write(master, typed)
            typed = b""
    os.close(master)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 6, shown
    assert b"(head " in shown
    assert b"/dev/pts/" in shown
