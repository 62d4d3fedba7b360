"""`clusterctl start`: starts the daemons of this machine, detached, and remembers them in
`<session>/daemon.json`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import msgspec

from clusterctl import processes, settings
from clusterctl.errors import CliError, TimedOut
from clusterctl.startup import boot_entry
from clusterctl.startup.record import NO_BOOT_ENTRY, DaemonRecord, forget, read, remember, running
from runtime._system import files
from runtime._system import settings as engine_settings

from .session import (
    READY_TIMEOUT_S,
    STOP_S,
    forget_hand_started,
    hand_started,
    secret_of,
    session_dir,
    turn,
)

_TAIL_BYTES = 3000


def start_head(
    config_file: str | None,
    secret_file: str | None,
    host: str,
    port: int,
    api_port: int,
    client_port: int,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
) -> DaemonRecord:
    """Starts a head here; does nothing when this machine's runs already.

    Raises:
        CliError: it did not start; the message has its own words.
    """
    session = session_dir()
    with turn(session) as held:
        found = running(session)
        if found is not None:
            return found
        secret_file = secret_of(session, secret_file)
        if config_file is None:
            from clusterctl.startup.config import HeadConfig

            own = HeadConfig(
                cluster_id=f"by-hand-{os.urandom(4).hex()}",
                cluster_name="by-hand",
                host=host,
                control_port=port,
                api_port=api_port,
                client_host=host,
                client_port=client_port,
                resources=dict(resources),
                labels=dict(labels),
            )
            config_file = f"{session}/head.json"
            files.replace(config_file, own.to_json())
        config_file = os.path.expanduser(config_file)
        record = spawn_head(session, config_file, secret_file, held)
        return _protect(session, config_file, secret_file, record)


def stop_here() -> int:
    """Ends what `start` started by hand on this machine, and removes its files; on a cluster's machine its node, whose
    files stay. Returns how many daemons ran."""
    session = settings.SESSION_DIR.get()
    if session:
        if not os.path.isdir(session):
            return 0
        ended = 0
        while True:
            with turn(session):
                record = running(session)
                forget(session)  # first, so that it is clear that this end was meant, and nothing restarts
            if record is None:
                return ended
            _end(record)
            ended = 1  # of a restart there was a keeper, and then perhaps its head
    ended = 0
    for link, session in hand_started():
        record = running(session)
        if record is not None:
            ended += 1
            _end(record)
        files.remove_tree(session)
        forget_hand_started(link)
    return ended


def head_here() -> DaemonRecord | None:
    """The head that runs on this machine, if there is one."""
    named = settings.SESSION_DIR.get()
    sessions = [named] if named else [session for _, session in hand_started()]
    found = [record for record in map(running, sessions) if record is not None and record.role == "head"]
    return found[0] if found else None


def spill_to(folder: str) -> None:
    """Daemons that this process starts put objects there when memory is short."""
    os.environ[engine_settings.SPILLING_DIRECTORY.name] = os.path.abspath(os.path.expanduser(folder))


def wait_for_end(record: DaemonRecord, tell: Callable[[], None]) -> None:
    """Waits until a daemon ends. SIGTERM and SIGINT end it, as `stop_here` does.

    Args:
        tell: called when these signals do so.

    Raises:
        CliError: it has ended by itself.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ask_for_end)
    try:
        tell()
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(record.pid)
            if processes.is_alive(record.pid, record.start_ticks):
                select.select([process], [], [])
    except _EndAsked:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        forget(record.session_dir)
        _end(record)
        for link, session in hand_started():
            if session == record.session_dir:
                files.remove_tree(session)
                forget_hand_started(link)
        return
    raise CliError(f"the {record.role} has ended; its logs are in {record.session_dir}/logs")


def spawn_head(session: str, config_file: str, secret_file: str, turn: int) -> DaemonRecord:
    """Starts the head's process, and waits until it is up.

    Raises:
        CliError: it did not come up.
    """
    log_path = f"{session}/logs/head.log"
    read_end, write_end = os.pipe()
    arguments = ["--config", config_file, "--secret-file", secret_file, "--session-dir", session]
    with os.fdopen(read_end, "rb") as ready, open(log_path, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "clusterctl.head", *arguments, "--ready-fd", str(write_end)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[write_end, turn],
            start_new_session=True,
            cwd="/",
        )
        os.close(write_end)
        try:
            if not select.select([ready], [], [], READY_TIMEOUT_S)[0]:
                raise TimedOut(
                    f"the head did not come up within {READY_TIMEOUT_S:g} s; its log is {log_path}"
                )
            words = ready.readline()
        except BaseException:
            process.kill()
            process.wait()
            raise
    if not words:
        process.kill()
        process.wait()
        raise CliError(f"the head ended before it was up; its log ends with\n{_tail(log_path)}")
    said = json.loads(words)
    if "error" in said:
        process.wait()
        raise CliError(f"the head did not come up: {said['error']}")
    record = running(session)
    if record is None:
        raise CliError(f"the head ended as soon as it was up; its log ends with\n{_tail(log_path)}")
    return record


# -- inside


class _EndAsked(BaseException):
    """A signal asked for the end."""


def _ask_for_end(number: int, frame: object) -> None:
    raise _EndAsked


def _protect(session: str, config_file: str, secret_file: str, record: DaemonRecord) -> DaemonRecord:
    """Has the head's keeper started after a reboot, where the head is to be restarted; returns the record that says
    so."""
    from clusterctl.startup.config import HeadConfig

    from .keeping import keeper_command, keeper_log

    config = HeadConfig.read(config_file)
    if not config.restarts:
        return record
    kind = ""
    if not config.in_container:
        keeper = keeper_command(session, config_file, secret_file)
        folder, python = os.path.dirname(config_file), settings.BASE_PYTHON.get()
        kind = boot_entry.install(config.cluster_id, folder, keeper, keeper_log(session), python)
    found = read(session)  # since it came up its keeper may have restarted the head, or somebody ended it
    record = msgspec.structs.replace(found or record, boot_entry=kind or NO_BOOT_ENTRY)
    if found is not None:
        remember(session, record)
    return record


def _end(record: DaemonRecord) -> None:
    """SIGTERM, and SIGKILL when that does not help."""
    deadline = time.monotonic() + STOP_S
    number = signal.SIGTERM
    while processes.is_alive(record.pid, record.start_ticks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(0.05)


def _tail(path: str) -> str:
    with contextlib.suppress(OSError):
        return files.tail(path, _TAIL_BYTES)
    return "(no log)"
