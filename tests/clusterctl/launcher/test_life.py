"""What a machine proves of its node's daemon, asked of real processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from autoscaler.provider import Machine, MachineState, ShellTimedOut
from clusterctl import processes
from clusterctl.launcher import life
from clusterctl.launcher.life import Life, Proof
from clusterctl.shell.local import LocalShell
from clusterctl.spec.load import load_text
from clusterctl.startup.record import DaemonRecord, boot_id, remember

SPEC = "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\navailable_node_types: {h: {}, w: {}}\n"
MACHINE = Machine("m", MachineState.RUNNING, "h", {})


@dataclass
class Platform:
    environment: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None

    def shell(self, machine: Machine) -> Any:
        if self.error is not None:
            raise self.error
        return LocalShell("/", {"PATH": os.environ["PATH"], **self.environment})


@pytest.fixture
def session(tmp_path: pathlib.Path) -> str:
    return str(tmp_path)


@pytest.fixture
def daemon(session: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the head's."""
    with subprocess.Popen([sys.executable, "-c", "input()", "clusterctl.head", session], stdin=-1) as process:
        yield process
        process.kill()


def proof(session: str, text: str = SPEC) -> Proof:
    platform = Platform({"CLUSTERCTL_SESSION_DIR": session} if session else {})
    return life.of(cast(Any, platform), load_text(text), MACHINE)


def recorded(session: str, pid: int, ticks: int) -> None:
    remember(session, DaemonRecord(pid=pid, start_ticks=ticks, role="head", control_address="h:1"))


def test_nothing_was_started(session: str) -> None:
    assert proof(session).life is Life.ENDED
    assert proof(f"{session}/gone").life is Life.ENDED, "its folder was removed with all that is in it"


def test_the_process_of_the_record_runs(session: str, daemon: subprocess.Popen[bytes]) -> None:
    ticks = processes.start_ticks(daemon.pid)
    assert ticks is not None
    recorded(session, daemon.pid, ticks)
    assert proof(session) == Proof(Life.RUNS, f"process {daemon.pid}")


def test_a_number_that_another_process_got_is_no_proof_of_life(session: str) -> None:
    ticks = processes.start_ticks(os.getpid())
    assert ticks is not None
    recorded(session, os.getpid(), ticks - 1)
    assert proof(session).life is Life.ENDED


@pytest.mark.parametrize(("is_of_this_boot", "expected"), [(True, Life.RUNS), (False, Life.ENDED)])
def test_a_record_of_before_a_reboot_is_no_proof_of_life(
    session: str, is_of_this_boot: bool, expected: Life
) -> None:
    pid = os.getpid()
    ticks, boot = processes.start_ticks(pid), boot_id() if is_of_this_boot else "another"
    assert ticks is not None
    known = DaemonRecord(pid=pid, start_ticks=ticks, role="head", control_address="h:1", boot_id=boot)
    remember(session, known)
    assert proof(session).life is expected


@pytest.mark.parametrize("module", ["clusterctl.head", "clusterctl.head.keeper", "clusterctl.head.join"])
def test_what_runs_the_node_or_restarts_it_is_found(session: str, module: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", module, session], stdin=-1) as process:
        assert proof(session) == Proof(Life.RUNS, f"process {process.pid}")
        process.kill()


def test_a_daemon_is_found_without_its_record(session: str, daemon: subprocess.Popen[bytes]) -> None:
    assert proof(session) == Proof(Life.RUNS, f"process {daemon.pid}")
    assert proof(f"{session}0").life is Life.ENDED, "it is another session's"


def test_a_machine_that_cannot_tell_proves_nothing(session: str) -> None:
    assert proof("").life is Life.UNKNOWN
    error = ShellTimedOut("no route")
    found = life.of(cast(Any, Platform(error=error)), load_text(SPEC), MACHINE)
    assert found == Proof(Life.UNKNOWN, "no route")


def test_of_many_machines_those_that_may_run_are_named(session: str) -> None:
    platform = cast(Any, Platform(error=ShellTimedOut("no route")))
    stopped = Machine("s", MachineState.STOPPED, "w", {})
    assert life.may_run(platform, load_text(SPEC), [MACHINE, stopped]) == ["m"]
    assert life.may_run(platform, load_text(SPEC), [stopped]) == []


@pytest.mark.parametrize(
    ("printed", "status", "expected"),
    [
        ("daemon\nlooked", 0, Life.ENDED),
        ("process 7\nlooked", 0, Life.RUNS),
        ("daemon", 0, Life.UNKNOWN),
        ("looked", 1, Life.UNKNOWN),
        ('daemon {"pid": 7, "start_ticks": 5}\nstat 7 (x) Z 1 ' + "0 " * 17 + "5\nlooked", 0, Life.ENDED),
    ],
)
def test_answers(printed: str, status: int, expected: Life) -> None:
    assert life.read(printed, status).life is expected
