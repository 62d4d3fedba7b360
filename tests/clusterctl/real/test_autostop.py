"""Clusters that end by themselves when nobody uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, machines_root
from tests.polling import eventually

LATE = "autostop: {idle_minutes: 60}\n"
SOON = "autostop: {idle_minutes: 0.03}\n"


@pytest.fixture
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("cli"))
    yield cli
    for record in (cli.folder / "home").glob("clusters/*/cluster.json"):
        cli.run("down", "-y", record.parent.name)


def listed(cli: Cli) -> list[str]:
    """Of all machines: whether it is the head, and its state."""
    ran = cli.run("down", "--dry-run")
    return sorted(line.partition("(")[2].rstrip(")") for line in ran.out.splitlines() if "(" in line)


def state(cli: Cli) -> dict[str, Any]:
    return dict(cli.run("autostop", "--json").json())


def test_an_idle_cluster_stops_and_comes_back_with_its_history(cli: Cli) -> None:
    spec = cli.spec("tired", least=1, extra=LATE)
    job = cli.script("import time\nprint('begun', flush=True)\ntime.sleep(600)\n", folder="long")
    assert cli.run("up", "-y", spec).status == 0
    assert cli.run("submit", "--no-wait", "--submission-id", "long", job).status == 0
    assert eventually(lambda: "begun" in cli.run("job", "logs", "long").out)
    found = state(cli)
    assert found["idle_minutes"] == 60
    assert "jobs: long" in found["uses"]
    assert len(listed(cli)) == 2
    assert cli.run("job", "stop", "long").status == 0
    cli.run("up", "-y", cli.spec("tired", least=1, extra=SOON))  # it may stop before this has ended
    assert eventually(lambda: listed(cli) == ["head, STOPPED"])
    ran = cli.run("status")
    assert ran.status == 5
    assert "has stopped by itself" in ran.err
    assert cli.run("cluster", "list", "--json").json()[0]["state"] == "STOPPED"
    ran = cli.run("up", "-y", cli.spec("tired", least=1, extra=LATE))
    assert ran.status == 0, ran.err
    assert [job["submission_id"] for job in cli.run("job", "list", "--json").json()] == ["long"]


def test_a_cluster_is_told_to_end_when_it_is_idle_and_ends_for_good(cli: Cli) -> None:
    assert cli.run("up", "-y", cli.spec("told", least=1)).status == 0
    assert state(cli)["idle_minutes"] is None
    watching = cli.start("exec", "echo here; sleep 600")
    assert watching.stdout is not None
    assert watching.stdout.readline() == "here\n"
    assert cli.run("autostop", "--idle-minutes", "0.03", "--down").status == 0
    assert [use.partition(":")[0] for use in state(cli)["uses"]] == ["log-ins"]
    assert "does not stop by itself" in cli.run("autostop", "--cancel").out
    assert cli.run("autostop", "--idle-minutes", "0.03", "--down").status == 0
    cli.interrupt(watching)
    assert eventually(lambda: not [*machines_root().glob("*")])
    ran = cli.run("status")
    assert ran.status == 3
    assert "has ended by itself" in ran.err
    assert cli.run("cluster", "list", "--json").json() == []
    assert not machines_root().exists()


def test_a_command_in_tmux_takes_the_cluster_with_it(cli: Cli) -> None:
    file = cli.folder / "done"
    assert cli.run("up", "-y", cli.spec("last", least=1)).status == 0
    ran = cli.run("exec", "--tmux", "--down", f"echo done > {file}")
    assert ran.status == 0, ran.err
    assert eventually(lambda: not [*machines_root().glob("*")])
    assert file.read_text() == "done\n"
    assert cli.run("status").status == 3


def test_a_command_that_is_interrupted_takes_the_cluster_with_it(cli: Cli) -> None:
    """Here by its terminal, which is closed: there is nobody to tell any more."""
    assert cli.run("up", "-y", cli.spec("cut")).status == 0
    assert cli.close_terminal("here", "exec", "--down", "echo here; sleep 600") == 130
    assert not machines_root().exists()
