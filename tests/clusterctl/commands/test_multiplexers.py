"""What runs in tmux or screen on a machine."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import pytest

from clusterctl.commands.multiplexers import NO_SUCH_PROGRAM, Multiplexer, begin, join
from clusterctl.shell.local import LocalShell
from tests.polling import eventually


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> Iterator[LocalShell]:
    folder = str(tmp_path)
    env = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "TMUX_TMPDIR": folder}
    env |= {"SCREENDIR": f"{folder}/screen", "TERM": "xterm"}
    yield LocalShell(folder, env)
    LocalShell(folder, env).run("tmux kill-server; screen -X quit")


@pytest.mark.parametrize("program", list(Multiplexer))
def test_a_command_runs_with_its_environment_and_outlives_the_shell(
    shell: LocalShell, tmp_path: pathlib.Path, program: Multiplexer
) -> None:
    if shutil.which(program.value) is None:
        pytest.skip(f"{program.value} is not installed")
    said = tmp_path / "said"
    text = begin(program, "work", f'echo "$GIVEN, it\'s" > {said}.new; mv {said}.new {said}')
    result = shell.run(text, env={"GIVEN": "given"})
    assert result.exit_status == 0, result.output
    assert eventually(said.exists)
    assert said.read_text() == "given, it's\n"
    assert not list(tmp_path.glob("tmp.*"))  # the script with the environment


def test_a_session_that_does_not_begin_leaves_nothing(shell: LocalShell, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tmux").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "tmux").chmod(0o755)
    text = begin(Multiplexer.TMUX, "work", "true")
    assert shell.run(text, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "GIVEN": "secret"}).exit_status == 1
    assert not list(tmp_path.glob("tmp.*"))


def test_what_a_command_wrote_in_tmux_can_still_be_seen(shell: LocalShell) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    assert shell.run(begin(Multiplexer.TMUX, "work", "echo the result")).exit_status == 0
    assert eventually(lambda: "the result" in shell.run("tmux capture-pane -p -S - -t work").output)
    assert shell.run("tmux has-session -t work").exit_status == 0


def test_a_machine_without_the_program_says_so(tmp_path: pathlib.Path) -> None:
    bare = LocalShell(str(tmp_path), {"PATH": "/nowhere"})
    for text in (join(Multiplexer.TMUX), begin(Multiplexer.SCREEN, "work", "true")):
        result = bare.run(text)
        assert result.exit_status == NO_SUCH_PROGRAM
        assert "is not installed on this machine" in result.output
