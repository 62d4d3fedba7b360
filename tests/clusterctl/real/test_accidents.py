"""Bad days: interruptions, deaths, lost state, ports in use. Every module must leave nothing behind."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.clusterctl.cli import Cli, alive, machines_root
from tests.polling import eventually


@pytest.fixture
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("cli"))
    yield cli
    for record in (cli.folder / "home").glob("clusters/*/cluster.json"):
        cli.run("down", "-y", record.parent.name)


SLOW = "worker_setup_commands: ['sleep 60']\n"


@pytest.mark.parametrize("moment", ["home", "creating the head", "setting up the head", "waiting for"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(cli: Cli, moment: str, number: int) -> None:
    process = cli.start("up", "-y", cli.spec("brief", least=2, extra=SLOW))
    assert process.stderr is not None
    if moment == "home":
        assert eventually(lambda: (cli.folder / "home").exists())
    else:
        assert any(line.startswith(moment) for line in process.stderr)
    process.send_signal(number)  # people press it more than once
    ran = cli.interrupt(process, number)
    assert ran.status == 130
    assert "interrupted" in ran.err
    assert "Traceback" not in ran.err
    assert eventually(lambda: not machines_root().exists())
    assert list((cli.folder / "home").glob("clusters/*")) == []


@pytest.mark.parametrize("moment", ["creating the head", "setting up the head", "waiting for"])
def test_an_up_whose_terminal_is_closed_leaves_nothing(cli: Cli, moment: str) -> None:
    assert cli.close_terminal(moment, "up", "-y", cli.spec("closed", least=2, extra=SLOW)) == 130
    assert not machines_root().exists()
    assert list((cli.folder / "home").glob("clusters/*")) == []


def test_an_up_goes_on_when_nobody_reads_what_it_says(cli: Cli) -> None:
    process = cli.start("up", "-y", cli.spec("unheard", least=1))
    assert process.stderr is not None
    process.stderr.close()
    assert process.stdout is not None
    assert "is up: the head and 1 worker" in process.stdout.read()
    assert process.wait(60) == 0
    process.stdout.close()


def test_two_ups_at_once(cli: Cli) -> None:
    go = cli.folder / "go"
    wait = f"head_setup_commands: ['while [ ! -e {go} ]; do sleep 0.05; done']\n"
    spec = cli.spec("twice", least=1, extra=wait)
    first = cli.start("up", "-y", spec)
    assert first.stderr is not None
    first.stderr.readline()
    second = cli.run("up", "-y", spec)
    go.touch()
    out, _ = first.communicate(timeout=60)
    assert (first.returncode, second.status) == (0, 4)
    assert f"process {first.pid}" in second.err
    assert "is up" in out


def test_a_dead_head_is_told_and_up_starts_over(cli: Cli) -> None:
    spec = cli.spec("mortal", least=1)
    assert cli.run("up", "-y", spec).status == 0
    head = cli.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()
    os.kill(head["pid"], signal.SIGKILL)
    ran = cli.run("job", "list")
    assert ran.status == 5
    assert "clusterctl up" in ran.err
    # the worker shuts itself down, the head's machine stays for its logs
    assert eventually(lambda: len(list(machines_root().iterdir())) == 1)
    assert cli.run("logs", "--file", "head").status == 0
    ran = cli.run("up", "-y", spec)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2


def test_a_job_that_follows_hears_of_the_heads_death(cli: Cli) -> None:
    assert cli.run("up", "-y", cli.spec("sudden")).status == 0
    script = cli.script("import time\nprint('waits', flush=True)\ntime.sleep(600)\n")
    watcher = cli.start("submit", script)
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "waits\n"
    head = cli.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()
    os.kill(head["pid"], signal.SIGKILL)
    _, err = watcher.communicate(timeout=60)
    assert watcher.returncode == 5
    assert "does not answer" in err


def test_a_killed_control_store_is_restarted(cli: Cli) -> None:
    assert cli.run("up", "-y", cli.spec("revived", least=1)).status == 0
    listed = cli.run("exec", "ps -o pid=,args= -e | grep '[r]untime._control' | grep $CLUSTERCTL_MACHINE").out
    os.kill(int(listed.split()[0]), signal.SIGKILL)
    script = cli.script("import runtime\nruntime.init()\nprint(len(runtime.nodes()))\n")
    assert eventually(lambda: cli.run("submit", script).status == 0)
    assert cli.wait(lambda status: len(alive(status)) == 2)


def test_a_killed_worker_machine_is_replaced_and_up_waits_for_that(cli: Cli) -> None:
    held = cli.folder / "held"
    commands = f"worker_setup_commands: ['while [ -e {held} ]; do sleep 0.05; done']\n"
    file = cli.spec("healing", least=1, extra=commands)
    assert cli.run("up", "-y", file).status == 0
    worker = next(node for node in alive(cli.status()) if not node["is_head"])
    (folder,) = [
        f for f in machines_root().iterdir() if worker["instance_id"] in (f / "machine.json").read_text()
    ]
    pid = cli.run("exec", f"cat {folder}/s/daemon.json").json()["pid"]
    held.touch()
    os.kill(pid, signal.SIGKILL)
    assert cli.wait(lambda status: [node["is_head"] for node in alive(status)] == [True])
    again = cli.start("up", file)  # nothing has changed, and yet there is something to wait for
    assert again.stderr is not None
    assert "waiting for 1 worker\n" in iter(again.stderr.readline, "")
    held.unlink()
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert "is up: the head and 1 worker" in out
    (new,) = [node for node in alive(cli.status()) if not node["is_head"]]
    assert new["node_id"] != worker["node_id"]
    assert "nothing to do" in cli.run("up", file).out


def test_a_worker_that_cannot_be_set_up_is_named_with_its_step(cli: Cli) -> None:
    extra = "worker_setup_commands: ['echo the disk is missing; exit 9']\n"
    ran = cli.run("up", "-y", cli.spec("crooked", least=1, extra=extra))
    assert ran.status == 1
    assert "at step 'worker_setup_commands[0]': setup failed: exit status 9" in ran.err
    assert "the disk is missing" in ran.err
    assert cli.run("status").status == 0  # the head is there to be asked


def test_a_head_that_cannot_be_set_up_leaves_nothing(cli: Cli) -> None:
    command = "echo first; seq 30; exit 4"
    ran = cli.run("up", "-y", cli.spec("headless", extra=f"head_setup_commands: ['{command}']\n"))
    assert ran.status == 1
    assert "head_setup_commands[0]" in ran.err
    assert "exit status 4" in ran.err
    assert not machines_root().exists()
    assert cli.run("cluster", "list", "--json").json() == []
    assert "Correct that and run `clusterctl up` again." in ran.err
    log = pathlib.Path(ran.err.splitlines()[-1].removeprefix("All of the head's set-up: "))
    assert "  first\n" in log.read_text()  # more than the last lines, which the error has
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("which", ["api", "control"])
def test_a_port_in_use(cli: Cli, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = cli.run("up", "-y", cli.spec("ported", extra=f"ports: {{{which}: {port}}}\n"))
    assert ran.status == 1
    assert str(port) in ran.err
    assert "in use" in ran.err
    assert not machines_root().exists()


def test_down_works_from_tags_alone(cli: Cli) -> None:
    spec = cli.spec("forgotten", least=1)
    assert cli.run("up", "-y", spec).status == 0
    shutil.rmtree(cli.folder / "home" / "clusters" / "forgotten")
    assert cli.run("up", spec).status == 1  # asks, and nobody is there to answer
    ran = cli.run("down", "-y", spec)
    assert ran.status == 0, ran.err
    assert "2 machines" in ran.out
    assert not machines_root().exists()


def test_a_stock_out_is_told(cli: Cli) -> None:
    spec = cli.spec("scarce")
    path = pathlib.Path(spec)
    path.write_text(
        path.read_text().replace("    min_workers: 0", "    node_config: {capacity: 1}\n    min_workers: 2")
    )
    ran = cli.run("up", "-y", "--timeout", "2", spec)
    assert ran.status in (1, 7)
    assert "1 worker" in ran.err or "2 worker" in ran.err  # the first may take longer than that
    assert eventually(lambda: "capacity is 1" in cli.run("status").out)
    assert cli.wait(lambda status: len(alive(status)) == 2)
