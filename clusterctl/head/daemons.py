"""`clusterctl start`: starts the daemons of this machine, detached, and remembers them in
`<session>/daemon.json`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clusterctl import processes
from clusterctl.errors import CliError, NotFound, TimedOut, UsageProblem

from .record import DaemonRecord, forget, remember, running

READY_TIMEOUT_S = 45.0
_STOP_S = 15.0
_TURN_S = READY_TIMEOUT_S + 2 * _STOP_S
_TURN_POLL_S = 0.05


def start_head(
    config_file: str | None,
    secret_file: str | None,
    host: str,
    port: int,
    api_port: int,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
) -> DaemonRecord:
    """Starts a head here; does nothing when this machine's runs already.

    Raises:
        CliError: it did not start; the message has its own words.
    """
    session = _session_dir()
    with _turn(session) as turn:
        found = running(session)
        if found is not None:
            return found
        secret_file = _secret(session, secret_file)
        if config_file is None:
            from .config import HeadConfig

            own = HeadConfig(
                cluster_id=f"by-hand-{secrets.token_hex(4)}",
                cluster_name="by-hand",
                host=host,
                control_port=port,
                api_port=api_port,
                resources=dict(resources),
                labels=dict(labels),
            )
            config_file = str(session / "head.json")
            _write_private(Path(config_file), own.to_json())
        return _spawn_head(session, os.path.expanduser(config_file), secret_file, turn)


def start_worker(
    address: str,
    secret_file: str,
    host: str,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    node_type: str,
    instance_id: str,
    forked: bool = False,
) -> DaemonRecord:
    """Starts a node agent here that joins a cluster; does nothing when it runs already.

    Args:
        forked: it is a fork of this process, which must have one thread and little in memory.

    Raises:
        CliError: it did not start or could not join; the message has its own words.
    """
    from runtime._session.daemons import DaemonError, start_node
    from runtime._session.forking_node import fork_node

    session = _session_dir()
    with _turn(session):
        found = running(session)
        if found is not None:
            return found
        secret_file = _secret(session, secret_file)
        amounts = dict(resources)
        store = amounts.pop("object_store_memory", None)
        options: dict[str, Any] = {
            "resources": amounts,
            "labels": labels,
            "object_store_memory": None if store is None else int(store),
            "instance_id": instance_id,
            "node_type": node_type,
        }
        try:
            if forked:
                pid, ready = fork_node(address, str(session), secret_file, host, **options)
            else:
                daemon = start_node(address, str(session), secret_file, host, detached=True, **options)
                pid, ready = daemon.pid, daemon.ready
        except DaemonError as error:
            raise CliError(f"the node could not join {address}: {error}") from error
        record = DaemonRecord(
            pid=pid,
            start_ticks=processes.start_ticks(pid) or -1,
            role="worker",
            control_address=address,
            node_id=str(ready["node_id"]),
            session_dir=str(session),
            secret_file=secret_file,
        )
        remember(session, record)
        return record


def stop_here() -> int:
    """Ends what `start` started by hand on this machine, and removes its files; on a cluster's machine its node, whose
    files stay. Returns how many daemons ran."""
    named = os.environ.get("CLUSTERCTL_SESSION_DIR")
    if named:
        session = Path(named)
        if not session.is_dir():
            return 0
        with _turn(session):
            record = running(session)
            forget(session)  # first, so that it is clear that this end was meant
        if record is not None:
            _end(record)
        return int(record is not None)
    ended = 0
    for link in sorted(_hand_started().glob("*")):
        session = Path(link.read_text(encoding="utf-8"))
        record = running(session)
        if record is not None:
            ended += 1
            _end(record)
        shutil.rmtree(session, ignore_errors=True)
        link.unlink(missing_ok=True)
    for folder in (_hand_started(), _hand_started().parent):
        with contextlib.suppress(OSError):  # others' files are in it, or it was never made
            folder.rmdir()
    return ended


# -- inside


@contextlib.contextmanager
def _turn(session: Path) -> Iterator[int]:
    """While it lasts nobody else starts anything in the session folder, unless something runs there already. Its value
    is a descriptor; who inherits it keeps the turn: a head does so for its life, also one whose `start` was killed."""
    descriptor = os.open(session / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _TURN_S
    try:
        while running(session) is None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimedOut(
                        f"another `start` is under way in {session} since {_TURN_S:g} s", "Run it again."
                    ) from None
                time.sleep(_TURN_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _spawn_head(session: Path, config_file: str, secret_file: str, turn: int) -> DaemonRecord:
    log_path = session / "logs" / "head.log"
    read_end, write_end = os.pipe()
    arguments = ["--config", config_file, "--secret-file", secret_file, "--session-dir", str(session)]
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
        if not select.select([ready], [], [], READY_TIMEOUT_S)[0]:
            process.kill()
            process.wait()
            raise TimedOut(f"the head did not come up within {READY_TIMEOUT_S:g} s; its log is {log_path}")
        words = ready.readline()
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


def _session_dir() -> Path:
    """The machine's session folder; on a machine that was not made by a provider, a new one."""
    named = os.environ.get("CLUSTERCTL_SESSION_DIR")
    if named:
        session = Path(named)
        if not session.parent.exists():  # a machine that was restarted has an empty /tmp
            from runtime._node.registry import make_private_dir

            make_private_dir(session.parent)
        for folder in (session, session / "sockets", session / "logs"):
            folder.mkdir(mode=0o700, exist_ok=True)
        return session
    from runtime._session.directories import new_session_dir

    for link in sorted(_hand_started().glob("*")):
        if running(Path(link.read_text(encoding="utf-8"))) is None:
            link.unlink(missing_ok=True)
    session = Path(new_session_dir())
    _hand_started().mkdir(mode=0o700, exist_ok=True)
    (_hand_started() / session.name).write_text(str(session), encoding="utf-8")
    return session


def _hand_started() -> Path:
    base = os.environ.get("CLUSTERCTL_TMPDIR") or tempfile.gettempdir()
    return Path(base) / f"clusterctl-{os.getuid()}" / "started"


def _secret(session: Path, given: str | None) -> str:
    if given is None:
        path = session / "secret"
        _write_private(path, secrets.token_hex(32).encode())
        return str(path)
    path = Path(given).expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise UsageProblem(f"others may read the secret file {path}", f"Run: chmod 600 {path}")
    except FileNotFoundError:
        raise NotFound(f"there is no secret file {path}", "Copy it from the head.") from None
    return str(path.absolute())


def _write_private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def _end(record: DaemonRecord) -> None:
    """SIGTERM, and SIGKILL when that does not help."""
    deadline = time.monotonic() + _STOP_S
    number = signal.SIGTERM
    while processes.is_alive(record.pid, record.start_ticks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(0.05)


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes()[-3000:].decode(errors="replace").strip()
    return "(no log)"
