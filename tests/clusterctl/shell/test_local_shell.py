"""The local shell, with real processes."""

from __future__ import annotations

import os
import pathlib

import pytest

from autoscaler.provider import ShellTimedOut
from clusterctl.shell.local import LocalShell
from tests.polling import eventually
from tests.processes import is_alive


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> LocalShell:
    home = tmp_path / "home"
    home.mkdir()
    return LocalShell(str(home), {"PATH": "/usr/bin:/bin", "MARK": "m"})


def test_run(shell: LocalShell, tmp_path: pathlib.Path) -> None:
    lines: list[str] = []
    result = shell.run(
        "echo $MARK $MORE; pwd; echo oops >&2; exit 3", env={"MORE": "n"}, on_output=lines.append
    )
    assert result.exit_status == 3
    assert lines == ["m n", str(tmp_path / "home"), "oops"]
    assert result.output.splitlines() == lines


def test_the_environment_is_the_machines_alone(shell: LocalShell) -> None:
    os.environ["ONLY_HERE"] = "1"
    try:
        assert shell.run('echo "[$ONLY_HERE]"').output == "[]\n"
    finally:
        del os.environ["ONLY_HERE"]


def test_a_line_without_an_end_is_shown(shell: LocalShell) -> None:
    lines: list[str] = []
    shell.run("printf 'a\\nb'", on_output=lines.append)
    assert lines == ["a", "b"]


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(
    shell: LocalShell, tmp_path: pathlib.Path
) -> None:
    result = shell.run("sleep 300 & echo $!; exit 0", timeout_s=60.0)
    pid = int(result.output)
    os.kill(pid, 9)
    assert result.exit_status == 0


def test_a_command_that_closes_its_output_is_waited_for(shell: LocalShell) -> None:
    assert shell.run("exec >&- 2>&-; sleep 0.1; exit 4").exit_status == 4


def test_at_the_deadline_the_whole_group_is_killed(shell: LocalShell, tmp_path: pathlib.Path) -> None:
    noted = tmp_path / "home" / "pid"
    noted.touch()
    for limit_s in (0.2, 2, 20):  # a shell may take longer to start than the time it has
        with pytest.raises(ShellTimedOut, match=rf"within {limit_s} s"):
            shell.run("sleep 300 & echo $! > pid; sleep 300", timeout_s=limit_s)
        if noted.read_text():
            break
    pid = int(noted.read_text())
    assert eventually(lambda: not is_alive(pid))


def test_only_the_end_of_a_long_output_is_kept(shell: LocalShell) -> None:
    result = shell.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert len(result.output) == 2**20
    assert result.output.endswith("xend\n")


def test_copies_keep_modes_and_make_parents(shell: LocalShell, tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    shell.put(str(secret), "~/a/b/secret")
    there = tmp_path / "home" / "a" / "b" / "secret"
    assert there.stat().st_mode & 0o777 == 0o600
    shell.put(str(tmp_path / "home" / "a"), "copy")
    shell.get("copy", str(tmp_path / "back"))
    assert (tmp_path / "back" / "b" / "secret").read_text() == "s"


def test_a_file_that_is_there_already_is_left_alone(shell: LocalShell, tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("s")
    shell.put(str(shared), str(shared))
    shell.put(str(tmp_path), str(tmp_path))
    assert shared.read_text() == "s"


def test_ports_need_no_forwarding(shell: LocalShell) -> None:
    with shell.forward(1234) as port:
        assert port == 1234
