"""`clusterctl job ...` as scripts written for Ray's command line use it, with a head that was started by hand."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterator

import pytest

from runtime.job_submission import JobSubmissionClient
from tests.clusterctl.cli import Cli
from tests.polling import eventually


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, dict[str, str]]]:
    """A head without a cluster that the operator's side knows, and what it said of itself."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    ran = cli.run("start", "--head", "--resources", '{"CPU": 1}', "--json")
    assert ran.status == 0, ran.err
    yield cli, ran.json()
    cli.run("start", "--stop")


@pytest.fixture
def cli(head: tuple[Cli, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_JOB_HEADERS", "RAY_JOB_SUBMIT_HOOK"):
        monkeypatch.delenv(name, raising=False)
    return head[0]


def test_a_job_of_a_head_that_was_started_by_hand(cli: Cli) -> None:
    words = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "a b", "q'uo", "$HOME", "*"]
    ran = cli.run("job", "submit", "--submission-id", "words", "--", *words)
    assert (ran.status, ran.out) == (0, "['a b', \"q'uo\", '$HOME', '*']\n"), ran.err
    ran = cli.run("job", "status", "words")
    assert (ran.status, ran.out.splitlines()[0]) == (0, "Status for job 'words': SUCCEEDED")
    assert "words" in cli.run("job", "list").out
    assert cli.run("job", "logs", "words").out.startswith("['a b'")
    ran = cli.run("job", "delete", "words")
    assert (ran.status, ran.out) == (0, "Job 'words' deleted successfully\n")
    assert cli.run("job", "status", "words").status == 3


@pytest.mark.parametrize(
    ("words", "status", "out"),
    [
        (["echo one two | tr a-z A-Z; echo $((1 + 1))"], 0, "ONE TWO\n2\n"),  # one string is for a shell
        (["echo said && exit 3"], 1, "said\n"),
        (["python", "-m", "folder", "a b"], 0, "module ['a b']\n"),
        (["./run.sh", "it's"], 0, "script it's\n"),
        (["true"], 0, ""),
    ],
)
def test_entrypoints_of_all_kinds(
    cli: Cli, tmp_path: pathlib.Path, words: list[str], status: int, out: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("import sys; print('module', sys.argv[1:])")
    (tmp_path / "run.sh").write_text('#!/bin/sh\necho script "$@"\n')
    (tmp_path / "run.sh").chmod(0o755)
    ran = cli.run("job", "submit", "--working-dir", str(tmp_path), "--", *words)
    assert (ran.status, ran.out) == (status, out), ran.err


def test_the_outcome_is_the_exit_status(cli: Cli) -> None:
    ran = cli.run("job", "submit", "--submission-id", "fails", "--", "sh", "-c", "echo said; exit 3")
    assert (ran.status, ran.out) == (1, "said\n")
    assert "Job 'fails' failed" in ran.err
    ran = cli.run("job", "status", "fails", "--json")
    assert (ran.status, ran.json()["driver_exit_code"]) == (0, 3)


def test_a_job_that_nobody_waits_for(cli: Cli) -> None:
    name = cli.run("job", "submit", "--no-wait", "--", "sleep", "600").out.strip()
    assert name.startswith("raysubmit_")
    assert eventually(lambda: "RUNNING" in cli.run("job", "status", name).out)
    ran = cli.run("job", "delete", name)
    assert ran.status == 1
    assert f"clusterctl job stop {name}" in ran.err
    assert cli.run("job", "stop", name).status == 0
    assert "STOPPED" in cli.run("job", "status", name).out
    assert cli.run("job", "delete", name).status == 0


def test_what_a_job_is_given(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "here.txt").write_text("travelled")
    (tmp_path / ".env").write_text("SECRET=1")
    environment = tmp_path / "env.yaml"
    environment.write_text(json.dumps({"env_vars": {"GIVEN": "1"}, "working_dir": "/nonexistent"}))
    ran = cli.run(
        *("job", "submit", "--working-dir", str(tmp_path), "--runtime-env", str(environment)),
        *("--metadata-json", '{"team": "a"}', "--submission-id", "given", "--entrypoint-num-cpus", "0.5"),
        *("--", "sh", "-c", "cat here.txt; echo $GIVEN; ls -A | grep -c env"),
    )
    assert (ran.status, ran.out) == (0, "travelled1\n1\n"), ran.err
    assert "left out as likely secrets: .env" in ran.err
    assert cli.run("job", "status", "given", "--json").json()["metadata"] == {"team": "a"}
    ran = cli.run("job", "submit", "--runtime-env", str(environment), "--", "true")
    assert (ran.status, "/nonexistent" in ran.err) == (2, True)
    ran = cli.run("job", "submit", "--metadata-json", "[1]", "--", "true")
    assert (ran.status, "--metadata-json takes a JSON object" in ran.err) == (2, True)


def test_where_the_job_api_is(
    cli: Cli, head: tuple[Cli, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, control = head[1]["api_url"], head[1]["control_address"]
    for address in (url, url.replace("127.0.0.1", "localhost"), control):
        assert cli.run("job", "list", "--address", address).status == 0
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    assert cli.run("job", "list", "--address", url).status == 5, "the environment wins, as in Ray"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", url)
    assert cli.run("job", "list").status == 0
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "127.0.0.1:1")
    ran = cli.run("job", "list")
    assert (ran.status, "127.0.0.1:1" in ran.err) == (3, True)


def test_headers_of_the_user_do_not_replace_the_secret(
    cli: Cli, head: tuple[Cli, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    authorization = {"Authorization": "Basic abc"}
    assert cli.run("job", "list", "--headers", json.dumps(authorization)).status == 0
    monkeypatch.setenv("RAY_JOB_HEADERS", json.dumps(authorization))
    assert cli.run("job", "list").status == 0
    monkeypatch.setenv("RAY_JOB_HEADERS", "{bad")
    ran = cli.run("job", "list")
    assert (ran.status, "RAY_JOB_HEADERS" in ran.err) == (2, True)
    assert isinstance(JobSubmissionClient(head[1]["api_url"], headers=authorization).list_jobs(), list)


def test_the_hook_hears_of_a_job_before_it_is_submitted(
    cli: Cli, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooked.py").write_text(
        "import json\ndef hook(**given): print('HOOK', json.dumps(given, sort_keys=True), flush=True)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("RAY_JOB_SUBMIT_HOOK", "hooked.hook")
    asks = ("--entrypoint-num-cpus", "0.5", "--entrypoint-resources", '{"x": 1}', "--no-wait")
    ran = cli.run("job", "submit", "--submission-id", "hooked", *asks, "--", "echo", "a b")
    assert ran.status == 0, ran.err
    told, name = ran.out.splitlines()
    assert name == "hooked"
    assert json.loads(told.removeprefix("HOOK ")) == {
        "address": None,
        "entrypoint": ["echo", "a b"],
        "entrypoint_label_selector": None,
        "entrypoint_memory": None,
        "entrypoint_num_cpus": 0.5,
        "entrypoint_num_gpus": None,
        "entrypoint_resources": {"x": 1},
        "job_id": "hooked",
        "metadata_json": None,
        "no_wait": True,
        "runtime_env": None,
        "runtime_env_json": None,
        "submission_id": "hooked",
        "working_dir": None,
    }
    assert cli.run("job", "stop", "hooked").status == 0
    monkeypatch.setenv("RAY_JOB_SUBMIT_HOOK", "hooked.nothing")
    ran = cli.run("job", "submit", "--", "true")
    assert (ran.status, "RAY_JOB_SUBMIT_HOOK=hooked.nothing" in ran.err) == (2, True)
