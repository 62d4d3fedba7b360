"""Which cluster a command means that names none: every terminal has its own."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clusterctl.home import Home, new_record
from clusterctl.spec.load import load_file
from tests.clusterctl.cli import Cli, Ran


class Terminal:
    """A shell that leads a session of its own, in which commands run one after the other."""

    def __init__(self, cli: Cli) -> None:
        self._out, self._err = cli.folder / f"out-{id(self)}", cli.folder / f"err-{id(self)}"
        self._shell = subprocess.Popen(
            ["sh"],
            env=cli.env(),
            cwd=cli.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **variables: str) -> Ran:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        given = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        command = " ".join([*given, shlex.join([sys.executable, "-m", "clusterctl", *arguments])])
        self._shell.stdin.write(f"{command} </dev/null >{self._out} 2>{self._err}; echo $?\n")
        self._shell.stdin.flush()
        status = int(self._shell.stdout.readline())
        return Ran(status, self._out.read_text(), self._err.read_text())

    def current(self, **variables: str) -> list[str]:
        ran = self.run("cluster", "list", "--json", **variables)
        assert ran.status == 0, ran.err
        listed = ran.json()
        return [item["cluster_name"] for item in listed if item["is_current"]]

    def close(self) -> None:
        self._shell.communicate()


@pytest.fixture
def cli(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.delenv("CLUSTERCTL_CLUSTER", raising=False)
    cli = Cli(tmp_path)
    yield cli
    for name in Home.find(cli.env()).names():
        cli.run("down", "-y", name)


@pytest.fixture
def terminals(cli: Cli) -> Iterator[tuple[Terminal, Terminal]]:
    one, other = Terminal(cli), Terminal(cli)
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def known(cli: Cli) -> Home:
    """Two clusters are known, of which nothing runs."""
    home = Home.find(cli.env())
    for name in ("a", "b"):
        file = cli.spec(name)
        home.write(new_record(home, load_file(file), file))
    return home


def test_up_in_one_terminal_leaves_the_other_its_cluster(
    cli: Cli, terminals: tuple[Terminal, Terminal]
) -> None:
    one, other = terminals
    assert one.run("up", "-y", cli.spec("a")).status == 0
    assert other.run("up", "-y", cli.spec("b")).status == 0
    assert (one.current(), other.current()) == (["a"], ["b"])
    ran = other.run("up", "-y", "a")
    assert (ran.status, "nothing to do" in ran.out) == (0, True), "a known cluster is named without its file"
    assert (one.current(), other.current()) == (["a"], ["a"])
    assert other.run("cluster", "use", "b").status == 0
    assert (one.current(), other.current()) == (["a"], ["b"])
    for command in (("exec", "a", "echo", "$CLUSTERCTL_MACHINE"), ("exec", "--", "echo", "a")):
        ran = other.run(*command)
        assert ran.status == 0, ran.err
    ran = other.run("exec", "a")
    assert (ran.status, "Missing argument" in ran.err) == (2, True), "no program is called like a cluster"
    script = cli.script("import sys; print(sys.argv[1:])")
    assert other.run("submit", "a", script, "--x").out == "['--x']\n"
    assert len(other.run("job", "list", "a", "--json").json()) == 1
    assert other.run("job", "list", "--json").json() == []
    for command in (("logs", "a"), ("logs", "a", "head"), ("logs", "-n", "5", "a"), ("get-head-ip", "a")):
        assert other.run(*command).status == 0, command


def test_down_ends_no_cluster_that_only_the_terminal_names(
    known: Home, terminals: tuple[Terminal, Terminal]
) -> None:
    one, other = terminals
    assert one.run("down", "-y").status == 3, "two are known, and this terminal has none"
    assert one.run("cluster", "use", "a").status == 0
    for command in ("down", "stop"):
        ran = one.run(command, "-y")
        assert (ran.status, f"clusterctl {command} -y a" in ran.err) == (2, True), ran.err
    assert known.names() == ["a", "b"]
    ran = one.run("down")
    assert (ran.status, "nothing was ended of cluster 'a'" in ran.err) == (1, True), (
        "it asks, and nobody answers"
    )
    assert one.run("down", "-y", CLUSTERCTL_CLUSTER="b").status == 0
    assert known.names() == ["a"]
    assert other.run("down", "-y").status == 0, "there is no other"
    assert known.names() == []
    ran = one.run("status")
    assert (ran.status, "no cluster 'a', the current one of this terminal" in ran.err) == (3, True)


def test_a_terminal_whose_cluster_ended_elsewhere_means_no_other(
    known: Home, terminals: tuple[Terminal, Terminal]
) -> None:
    one, other = terminals
    assert one.run("cluster", "use", "a").status == 0
    assert other.run("down", "-y", "a").status == 0
    assert one.run("down", "-y").status == 3
    assert known.names() == ["b"]


def test_the_environment_comes_before_the_terminal(known: Home, terminals: tuple[Terminal, Terminal]) -> None:
    terminal, _ = terminals
    ran = terminal.run("cluster", "use", "a", CLUSTERCTL_CLUSTER="b")
    assert (ran.status, "comes before it" in ran.err) == (0, True)
    assert (terminal.current(), terminal.current(CLUSTERCTL_CLUSTER="b")) == (["a"], ["b"])
    assert terminal.run("cluster", "use", "c").status == 3


def test_records_of_closed_terminals_go(cli: Cli, known: Home) -> None:
    ran = cli.run("cluster", "use", "a")  # in a session of its own
    assert (ran.status, "CLUSTERCTL_CLUSTER=a" in ran.err) == (2, True)
    for name in ("a", "b"):
        terminal = Terminal(cli)
        assert terminal.run("cluster", "use", name).status == 0
        terminal.close()
    (record,) = os.listdir(known.root / "terminals")
    assert (known.root / "terminals" / record).read_text() == "b"
