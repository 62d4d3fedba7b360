"""Rows of docs/incumbents.md that a cluster on this machine can show: the real command line and real processes."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from clusterctl import processes
from clusterctl.app import app
from clusterctl.providers.local.provider import LocalMachines
from clusterctl.spec.load import load_file
from tests.clusterctl.cli import Cli, Ran, alive, machines_root
from tests.polling import eventually, stays
from tests.processes import is_alive

CONFIGS = pathlib.Path(__file__).parents[2] / "cluster-configs"
SPEC = """\
cluster_name: rows
provider: {type: local}
max_workers: 4
idle_timeout_minutes: 0.03
file_mounts: {"~/project": ./project}
rsync_exclude: ["*.tmp"]
head_node_type: head
available_node_types:
  head: {resources: {CPU: 1}}
  worker: {resources: {CPU: 1}, min_workers: 1}
  holder: {resources: {hold: 1}}
"""

HOLDERS = """
import os, sys, time
import numpy as np
import runtime

runtime.init()

@runtime.remote(num_cpus=0)
class Zero:
    def where(self):
        return runtime.get_runtime_context().get_node_id()

@runtime.remote(num_cpus=0, resources={"hold": 1})
def make(name, folder):
    open(f"{folder}/{name}", "w").close()
    while len(os.listdir(folder)) < 3:  # each on a node of its own
        time.sleep(0.01)
    actor = held = None
    if name == "actor":
        here = runtime.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            runtime.get_runtime_context().get_node_id(), soft=False)
        actor = Zero.options(scheduling_strategy=here).remote()
        runtime.get(actor.where.remote())
    if name == "object":
        held = runtime.put(np.ones(1_000_000))
    return runtime.get_runtime_context().get_node_id(), actor, held

made = [make.remote(name, sys.argv[1]) for name in ("actor", "object", "nothing")]
print(*(runtime.get(ref)[0] for ref in made), flush=True)
sys.stdin.read() or time.sleep(600)
"""

DESCENDANTS = """
import subprocess, time
children = [subprocess.Popen(["setsid", "sleep", "600"]), subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600"])]
print("began", *(child.pid for child in children), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster of a head and one worker."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    ran = cli.run("up", "-y", spec(cli))
    assert ran.status == 0, ran.err
    yield cli
    cli.run("down", "-y", spec(cli))


@pytest.fixture(scope="module")
def crooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Ran]]:
    """A cluster whose workers cannot be set up, and what `up` said of it."""
    cli = Cli(tmp_path_factory.mktemp("crooked"))
    extra = "worker_setup_commands: ['true', 'echo the disk is missing; exit 9']\n"
    yield cli, cli.run("up", "-y", cli.spec("crooked", least=1, extra=extra))
    cli.run("down", "-y", "crooked")


@pytest.fixture
def brief(tmp_path: pathlib.Path) -> Iterator[Cli]:
    """For a cluster of one test's own: it is gone afterwards."""
    cli = Cli(tmp_path)
    yield cli
    for record in (cli.folder / "home").glob("clusters/*/cluster.json"):
        cli.run("down", "-y", record.parent.name)


def spec(cli: Cli) -> str:
    path = cli.folder / "rows.yaml"
    if not path.exists():
        path.write_text(SPEC)
        for name in (".git/HEAD", ".gitignore", "build/made", "main.py", "notes.tmp", "part/other.py"):
            file = cli.folder / "project" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("build/\n" if name == ".gitignore" else name)
    return str(path)


def workers(status: dict[str, Any]) -> set[str]:
    return {node["node_id"] for node in alive(status) if not node["is_head"]}


def on_this_machine(name: str) -> list[str]:
    """The machines of a cluster that there are."""
    found = machines_root().glob("*/machine.json")
    return [path.parent.name for path in found if f'"{name}"' in path.read_text()]


# ---------------------------------------------------------------- coming up


def test_row_01_up_fails_with_the_node_and_the_step_that_failed(crooked: tuple[Cli, Ran]) -> None:
    """`up` said that all was well while no worker ever started. Ours waits for `min_workers`, and fails with the name
    of the node, the step, and what the step printed."""
    cli, ran = crooked
    (first, *_) = sorted(cli.status()["autoscaler"]["failures"], key=lambda failure: failure["at_s"])
    assert ran.status == 1
    assert f"node {first['instance_id']} (worker) at step 'worker_setup_commands[1]'" in ran.err
    assert "exit status 9" in ran.err
    assert "the disk is missing" in ran.err


def test_row_04_a_failed_worker_has_a_log_is_no_capacity_and_is_replaced_ever_later(
    crooked: tuple[Cli, Ran],
) -> None:
    """Nobody saw why a worker's set-up failed; the dead worker was counted as there, or replaced without end."""
    cli, _ = crooked
    failed = cli.status()["autoscaler"]["failures"][0]
    shown = cli.run("logs", failed["instance_id"])
    assert "the disk is missing" in shown.out, shown.err
    assert cli.wait(lambda status: len(status["autoscaler"]["failures"]) > 1), "it is replaced"
    assert cli.wait(lambda status: any("worker" in one["what"] for one in status["autoscaler"]["resting"])), (
        "and not at once: the type rests, longer after each failure"
    )
    assert workers(cli.status()) == set()


def test_row_05_what_the_spec_does_not_know_is_named_with_its_place(tmp_path: pathlib.Path) -> None:
    """Misspelt and misplaced keys were ignored without a word, and examples that were shipped did not load."""
    wrong = tmp_path / "wrong.yaml"
    text = SPEC.replace("max_workers: 4", "max_worker: 4").replace("{CPU: 1}}", "{CPU: 1}, ssh_user: me}")
    wrong.write_text(text)
    ran = Cli(tmp_path).run("check", str(wrong))
    assert ran.status == 2
    assert "wrong.yaml:3:1: max_worker: unknown key 'max_worker'; did you mean 'max_workers'?" in ran.err
    assert "misplaced key 'ssh_user'; it belongs in auth" in ran.err
    (line, column), *_ = [
        (n, row.index("ssh_user")) for n, row in enumerate(text.splitlines()) if "ssh_user" in row
    ]
    assert f"wrong.yaml:{line + 1}:{column + 1}: " in ran.err
    examples = sorted(CONFIGS.glob("*.yaml"))
    assert examples
    for example in examples:
        assert load_file(str(example)).cluster_name


# ---------------------------------------------------------------- a running cluster


def test_row_02_machines_of_ones_own_are_like_any_other(cli: Cli) -> None:
    """The provider for machines of one's own was a thing apart that deadlocked and lost its workers. Here it goes the
    way of every provider: more work brings a machine, which goes when it is idle; who comes second is told so."""
    before = workers(cli.status())
    script = cli.script(
        "import runtime\nruntime.init()\n"
        "f = runtime.remote(resources={'hold': 1})(lambda: 42)\nprint('answer', runtime.get(f.remote()))\n"
    )
    ran = cli.run("submit", script)
    assert "answer 42" in ran.out, ran.err
    assert cli.wait(lambda status: workers(status) == before and len(on_this_machine("rows")) == 2)


def test_row_08_an_up_that_changes_nothing_does_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """To say that a cluster is up to date took as long as half an `up`, for it was looked at machine by machine."""
    monkeypatch.chdir(cli.folder)
    asked: list[str] = []
    for name in ("list", "create", "terminate", "prepare", "shell", "start", "check"):
        real = getattr(LocalMachines, name)
        monkeypatch.setattr(
            LocalMachines, name, lambda *args, name=name, real=real: (asked.append(name), real(*args))[1]
        )
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **_: pytest.fail(f"{args} was started"))
    result = CliRunner(env={"CLUSTERCTL_HOME": cli.env()["CLUSTERCTL_HOME"]}).invoke(
        app, ["up", "-y", spec(cli)]
    )
    assert result.exit_code == 0, result.output
    assert "nothing to do" in result.output
    assert set(asked) <= {"check"}, "the head's answer is enough"


def test_row_07_only_what_belongs_there_travels_and_only_when_it_changed(cli: Cli) -> None:
    """Ignored files and `.git` were uploaded, excludes were not heeded, and everything travelled again each time."""
    look = "cd ~/project; find . -type f | sort | tr '\\n' ' '; echo"
    ran = cli.run("exec", "--all-nodes", look)
    found = [line.partition("| ")[2].split() for line in ran.out.splitlines()]
    assert found == [["./.gitignore", "./main.py", "./part/other.py"]] * 2, ran.err
    assert "~/project: 0 sent (0 B), 0 deleted" in cli.run("rsync", "up").err
    (cli.folder / "project" / "main.py").write_text("new\n")
    (cli.folder / "project" / "part" / "other.py").unlink()
    ran = cli.run("rsync", "up")
    assert "1 sent" in ran.err, ran.err
    assert "1 deleted" in ran.err, ran.err
    assert cli.run("exec", "cat ~/project/main.py; ls ~/project/part").out == "new\n"


def test_row_09_commands_need_no_terminal_and_the_head_owns_the_jobs(cli: Cli) -> None:
    """Commands ran in interactive shells that wanted a terminal, and jobs ended with the laptop that began them."""
    ran = cli.run(
        "exec",
        "case $- in *i*) echo interactive;; esac; [ -t 0 ] || [ -t 1 ] || echo none; read x || echo end",
    )
    assert (ran.status, ran.out.split()) == (0, ["none", "end"])
    go = cli.folder / "go"
    script = cli.script(
        f"import os, time\nprint('waits', flush=True)\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\n"
    )
    watcher = cli.start("submit", "--submission-id", "lasting", script)
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "waits\n"
    watcher.kill()
    watcher.communicate()
    go.touch()
    assert eventually(lambda: status_of(cli, "lasting") == "SUCCEEDED")


def status_of(cli: Cli, job: str) -> str:
    jobs = {entry["submission_id"]: entry["status"] for entry in cli.run("job", "list", "--json").json()}
    return str(jobs[job])


def test_row_23_a_node_that_holds_an_actor_or_an_object_is_not_idle(cli: Cli) -> None:
    """Nodes were taken away from under actors that reserve no CPU and from under objects that somebody still needed."""
    began = cli.folder / "began"
    began.mkdir()
    script = cli.script(HOLDERS, folder="holders")
    job = cli.start("submit", "--submission-id", "holders", script, str(began))
    try:
        assert job.stdout is not None
        actor, object_, nothing = job.stdout.readline().split()
        assert len({actor, object_, nothing}) == 3
        assert cli.wait(lambda status: nothing not in workers(status)), "the idle one goes"
        assert stays(lambda: {actor, object_} < workers(cli.status()), looks=5)
    finally:
        cli.run("job", "stop", "holders")
        job.communicate(timeout=60)
    assert cli.wait(lambda status: not {actor, object_} & workers(status))


def test_row_24_a_log_goes_on_where_it_broke_off_and_stop_leaves_no_process(cli: Cli) -> None:
    """Following a job's log lost lines when the connection broke; a stopped job left its children running."""
    script = cli.script(DESCENDANTS, folder="descendants")
    assert cli.run("submit", "--no-wait", "--submission-id", "family", script).status == 0
    assert eventually(lambda: "began" in cli.run("job", "logs", "family").out)
    printed = cli.run("job", "logs", "family").out
    with ask(cli, "/api/jobs/family/logs?offset=0") as first:
        text, offset = first.read(), int(first.headers["X-Next-Offset"])
    assert text.decode() == printed
    with ask(cli, f"/api/jobs/family/logs?offset={offset - 5}") as rest:
        assert rest.read() == text[-5:]
    children = [int(word) for word in printed.split()[1:]]
    assert all(is_alive(pid) for pid in children)
    assert cli.run("job", "stop", "family").status == 0
    assert eventually(lambda: not any(is_alive(pid) for pid in children))
    assert status_of(cli, "family") == "STOPPED"


PLACED = """
import os, subprocess, sys, time
import runtime
from beside import word

print(word, runtime.init().address_info["node_id"], open("note").read(), os.environ["GIVEN"], sys.argv[1:], flush=True)
print(runtime.get(runtime.remote(num_cpus=0)(lambda: __import__("beside").word).remote()), flush=True)
if sys.argv[1] == "wait":
    child = subprocess.Popen(["setsid", "sleep", "600"])
    print("began", os.getpid(), child.pid, flush=True)
    time.sleep(600)
sys.exit(7)
"""


def test_row_24_the_entrypoint_runs_where_what_it_asks_for_is(cli: Cli) -> None:
    """The program itself ran on the head, whatever it needed. Ours runs on a node that has it, which is launched for it
    if need be; its files, output, exit status and end are those of any other job."""
    script = cli.script(PLACED, folder="placed")
    cli.script("word = 'beside'\n", folder="placed", name="beside.py")
    cli.script("noted", folder="placed", name="note")
    asks = ("--entrypoint-resources", '{"hold": 1}', "--env", "GIVEN=given")
    ran = cli.run("submit", *asks, script, "end")
    assert ran.status == 7, ran.err
    first, second = ran.out.splitlines()
    word, node, *rest = first.split(maxsplit=2)
    assert (word, rest, second) == ("beside", ["noted given ['end']"], "beside")
    kinds = {one["node_id"]: one["node_type"] for one in cli.status()["nodes"]}
    assert kinds[node] == "holder"
    assert cli.run("submit", "--no-wait", "--submission-id", "placed", *asks, script, "wait").status == 0
    assert eventually(lambda: "began" in cli.run("job", "logs", "placed").out)
    pids = [int(pid) for pid in cli.run("job", "logs", "placed").out.split("began")[1].split()]
    assert all(is_alive(pid) for pid in pids)
    assert cli.run("job", "stop", "placed").status == 0
    assert not any(is_alive(pid) for pid in pids)
    assert status_of(cli, "placed") == "STOPPED"


def ask(cli: Cli, path: str, secret: str | None = None) -> Any:
    """The head's answer over HTTP."""
    folder = cli.folder / "home" / "clusters" / "rows"
    url = json.loads((folder / "cluster.json").read_text())["api_url"]
    secret = (folder / "secret").read_text().strip() if secret is None else secret
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=60)


@pytest.mark.parametrize("secret", ["", "0" * 64])
@pytest.mark.parametrize("path", ["/api/jobs/", "/api/version", "/api/cluster_status", "/api/nodes", "/"])
def test_row_25_nobody_gets_in_without_the_secret(cli: Cli, path: str, secret: str) -> None:
    """Whoever reached the port of the job API could run programs: it asked for nothing and listened to all."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(cli, path, secret)
    refused.value.close()
    assert refused.value.code in (401, 403)


def test_row_25_all_of_it_listens_to_this_machine_only(cli: Cli) -> None:
    """See above; also the control store, the agents and their workers."""
    members = processes.of_machines(on_this_machine("rows"))
    listening = [
        connection.laddr.ip
        for pid in set().union(*members.values())
        for connection in connections(pid)
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 3
    assert set(listening) <= {
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
    }  # the last: gRPC's sockets for both families


def connections(pid: int) -> list[Any]:
    try:
        return list(psutil.Process(pid).net_connections("inet"))
    except psutil.NoSuchProcess:
        return []


def test_row_22_a_new_control_store_knows_what_the_old_one_did(cli: Cli) -> None:
    """With the head's processes went what the autoscaler knew. Ours keeps its settings, its machines and their history
    on disk: nothing is launched again, and nothing is adopted as a stranger."""
    assert cli.wait(lambda status: list(history(status).values()) == [RUNS]), cli.status()
    before = history(cli.status())
    listed = cli.run("exec", "ps -o pid=,args= -e | grep '[r]untime._control' | grep $CLUSTERCTL_MACHINE").out
    pid = int(listed.split()[0])
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(pid))
    assert cli.wait(lambda status: len(workers(status)) == 1 and history(status) == before)
    assert len(on_this_machine("rows")) == 2


RUNS = ["QUEUED", "REQUESTED", "ALLOCATED", "SETTING_UP", "RUNNING"]


def history(status: dict[str, Any]) -> dict[str, list[str]]:
    """The machines that there are, and the states they went through."""
    found = (status.get("autoscaler") or {}).get("instances", [])
    return {one["id"]: [step["state"] for step in one["history"]] for one in found}


# ---------------------------------------------------------------- the end


def test_row_14_workers_without_a_head_end_and_tags_alone_suffice(brief: Cli) -> None:
    """The head died, or the laptop with the only record of the cluster, and the workers were paid for ever."""
    file = brief.spec("orphans", least=1)
    assert brief.run("up", "-y", file).status == 0
    assert len(on_this_machine("orphans")) == 2
    head = brief.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()
    os.kill(head["pid"], signal.SIGKILL)
    assert eventually(lambda: len(on_this_machine("orphans")) == 1), "the worker ends itself"
    shutil.rmtree(brief.folder / "home")
    refused = brief.run("down", "-y", file)  # no cloud tells who made it, and the id of the folder is gone
    assert (refused.status, len(on_this_machine("orphans"))) == (6, 1), refused.err
    cluster_id = refused.err.split("--adopt ")[1].split()[0]
    ran = brief.run("down", "-y", file, "--adopt", cluster_id)
    assert (ran.status, on_this_machine("orphans")) == (0, []), ran.err


def test_row_03_when_a_machine_is_ready_is_for_the_spec_to_say(brief: Cli) -> None:
    """A machine counted as ready as soon as it let somebody in, while its own first start was still under way."""
    ready = brief.folder / "ready"
    up = brief.start("up", "-y", brief.spec("slow", extra=f"ready_command: 'test -e {ready}'\n"))
    log = brief.folder / "home" / "clusters" / "slow" / "logs" / "head-setup.log"
    assert eventually(lambda: log.exists() and "the machine is not ready yet" in log.read_text())
    ready.touch()
    up.communicate(timeout=60)
    assert up.returncode == 0


def test_row_15_an_idle_cluster_stops_by_itself_and_not_under_a_log_in(brief: Cli) -> None:
    """The head never ended, or ended while somebody was logged in: only jobs were counted as use."""
    file = brief.spec("tired", least=1, extra="autostop: {idle_minutes: 60}\n")
    assert brief.run("up", "-y", file).status == 0
    visitor = brief.start("exec", "echo here; sleep 600")
    assert visitor.stdout is not None
    assert visitor.stdout.readline() == "here\n"
    assert brief.run("autostop", "--idle-minutes", "0.03").status == 0
    uses = brief.run("autostop", "--json").json()["uses"]
    assert [use.partition(":")[0] for use in uses] == ["log-ins"]
    assert len(on_this_machine("tired")) == 2
    brief.interrupt(visitor)
    assert eventually(lambda: len(on_this_machine("tired")) == 1), "the worker has ended"
    (head,) = on_this_machine("tired")
    assert eventually(lambda: processes.of_machines([head]) == {head: set()}), "the head has stopped"


def test_row_11_stop_keeps_the_heads_machine_and_down_ends_stopped_ones_too(brief: Cli) -> None:
    """`down` only stopped the machines, or forgot those that were stopped already: they cost on."""
    file = brief.spec("resting", least=1)
    assert brief.run("up", "-y", file).status == 0
    assert brief.run("stop", "-y").status == 0
    (head,) = on_this_machine("resting")
    assert processes.of_machines([head]) == {head: set()}
    ran = brief.run("down", "-y", file)
    assert (ran.status, on_this_machine("resting")) == (0, []), ran.err
    assert brief.run("down", "-y", file).status == 3
