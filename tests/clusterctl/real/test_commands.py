"""Commands that enter the nodes of a running cluster: exec, attach, logs, dashboard, addresses, cluster list."""

from __future__ import annotations

import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster of a head and two workers."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    ran = cli.run("up", "-y", cli.spec("many", least=2))
    assert ran.status == 0, ran.err
    yield cli
    cli.run("down", "-y", cli.spec("many", least=2))


@pytest.fixture(scope="module")
def workers(cli: Cli) -> list[str]:
    return sorted(node["instance_id"] for node in alive(cli.status()) if not node["is_head"])


def test_a_command_runs_on_all_nodes_side_by_side(cli: Cli, workers: list[str]) -> None:
    ran = cli.run("exec", "--all-nodes", "echo $CLUSTERCTL_MACHINE; echo two")
    assert ran.status == 0, ran.err
    lines = [line.split(" | ") for line in ran.out.splitlines()]
    assert sorted({name.strip() for name, _ in lines}) == sorted(["head", *workers])
    assert len({text for _, text in lines}) == 4  # three machines, and "two"
    assert len(lines) == 6


def test_exec_is_a_pipe(cli: Cli) -> None:
    data = bytes(range(256)) * 1000 + b"\r\nno end"
    ran = piped(cli, data, "exec", "cat; printf 'oops\r' >&2; exit 5")
    assert (ran.returncode, ran.stdout, ran.stderr) == (5, data, b"oops\r")
    assert piped(cli, data, "exec", "cat > data.bin").returncode == 0
    assert piped(cli, None, "exec", "cat data.bin; cat").stdout == data


def piped(cli: Cli, data: bytes | None, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a command with binary input; None: its standard input is closed."""
    command = [sys.executable, "-m", "clusterctl", *arguments]
    if data is None:
        command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command]
    return subprocess.run(
        command, input=data or b"", capture_output=True, env=cli.env(), cwd=cli.folder, timeout=60
    )


def test_the_worst_status_of_all_nodes_is_passed_on(cli: Cli) -> None:
    command = (
        'case "$CLUSTERCTL_ADDRESS$HOME" in *) grep -q is_head.*true ../machine.json && exit 3; exit 7; esac'
    )
    assert cli.run("exec", "--all-nodes", command).status == 7


def test_a_reader_that_has_enough_ends_the_command_on_all_nodes(cli: Cli) -> None:
    process = cli.start("exec", "--all-nodes", "while sleep 0.0321; do echo more; done")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.wait(60) == 1
    assert process.stderr.read() == ""
    process.stderr.close()
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 0[.]0321' || true"
    assert cli.run("exec", look).out == "0\n"


def test_ctrl_c_kills_the_command_on_all_nodes(cli: Cli) -> None:
    process = cli.start("exec", "--all-nodes", "touch $HOME/began; sleep 1234 & sleep 1234")
    assert eventually(lambda: cli.run("exec", "--all-nodes", "test -e $HOME/began").status == 0)
    ran = cli.interrupt(process)
    assert (ran.status, ran.err) == (130, "error: `clusterctl exec` was interrupted\n")
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [1]234' || true"
    assert cli.run("exec", look).out == "0\n"


def test_exec_and_logs_of_one_node(cli: Cli, workers: list[str]) -> None:
    there = cli.run("exec", "--node", workers[0], "echo $CLUSTERCTL_MACHINE").out
    assert there != cli.run("exec", "echo $CLUSTERCTL_MACHINE").out
    assert cli.run("exec", "--node", "nobody", "true").status == 3
    assert f"setup-{workers[0]}.log" in cli.run("logs", "--node", workers[0]).out
    assert "head-setup.log" in cli.run("logs").out


def test_nodes_are_listed_entered_and_read_by_their_ids(cli: Cli, workers: list[str]) -> None:
    lines = [line.split() for line in cli.run("node", "list").out.splitlines()]
    assert lines[0][:3] == ["node", "type", "state"]
    assert sorted(line[0] for line in lines[2:]) == workers
    listed = cli.run("node", "list", "many", "--json").json()
    assert [node["is_head"] for node in listed] == [True, False, False]
    assert sorted(node["instance_id"] for node in listed[1:]) == workers
    ran = cli.run("node", "exec", "many", workers[0], "--", "sh", "-c", "echo $CLUSTERCTL_MACHINE; exit 4")
    assert ran.status == 4
    assert ran.out == cli.run("exec", "--node", workers[0], "echo $CLUSTERCTL_MACHINE").out
    assert cli.run("node", "exec", "head", "echo a; echo b").out == "a\nb\n"
    assert f"setup-{workers[1]}.log" in cli.run("node", "logs", "many", workers[1]).out
    assert cli.run("node", "exec", "nobody", "true").status == 3


def test_rays_option_names_the_cluster(cli: Cli) -> None:
    other = cli.spec("other")
    assert cli.run("exec", other, "echo here", "--cluster-name", "many").out == "here\n"
    assert cli.run("get-head-ip", other, "--cluster-name", "many").out == "127.0.0.1\n"


def test_a_cluster_file_may_come_first(cli: Cli) -> None:
    spec = cli.spec("many", least=2)
    assert cli.run("exec", spec, "echo here; exit 4").status == 4
    assert "cluster 'many'" in cli.run("status", spec).out
    script = cli.script("import sys\nprint('with', sys.argv[1:])\n", folder="first")
    assert "with ['--rounds', '3']" in cli.run("submit", spec, script, "--", "--rounds", "3").out
    assert cli.run("exec", spec).status == 2


def test_the_addresses_of_the_machines(cli: Cli) -> None:
    spec = cli.spec("many", least=2)
    assert cli.run("get-head-ip", spec).out == "127.0.0.1\n"
    assert cli.run("get_head_ip").out == "127.0.0.1\n"
    assert cli.run("get-worker-ips").out == "127.0.0.1\n" * 2


def test_clusters_are_listed(cli: Cli) -> None:
    found = cli.run("cluster", "list", "--json").json()
    assert [(item["cluster_name"], item["state"], item["provider"]) for item in found] == [
        ("many", "UP", "local")
    ]
    assert (found[0]["head_answers"], found[0]["head"]) == ("yes", "127.0.0.1")
    lines = cli.run("cluster", "list").out.splitlines()
    assert lines[1].startswith("many *")


def test_a_damaged_record_hides_no_other_cluster(cli: Cli) -> None:
    folder = cli.folder / "home" / "clusters" / "broken"
    folder.mkdir()
    (folder / "cluster.json").write_text("{")
    try:
        ran = cli.run("cluster", "list")
        assert ran.status == 0, ran.err
        states = [line.replace(" *", "").split()[:2] for line in ran.out.splitlines()[1:]]
        assert states == [["broken", "DAMAGED"], ["many", "UP"]]
        assert "record of cluster 'broken' is damaged" in ran.err
    finally:
        shutil.rmtree(folder)


def test_start_makes_no_other_cluster_and_changes_none_that_runs(cli: Cli, tmp_path: pathlib.Path) -> None:
    other = Cli(tmp_path)
    file = other.spec("original")
    try:
        assert other.run("up", "-y", file, "-n", "mine").status == 0
        other.spec("original", extra="ports: {api: 1}\n")  # would end its programs
        assert other.run("exec", "--start", "-c", "mine", "echo here").out == "here\n"
        other.spec("original")
        assert other.run("stop", "-y", "mine").status == 0
        ran = other.run("exec", "-c", "mine", "true")
        assert f"clusterctl up {file} -n mine" in ran.err
        assert other.run("exec", "--start", "-c", "mine", "echo again").out == "again\n"
        assert [item["cluster_name"] for item in other.run("cluster", "list", "--json").json()] == ["mine"]
        assert other.run("doctor", "mine").out.startswith("cluster 'mine' is well")
    finally:
        other.run("down", "-y", "mine")
        other.run("down", "-y", file)


def test_the_dashboard_tunnel_leads_to_the_api_and_ends_with_ctrl_c(cli: Cli) -> None:
    process = cli.start("dashboard")
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(f"{url}/api/healthz", timeout=60) as answer:
        assert answer.status == 200
    assert cli.interrupt(process).status == 0


def test_logs_are_followed(cli: Cli) -> None:
    job = cli.script("print('said', flush=True)\n", folder="said")
    process = cli.start("logs", "-f", "--file", "job-followed")
    process.communicate(timeout=60)
    assert process.returncode == 3  # there is none yet
    assert cli.run("submit", "--submission-id", "followed", job).status == 0
    process = cli.start("logs", "-f", "--file", "job-followed")
    assert process.stdout is not None
    assert process.stdout.readline() == "==> job-followed.log <==\n"
    assert process.stdout.readline() == "said\n"
    cli.interrupt(process)
    process = cli.start("monitor")
    assert process.stdout is not None
    assert process.stdout.readline() == "==> head.log <==\n"
    assert cli.interrupt(process).status == 130


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_command_in_tmux_goes_on_without_the_terminal_and_is_attached_to(cli: Cli) -> None:
    file = cli.folder / "tmux-said"
    ran = cli.run(
        "exec", cli.spec("many", least=2), f"echo $CLUSTERCTL_ADDRESS > {file}; sleep 600", "--tmux"
    )
    assert ran.status == 0, ran.err
    assert "clusterctl attach --tmux" in ran.err
    assert eventually(lambda: file.exists() and ":" in file.read_text())
    pid, master = pty.fork()
    if pid == 0:
        env = {**cli.env(), "TERM": "xterm"}
        os.execve(sys.executable, [sys.executable, "-m", "clusterctl", "attach", "--tmux"], env)
    shown = b""
    while b"[exec-" not in shown:  # tmux's status line names the session
        shown += os.read(master, 4096)
    os.kill(pid, signal.SIGHUP)
    os.close(master)
    os.waitpid(pid, 0)
    assert cli.run("exec", "tmux list-sessions").status == 0


def test_cluster_names_complete(cli: Cli) -> None:
    asked = {
        "_CLUSTERCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": "clusterctl exec --cluster ",
        "COMP_CWORD": "3",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "clusterctl"],
        env={**cli.env(), **asked},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.split() == ["many"]
