"""`up` of a cluster that is there already: changed, interrupted, dead; on machines of the local provider."""

from __future__ import annotations

import json
import os
import pathlib
import signal
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


def head_pid(cli: Cli) -> int:
    return int(cli.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()["pid"])


def machine_ids() -> set[str]:
    root = machines_root()
    return (
        {entry.name for entry in root.iterdir() if not entry.name.startswith(".")} if root.exists() else set()
    )


def test_a_running_head_takes_changes_with_as_little_ado_as_they_need(cli: Cli) -> None:
    marks = cli.folder / "marks"
    runs = f"head_setup_commands: ['echo run >> {marks}']\n"
    assert cli.run("up", "-y", cli.spec("again", least=1, extra=runs)).status == 0
    first = head_pid(cli)
    job = cli.run("submit", "--no-wait", "--submission-id", "early", cli.script("print('done')\n"))
    assert job.status == 0, job.err

    more = runs + "file_mounts: {~/mounted.txt: again.yaml}\n"
    ran = cli.run("up", cli.spec("again", least=1, extra=more))
    assert ran.status == 0, ran.err
    assert "file_mounts" in ran.err, "it says what changed"
    assert cli.run("exec", "grep -c cluster_name ~/mounted.txt").out == "1\n"
    assert head_pid(cli) == first, "files and setup commands need no restart"
    assert marks.read_text() == "run\nrun\n"

    wider = cli.spec("again", least=1, extra=more).replace("again.yaml", "wider.yaml")
    text = pathlib.Path(cli.spec("again", least=1, extra=more)).read_text()
    pathlib.Path(wider).write_text(text.replace("resources: {CPU: 1}", "resources: {CPU: 3}", 1))
    assert "--no-restart" in cli.run("up", "-y", "--no-restart", wider).err
    assert cli.run("up", wider).status == 1, "programs would end, and nobody is there to agree"
    assert head_pid(cli) == first
    ran = cli.run("up", "-y", wider)
    assert ran.status == 0, ran.err
    second = head_pid(cli)
    assert second != first
    heads = [node for node in alive(cli.status()) if node["is_head"]]
    assert [node["resources_total"]["CPU"] for node in heads] == [3.0]
    assert "early" in {job["submission_id"] for job in cli.run("job", "list", "--json").json()}

    before = marks.read_text()
    ran = cli.run("up", "-y", "--restart-only", wider)
    assert ran.status == 0, ran.err
    assert head_pid(cli) != second
    assert marks.read_text() == before, "no setup commands ran"
    assert len(alive(cli.status())) == 2


@pytest.mark.parametrize("moment", ["creating the head", "setting up the head", "waiting for"])
def test_a_killed_up_is_gone_on_with(cli: Cli, moment: str) -> None:
    spec = cli.spec("killed", least=1, extra="worker_setup_commands: ['sleep 1']\n")
    process = cli.start("up", "-y", spec)
    assert process.stderr is not None
    assert eventually(lambda: process.stderr.readline().startswith(moment))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    had = {id for id in machine_ids() if "killed-head" not in id}
    ran = cli.run("up", "-y", spec)
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 2
    if moment != "creating the head":
        assert had & machine_ids(), "the head's machine that was made is the cluster's"
    assert len(machine_ids()) == 2, "and there is no other"


@pytest.mark.parametrize("left", [2, 1, 0])
def test_a_killed_down_is_finished_by_the_next(cli: Cli, left: int) -> None:
    spec = cli.spec("half-down", least=1)
    assert cli.run("up", "-y", spec).status == 0
    process = cli.start("down", "-y", spec)
    assert process.stderr is not None
    assert eventually(lambda: process.stderr.readline().startswith("ending"))
    assert eventually(lambda: len(machine_ids()) <= left)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    ran = cli.run("down", "-y", spec)
    assert ran.status in (0, 3), ran.err  # 3: it had come to its end
    assert machine_ids() == set()
    assert not list((cli.folder / "home").glob("clusters/*"))
    ran = cli.run("up", "-y", spec)
    assert ran.status == 0, ran.err
    assert len(machine_ids()) == 2


def test_a_dead_head_keeps_its_machine_and_its_history(cli: Cli) -> None:
    spec = cli.spec("history", least=1)
    assert cli.run("up", "-y", spec).status == 0
    assert cli.run("submit", "--submission-id", "early", cli.script("print('done')\n")).status == 0
    machine = cli.run("exec", "echo $CLUSTERCTL_MACHINE").out
    os.kill(head_pid(cli), signal.SIGKILL)
    ran = cli.run("up", "-y", spec)
    assert ran.status == 0, ran.err
    assert cli.run("exec", "echo $CLUSTERCTL_MACHINE").out == machine
    assert "early" in {job["submission_id"] for job in cli.run("job", "list", "--json").json()}
    assert len(alive(cli.status())) == 2


def test_ctrl_c_on_a_cluster_that_was_there_leaves_it_and_says_so(cli: Cli) -> None:
    assert cli.run("up", "-y", cli.spec("kept")).status == 0
    slow = "worker_setup_commands: ['sleep 60']\n"
    process = cli.start("up", "-y", cli.spec("kept", least=1, extra=slow))
    assert process.stderr is not None
    assert eventually(lambda: process.stderr.readline().startswith("waiting for"))
    ran = cli.interrupt(process)
    assert ran.status == 130
    assert "clusterctl down" in ran.err
    assert cli.run("status").status == 0


def test_limits_and_the_name_from_the_command_line(cli: Cli) -> None:
    spec = cli.spec("plain")
    ran = cli.run("up", "-y", "-n", "other", "--min-workers", "1", "--no-config-cache", spec)
    assert ran.status == 0, ran.err
    assert cli.status()["cluster_name"] == "other"
    assert len(alive(cli.status())) == 2
    ran = cli.run("check", "--json", spec)
    assert (ran.json()["problems"], ran.json()["costs"]["is_free"]) == ([], True)
    ran = cli.run("up", "--dry-run", "--json", "-n", "other", spec)
    assert ran.json()["changes"] == ["available_node_types.worker.min_workers: 1 -> 0"]
    assert ran.json()["costs"]["is_free"]
    assert cli.run("up", "--min-workers", "5", "-n", "other", spec).status == 2


def test_each_node_is_followed_through_its_steps(cli: Cli) -> None:
    go = cli.folder / "go"
    wait = f"worker_setup_commands: ['while [ ! -e {go} ]; do sleep 0.05; done']\n"
    process = cli.start("up", "-y", "--json", cli.spec("steps", least=1, extra=wait))
    assert process.stderr is not None
    seen: list[str] = []
    assert eventually(
        lambda: seen.append(process.stderr.readline()) or "worker_setup_commands[0]" in seen[-1]
    )
    assert any(line.startswith("  head (head): set up: start") for line in seen)
    go.touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    *events, result = map(json.loads, out.splitlines())
    (name,) = {name for name in result["nodes_s"] if name != "head"}
    assert f"{name} (worker): joined" in err
    assert "set up: worker_setup_commands[0]" in result["nodes_s"][name]
    assert (result["cluster"], result["changed"], result["workers"]) == ("steps", True, 1)
    did = [event["doing"] for event in events if event["event"] == "node" and event["node"] == name]
    assert did.index("set up: worker_setup_commands[0]") < did.index("joined")
    said = [event["text"] for event in events if event["event"] == "progress"]
    assert said[0].startswith("creating the head")


def test_who_has_not_joined_in_time_is_named_with_its_step(cli: Cli) -> None:
    slow = "worker_setup_commands: ['sleep 60']\n"
    ran = cli.run("up", "-y", "--timeout", "3", cli.spec("late", least=1, extra=slow))
    assert ran.status == 7
    assert "(worker): set up: worker_setup_commands[0]" in ran.err.partition("still waiting for")[2]


def test_what_a_failed_up_told_the_head_is_remembered(cli: Cli) -> None:
    assert cli.run("up", "-y", cli.spec("changed")).status == 0
    slow = "worker_setup_commands: ['sleep 60']\n"
    file = cli.spec("changed", least=1, extra=slow)
    assert cli.run("up", "-y", "--timeout", "0", file).status == 7
    record = json.loads((cli.folder / "home" / "clusters" / "changed" / "cluster.json").read_bytes())
    assert record["spec"]["available_node_types"]["worker"]["min_workers"] == 1
    ran = cli.run("up", "--dry-run", "--json", file)
    assert ran.json()["changes"] == []
    assert ran.json()["steps"] == ["wait for min_workers"]


def test_workers_alone_end_and_come_back_with_up(cli: Cli) -> None:
    spec = cli.spec("less", least=1)
    assert cli.run("up", "-y", "--min-workers", "2", spec).status == 0
    assert cli.run("up", "-y", spec).status == 0
    assert cli.run("down", "--keep-min-workers", "--dry-run").out.count("\n") == 1
    assert "1 worker of" in cli.run("down", "-y", "--keep-min-workers", spec).out
    assert len(machine_ids()) == 2
    assert "1 worker of" in cli.run("down", "-y", "--workers-only").out
    assert len(machine_ids()) == 1
    assert cli.wait(lambda status: len(alive(status)) == 1)
    ran = cli.run("up", "-y", spec)
    assert ran.status == 0, ran.err
    assert "min_workers: 0 -> 1" in ran.err
    assert len(alive(cli.status())) == 2


def test_stop_keeps_the_heads_machine_and_down_ends_it(cli: Cli) -> None:
    spec = cli.spec("halted")
    assert cli.run("up", "-y", spec).status == 0
    assert cli.run("stop", "-y").status == 0
    assert len(machine_ids()) == 1
    assert "STOPPED" in cli.run("down", "--dry-run").out
    assert cli.run("down", "-y").status == 0
    assert machine_ids() == set()
