"""Signals around a command."""

from __future__ import annotations

import errno
import pathlib
import signal
import subprocess
import sys

import pytest
import typer

from autoscaler.provider import Auth, ShellLost, ShellTimedOut
from clusterctl.commands import guard
from clusterctl.commands.guard import guarded
from clusterctl.sync.transfer import SyncError
from runtime._system import settings

PROGRAM = """
import os, signal, sys
from clusterctl.commands import guard
from clusterctl.commands.guard import guarded
number = int(sys.argv[1])
if sys.argv[2] == "ignored":
    signal.signal(number, signal.SIG_IGN)

def up():
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        os.kill(os.getpid(), number)  # again, while the command cleans up
        print("cleaned up")
        raise
    print("went on")

guarded(up)()
"""


def run(number: int, how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number)), how], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_once(number: int) -> None:
    ran = run(number, "heard")
    assert ran.stdout == "cleaned up\n"
    assert "`clusterctl up` was interrupted" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_was_ignored_stays_ignored(number: int) -> None:
    ran = run(number, "ignored")
    assert (ran.returncode, ran.stdout) == (0, "went on\n")


def test_what_the_operating_system_refuses_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    def up() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full/secret")

    with pytest.raises(typer.Exit) as end:
        guarded(up)()
    assert end.value.exit_code == 1
    shown = capsys.readouterr().err
    assert "error: /full/secret: No space left on device" in shown
    assert "Make room on that disk" in shown


def test_of_full_disks_it_is_said_which(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTERCTL_HOME", "/full/home")
    monkeypatch.setattr(guard, "_is_full", lambda folder: folder.startswith("/full"))

    def up() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(typer.Exit):
        guarded(up)()
    assert "error: /full/home: No space left on device" in capsys.readouterr().err


def test_a_full_disk_is_a_message_where_the_working_folder_is_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    def up() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(typer.Exit):
        guarded(up)()
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (Auth("no such key"), 6, "credentials are refused: no such key"),
        (ShellTimedOut("m-1 does not answer"), 7, "m-1 does not answer"),
        (ShellLost("m-1 hung up"), 1, "m-1 hung up"),
        (SyncError("/a cannot be read"), 1, "/a cannot be read"),
    ],
)
def test_what_lower_layers_say_is_a_message(
    error: Exception, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def logs() -> None:
        raise error

    with pytest.raises(typer.Exit) as end:
        guarded(logs)()
    assert end.value.exit_code == status
    assert words in capsys.readouterr().err


def test_a_wrong_environment_variable_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    def submit() -> None:
        settings.IGNORE_GITIGNORE.get({"RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "perhaps"})

    with pytest.raises(typer.Exit) as end:
        guarded(submit)()
    assert end.value.exit_code == 2
    shown = capsys.readouterr().err
    assert "RAY_RUNTIME_ENV_IGNORE_GITIGNORE is 'perhaps'; expected: 1 or 0" in shown
    assert "Change RAY_RUNTIME_ENV_IGNORE_GITIGNORE, or unset it." in shown


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    def logs() -> None:
        raise KeyError("oops")

    with pytest.raises(KeyError):
        guarded(logs)()
