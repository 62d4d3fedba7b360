"""Files on a cluster, through the command line: mounts, what the head made, and copies there and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusterctl.cli import LOCAL, Cli, alive
from tests.polling import eventually

EXTRA = """
file_mounts: {{"~/data": {data}}}
file_mounts_sync_continuously: true
cluster_synced_files: ["~/made-on-head", "~/never-made"]
head_setup_commands: ["echo by the head > ~/made-on-head"]
rsync_exclude: ["*.log"]
setup_commands: ["cat ~/data/value >> ~/ran", "test ! -t 0 && test ! -t 1"]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "value").write_text("1\n")
    (folder / "x.log").write_text("")
    return folder


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Cli]:
    """A cluster of a head and one worker."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    text = LOCAL.format(name="files", most=1, idle=5, least=1) + EXTRA.format(data=data)
    (cli.folder / "files.yaml").write_text(text)
    ran = cli.run("up", "-y", "files.yaml", timeout_s=170)
    assert ran.status == 0, ran.err
    yield cli
    cli.run("down", "-y", "files.yaml")


def everywhere(cli: Cli, command: str) -> list[str]:
    """What each node prints, the head first."""
    ran = cli.run("exec", "--all-nodes", command)
    assert ran.status == 0, ran.err
    lines = sorted(ran.out.splitlines())
    return [line.partition(" | ")[2] for line in sorted(lines, key=lambda line: not line.startswith("head"))]


def test_mounts_reach_every_node_and_what_the_head_made_too(cli: Cli) -> None:
    assert everywhere(
        cli, "cat ~/data/value ~/made-on-head | tr '\\n' ' '; ls ~/data | tr '\\n' ' '; echo"
    ) == [
        "1 by the head value ",
        "1 by the head value ",
    ]


def test_files_go_there_and_come_back(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    (source / "b.log").write_text("stays")
    ran = cli.run("rsync", "up", str(source), "~/there", "--all-nodes")
    assert ran.status == 0, ran.err
    assert everywhere(cli, "ls ~/there") == ["a", "a"]
    (source / "a").unlink()
    (source / "c").write_text("c")
    ran = cli.run("rsync_up", "files.yaml", str(source), "~/there")
    assert ran.status == 0, ran.err
    assert "1 sent" in ran.err
    assert everywhere(cli, "ls ~/there | tr '\\n' ' '; echo") == ["a c ", "a "]
    ran = cli.run("rsync-down", "files.yaml", "~/there", str(tmp_path / "back"))
    assert ran.status == 0, ran.err
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["a", "c"]


def test_what_changes_on_the_head_reaches_the_worker_by_itself(cli: Cli) -> None:
    assert cli.run("exec", "echo new > ~/data/sub; rm ~/data/none; true").status == 0
    assert eventually(lambda: everywhere(cli, "cat ~/data/sub 2>&1 || true") == ["new", "new"])


def test_changed_files_reach_running_nodes_whose_setup_commands_run_again(cli: Cli, data: Path) -> None:
    (data / "value").write_text("2\n")
    (data / "more").write_text("more")
    ran = cli.run("up", "-y", "files.yaml", timeout_s=170)
    assert ran.status == 0, ran.err
    assert everywhere(cli, "cat ~/data/value ~/ran ~/data/more | tr '\\n' ' '; echo") == [
        "2 1 2 more",
        "2 1 2 more",
    ]
    (data / "more").unlink()
    assert cli.run("up", "-y", "files.yaml").status == 0
    assert everywhere(cli, "ls ~/data | tr '\\n' ' '; echo") == ["sub value ", "sub value "]
    ran = cli.run("up", "-y", "files.yaml", timeout_s=170)
    assert "nothing to do" in ran.out


def test_a_worker_that_cannot_be_brought_up_to_date_is_named(cli: Cli, data: Path) -> None:
    (worker,) = [node for node in alive(cli.status()) if not node["is_head"]]
    name = worker["instance_id"]
    assert (
        cli.run(
            "exec", "--node", name, "rm -rf ~/data/value; mkdir ~/data/value; touch ~/data/value/own"
        ).status
        == 0
    )
    (data / "value").write_text("3\n")
    ran = cli.run("up", "-y", "files.yaml", timeout_s=170)
    assert (ran.status, name in ran.err, "value: Directory not empty" in ran.err) == (1, True, True)
    assert "FAILED: on the machine" in cli.run("logs", "--setup", name).out
    assert cli.run("exec", "--node", name, "rm -rf ~/data/value").status == 0
    assert cli.run("up", "-y", "files.yaml").status == 0
    assert everywhere(cli, "cat ~/data/value") == ["3", "3"]


def test_what_cannot_be_copied_is_named(cli: Cli, tmp_path: Path) -> None:
    ran = cli.run("rsync", "up", str(tmp_path / "missing"), "~/x")
    assert (ran.status, "there is no" in ran.err) == (1, True)
    ran = cli.run("rsync", "down", "~/missing", str(tmp_path / "x"))
    assert (ran.status, "missing: No such file" in ran.err) == (1, True)
    assert cli.run("rsync", "up", str(tmp_path)).status == 2
