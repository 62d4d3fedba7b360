"""A cluster's life through the command line, with real processes: up, jobs, shells, changes, stop, down."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.clusterctl.cli import Cli, alive, machines_root
from tests.polling import eventually

ENDINGS = """
import os, signal, sys
print("begins", sys.argv[1:], flush=True)
how = sys.argv[1]
if how == "raise":
    raise ValueError("on purpose")
if how == "exit":
    os._exit(3)
if how == "signal":
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster of a head and one worker."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    ran = cli.run("up", "-y", cli.spec("life", least=1))
    assert ran.status == 0, ran.err
    yield cli
    cli.run("down", "-y", cli.spec("life", least=1))


def test_up_waited_for_the_worker(cli: Cli) -> None:
    nodes = alive(cli.status())
    assert sorted(node["node_type"] for node in nodes) == ["head", "worker"]


def test_up_again_does_nothing(cli: Cli) -> None:
    ran = cli.run("up", "-y", cli.spec("life", least=1))
    assert ran.status == 0
    assert "nothing to do" in ran.out


def test_a_program_runs_on_the_cluster_and_its_output_comes_back(cli: Cli) -> None:
    script = cli.script(
        "import runtime\nfrom beside import double\nruntime.init()\n"
        "f = runtime.remote(double)\nprint('sum', sum(runtime.get([f.remote(i) for i in range(10)])))\n"
    )
    cli.script("def double(x):\n    return 2 * x\n", name="beside.py")
    ran = cli.run("submit", script)
    assert ran.status == 0, ran.err
    assert "sum 90" in ran.out


def test_a_job_has_a_runtime_environment(cli: Cli) -> None:
    script = cli.script(
        "import os, runtime\nruntime.init(runtime_env={'env_vars': {'MORE': 'driver'}, 'working_dir': '.'})\n"
        "read = runtime.remote(lambda: (os.environ.get('GIVEN'), os.environ.get('MORE')))\n"
        "print('driver', os.environ['GIVEN'], 'worker', runtime.get(read.remote()))\n",
        folder="environment",
    )
    ran = cli.run("submit", "--runtime-env-json", '{"env_vars": {"GIVEN": "job"}}', script)
    assert ran.status == 0, ran.err
    assert "driver job worker ('job', 'driver')" in ran.out
    bad = '{"pip": {"packages": ["no-such-package-env-test"], "pip_install_options": ["--no-index"]}}'
    ran = cli.run("submit", "--runtime-env-json", bad, script)
    assert ran.status != 0
    assert "No matching distribution" in ran.err


@pytest.mark.parametrize(("how", "status"), [("raise", 1), ("exit", 3), ("signal", 143), ("end", 0)])
def test_submit_exits_as_the_program_does(cli: Cli, how: str, status: int) -> None:
    script = cli.script(ENDINGS, folder="endings")
    ran = cli.run("submit", script, how, "--flag", "x y")
    assert ran.status == status
    assert f"begins ['{how}', '--flag', 'x y']" in ran.out
    if how == "raise":
        assert "ValueError: on purpose" in ran.out


def test_a_job_is_listed_followed_and_stopped(cli: Cli) -> None:
    script = cli.script("import time\nprint('waits', flush=True)\ntime.sleep(600)\n", folder="sleeper")
    ran = cli.run("submit", "--no-wait", "--submission-id", "sleeper", script)
    assert ran.out.strip() == "sleeper"
    assert eventually(lambda: "waits" in cli.run("job", "logs", "sleeper").out)
    follower = cli.start("job", "logs", "-f", "sleeper")
    assert cli.run("job", "stop", "sleeper").status == 0
    out, _ = follower.communicate(timeout=60)
    assert out == "waits\n"
    jobs = {job["submission_id"]: job for job in cli.run("job", "list", "--json").json()}
    assert jobs["sleeper"]["status"] == "STOPPED"
    assert cli.run("job", "stop", "sleeper").out == "job sleeper had ended already\n"


def test_ctrl_c_stops_watching_and_not_the_job(cli: Cli) -> None:
    script = cli.script("import time\nprint('waits', flush=True)\ntime.sleep(600)\n", folder="watched")
    watcher = cli.start("submit", "--submission-id", "watched", script)
    assert eventually(lambda: "waits" in cli.run("job", "logs", "watched").out)
    ran = cli.interrupt(watcher)
    assert ran.status == 130
    assert "job logs -f watched" in ran.err
    jobs = {job["submission_id"]: job for job in cli.run("job", "list", "--json").json()}
    assert jobs["watched"]["status"] == "RUNNING"
    assert cli.run("job", "stop", "watched").status == 0


def test_exec_runs_on_the_head_with_its_status(cli: Cli) -> None:
    ran = cli.run("exec", "echo $CLUSTERCTL_MACHINE; exit 5")
    assert ran.status == 5
    assert (machines_root() / ran.out.strip()).is_dir()
    assert cli.run("exec", "python", "-c", "import sys; sys.exit(7)").status == 7


def test_programs_started_on_the_head_by_hand_find_the_cluster(cli: Cli) -> None:
    ran = cli.run("exec", "python", "-c", "import runtime; runtime.init(); print(len(runtime.nodes()))")
    assert ran.status == 0, ran.err
    assert int(ran.out) >= 2, (
        "a session of its own would have one node"
    )  # work before may have brought a third


def test_logs_show_daemons(cli: Cli) -> None:
    ran = cli.run("logs", "--file", "control")
    assert ran.status == 0
    assert "control.log" in ran.out
    assert cli.run("logs", "nobody").status == 3
    ran = cli.run("logs", "--file", "nosuch")
    assert (ran.status, ran.out) == (3, "")
    worker = next(node["instance_id"] for node in alive(cli.status()) if not node["is_head"])
    ran = cli.run("logs", worker)
    assert f"setup-{worker}.log" in ran.out
    assert "agent.log" in ran.out


def test_the_secret_is_on_no_command_line_and_private(cli: Cli) -> None:
    path = cli.folder / "home" / "clusters" / "life" / "secret"
    secret = path.read_bytes().strip()
    assert path.stat().st_mode & 0o077 == 0
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret not in entry.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    for line in cli.run("status").out.splitlines():
        assert secret.decode() not in line


def test_a_wrong_secret_is_refused(cli: Cli) -> None:
    path = cli.folder / "home" / "clusters" / "life" / "secret"
    right = path.read_bytes()
    path.write_bytes(b"0" * 64)
    try:
        ran = cli.run("job", "list")
    finally:
        path.write_bytes(right)
    assert ran.status == 6
    assert "refuses" in ran.err


def test_changed_limits_reach_the_autoscaler_without_a_restart(cli: Cli) -> None:
    before = cli.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()["pid"]
    ran = cli.run("up", "-y", cli.spec("life", least=2))
    assert ran.status == 0, ran.err
    assert len(alive(cli.status())) == 3
    assert cli.run("exec", "cat $CLUSTERCTL_SESSION_DIR/daemon.json").json()["pid"] == before


def test_another_machine_for_the_head_is_refused(cli: Cli) -> None:
    spec = pathlib.Path(cli.spec("life", least=2))
    spec.write_text(spec.read_text().replace("  head:\n", "  head:\n    node_config: {capacity: 3}\n"))
    ran = cli.run("up", "-y", str(spec))
    assert ran.status == 1
    assert "wants another machine for the head" in ran.err


def test_stop_keeps_the_history_and_up_starts_again(cli: Cli) -> None:
    jobs = {job["submission_id"] for job in cli.run("job", "list", "--json").json() if job["submission_id"]}
    assert cli.run("stop", "-y").status == 0
    assert cli.run("submit", cli.script("", folder="empty")).status == 5
    ran = cli.run("up", "-y", cli.spec("life", least=1))
    assert ran.status == 0, ran.err
    assert jobs <= {job["submission_id"] for job in cli.run("job", "list", "--json").json()}
    assert len(alive(cli.status())) == 2


def test_down_leaves_nothing(cli: Cli) -> None:
    assert cli.run("down", "-y", "--dry-run").out.count("\n") == 3
    ran = cli.run("down", "-y", "--json")
    assert ran.json()["ended"] == 2
    assert not machines_root().exists()
    assert os.listdir(cli.folder / "home" / "clusters") == []
    again = cli.run("down", "-y")
    assert again.status == 3
    assert json.dumps(again.err)  # a message, not a traceback
    assert "Traceback" not in again.err
