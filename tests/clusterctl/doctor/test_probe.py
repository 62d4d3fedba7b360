"""What is asked of a machine, run on a real one, and how its answer is read."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys
import time

import clusterctl
from clusterctl.doctor.facts import Entry
from clusterctl.doctor.probe import command, read
from clusterctl.processes import start_ticks
from clusterctl.shell.local import LocalShell


def shell(folder: pathlib.Path, **more: str) -> LocalShell:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "CLUSTERCTL_SESSION_DIR": str(folder)}
    return LocalShell(str(folder), {**env, "CLUSTERCTL_PYTHON": sys.executable, **more})


def test_a_machine_says_how_it_is(tmp_path: pathlib.Path) -> None:
    (tmp_path / "daemon.json").write_text(
        json.dumps({"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())})
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "agent.log").write_text("one\nlast words\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        seen = read(shell(tmp_path).run(command(f"127.0.0.1:{port}", False)).output, time.time())
    assert seen.entry is Entry.OPEN
    assert abs(seen.skew_s or 99.0) < 60.0
    assert seen.disk_bytes
    assert seen.file_system == os.popen(f"stat -f -c %T {tmp_path}").read().strip()
    assert (seen.python, seen.version) == (f"3.{sys.version_info[1]}", clusterctl.__version__)
    assert (seen.started, seen.is_alive) == (True, True)
    assert not seen.daemons  # this process is none of them
    assert port in seen.listening
    assert seen.reaches_head is True
    assert seen.last_words == ("one", "last words")


def test_a_process_that_has_the_number_of_an_ended_one_is_not_taken_for_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "daemon.json").write_text(json.dumps({"pid": os.getpid(), "start_ticks": 1}))
    seen = read(shell(tmp_path).run(command("", True)).output, time.time())
    assert (seen.started, seen.is_alive, seen.reaches_head) == (True, False, None)


def test_a_bare_machine_says_what_is_missing(tmp_path: pathlib.Path) -> None:
    bare = shell(tmp_path, CLUSTERCTL_PYTHON="/nonexistent/python")
    seen = read(bare.run(command("127.0.0.1:1", False)).output, time.time())
    assert (seen.python, seen.version, seen.started) == ("", "", False)
    assert "not found" in seen.runtime_error
    assert seen.reaches_head is False


def test_a_runtime_that_cannot_be_imported_is_told(tmp_path: pathlib.Path) -> None:
    seen = read(
        "python 3.11\npython Traceback\npython ModuleNotFoundError: No module named 'clusterctl'\n", 0.0
    )
    assert (seen.python, seen.version) == ("3.11", "")
    assert seen.runtime_error == "ModuleNotFoundError: No module named 'clusterctl'"
