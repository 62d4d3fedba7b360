"""Machines joined by hand, and a person's terminal on the head."""

from __future__ import annotations

import os
import pathlib
import pty
import socket
import sys
from collections.abc import Iterator

import pytest

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


def test_the_api_of_a_head_that_other_machines_reach_is_on_its_loopback_only(cli: Cli) -> None:
    head = cli.run("start", "--head", "--host", "127.0.0.2", "--json").json()
    assert head["control_address"].startswith("127.0.0.2:")
    assert head["api_url"].startswith("http://127.0.0.1:")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", int(head["api_url"].rpartition(":")[2])), timeout=10)
    assert cli.run("start", "--stop").out == "1 ended\n"


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
