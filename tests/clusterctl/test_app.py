"""The command line's surface: help that teaches, usage errors, exit statuses."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from clusterctl.app import app

COMMANDS = [
    "up",
    "down",
    "stop",
    "status",
    "check",
    "submit",
    "attach",
    "exec",
    "logs",
    "stack",
    "start",
    "simulate",
]
JOB_COMMANDS = ["list", "stop", "logs"]
CLUSTER_COMMANDS = ["list", "use", "export", "import", "ssh-config"]
NODE_COMMANDS = [["node", "list"], ["node", "exec"]]
SUBCOMMANDS = (
    NODE_COMMANDS
    + [["job", name] for name in JOB_COMMANDS]
    + [["cluster", name] for name in CLUSTER_COMMANDS]
)


@pytest.fixture
def cli(tmp_path: pathlib.Path) -> CliRunner:
    return CliRunner(env={"CLUSTERCTL_HOME": str(tmp_path / "h"), "COLUMNS": "100"})


@pytest.mark.parametrize("words", [[name] for name in COMMANDS] + SUBCOMMANDS)
def test_every_help_has_an_example(cli: CliRunner, words: list[str]) -> None:
    result = cli.invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert f"clusterctl {' '.join(words)}" in result.output.split("Usage:", 1)[1].split("\n", 1)[1]


def test_the_top_help_names_every_command_and_status(cli: CliRunner) -> None:
    result = cli.invoke(app, ["--help"])
    assert result.exit_code == 0
    for word in [*COMMANDS, "job", "130 interrupted"]:
        assert word in result.output


def test_help_loads_nothing_heavy() -> None:
    heavy = ("yaml", "msgspec", "uvicorn", "starlette", "psutil", "rich")
    program = f"import sys, clusterctl.app\nprint([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["fly"], 2, "No such command"),
        (["up"], 2, "Missing argument"),
        (["up", "--nope"], 2, "No such option"),
        (["up", "/nowhere.yaml"], 3, "there is no file"),
        (["status"], 3, "no current cluster"),
        (["status", "-c", "nope"], 3, "there is no cluster 'nope'"),
        (["status", "-c", "/nowhere.yaml"], 3, "there is no file"),
        (["status", "one", "-c", "two"], 3, "there is no cluster 'two'"),
        (["cluster", "import", "/nowhere"], 2, "/nowhere cannot be read"),
        (["cluster", "export", "nope", "/nowhere"], 3, "there is no cluster 'nope'"),
        (["node", "list"], 3, "no current cluster"),
        (["node", "exec", "head"], 2, "Missing argument"),
        (["node", "exec", "head", "ls"], 3, "no current cluster"),
        (["node", "logs"], 3, "no current cluster"),
        (["exec", "--cluster-name", "nope", "ls"], 3, "there is no cluster 'nope'"),
        (["attach", "--cluster-name", "nope", "--node-ip", "1.2.3.4"], 3, "there is no cluster 'nope'"),
        (["cluster", "ssh-config"], 3, "no current cluster"),
        (["down", "-y"], 3, "no current cluster"),
        (["down", "-y", "cluster-configs/local.yaml"], 3, "no machine carries its tags"),
        (["stop", "-y"], 3, "no current cluster"),
        (["submit", "x.py"], 3, "no current cluster"),
        (["submit", "--screen", "x.py"], 2, "no such option: --screen"),
        (["submit", "-m", "package"], 2, "no such option: -m"),
        (["exec", "--run-env", "auto", "ls"], 2, "no such option: --run-env"),
        # Ray's words: every option of its commands that changes nothing here.
        (["up", "-v", "--log-style", "pretty", "--log-color=false", "/nowhere.yaml"], 3, "there is no file"),
        (
            ["up", "-y", "--disable-usage-stats", "--use-normal-shells", "/nowhere.yaml"],
            3,
            "there is no file",
        ),
        (["up", "--redirect-command-output", "--no-config-cache", "/nowhere.yaml"], 3, "there is no file"),
        (["down", "-y", "-v", "-c", "nope"], 3, "there is no cluster 'nope'"),
        (["attach", "-v", "-c", "nope"], 3, "there is no cluster 'nope'"),
        (["exec", "-v", "--disable-usage-stats", "-c", "nope", "ls"], 3, "there is no cluster 'nope'"),
        (["submit", "--log-style", "record", "-c", "nope", "x.py"], 3, "there is no cluster 'nope'"),
        (["monitor", "-v", "--cluster-name", "nope"], 3, "there is no cluster 'nope'"),
        (["rsync-up", "-v", "-c", "nope", "a", "b"], 3, "there is no cluster 'nope'"),
        (["rsync_down", "--log-color", "auto", "-c", "nope", "a", "b"], 3, "there is no cluster 'nope'"),
        (["get-head-ip", "-v", "/nowhere.yaml"], 3, "there is no file"),
        (["get_worker_ips", "-v", "/nowhere.yaml"], 3, "there is no file"),
        (["job", "submit", "--verbose", "-c", "nope", "--", "ls"], 3, "there is no cluster 'nope'"),
        (["job", "stop", "--no-wait", "-c", "nope", "j"], 3, "there is no cluster 'nope'"),
        (["status", "-v", "-c", "nope"], 3, "there is no cluster 'nope'"),
        (["exec", "ls"], 3, "no current cluster"),
        (["attach"], 3, "no current cluster"),
        (["logs"], 3, "no current cluster"),
        (["job", "list"], 3, "no current cluster"),
        (["check"], 2, "which file"),
        (["stack", "1"], 3, "no process with the process id 1"),
        (["start"], 2, "say one of --head"),
        (["start", "--head", "--stop"], 2, "say one of --head"),
        (["start", "--address", "h:1"], 2, "--secret-file"),
        (["start", "--address", "h:1", "--secret-file", "/nowhere", "--resources", "x"], 2, "--resources"),
        (["start", "--head", "--num-cpus", "1", "--resources", '{"CPU": 2}'], 2, "an option of its own"),
        (["start", "--head", "--num-gpus", "-1"], 2, "cannot bring -1 GPU"),
    ],
)
def test_usage_errors(cli: CliRunner, words: list[str], status: int, message: str) -> None:
    result = cli.invoke(app, words)
    assert result.exit_code == status, result.output
    assert message in result.output


def test_check_lists_every_problem_with_its_place(cli: CliRunner, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("cluster_name: c\nmax_worker: 1\nprovider: {type: nonsense}\n")
    result = cli.invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert f"{path}:2:1: max_worker: unknown key 'max_worker'; did you mean 'max_workers'?" in result.output
    assert f"{path}:3:18: provider.type: " in result.output
    assert "Traceback" not in result.output


def test_check_of_a_good_file(cli: CliRunner) -> None:
    result = cli.invoke(app, ["check", "cluster-configs/local.yaml"])
    assert result.exit_code == 0
    assert "at most 4 workers" in result.output
    assert (
        json.loads(cli.invoke(app, ["check", "--json", "cluster-configs/local.yaml"]).output)["problems"]
        == []
    )


def test_check_prints_the_schema(cli: CliRunner) -> None:
    assert "$defs" in json.loads(cli.invoke(app, ["check", "--schema"]).output)


def test_up_can_be_rehearsed(cli: CliRunner) -> None:
    result = cli.invoke(app, ["up", "--dry-run", "--json", "cluster-configs/local.yaml"])
    assert result.exit_code == 0
    assert json.loads(result.output)["steps"][0] == "create the head's machine"


def test_without_a_home(cli: CliRunner) -> None:
    result = cli.invoke(app, ["status"], env={"HOME": "", "CLUSTERCTL_HOME": ""})
    assert result.exit_code == 2
    assert "Set one of them." in result.output


def test_check_tells_programs_what_is_wrong(cli: CliRunner, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("cluster_name: x\nprovider: {type: local}\nmax_worker: 3\n")
    result = cli.invoke(app, ["check", "--json", str(path)])
    assert result.exit_code == 2
    problems = json.loads(result.stdout)["problems"]
    assert any("did you mean 'max_workers'" in problem["what"] for problem in problems)
