"""Where the daemons of this machine keep their files, and whose turn it is to start some. Imports little."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from clusterctl import settings
from clusterctl.errors import NotFound, TimedOut, UsageProblem
from clusterctl.startup.record import running
from runtime._node import registry
from runtime._system import files

READY_TIMEOUT_S = 45.0
STOP_S = 15.0
_TURN_S = READY_TIMEOUT_S + 2 * STOP_S
_TURN_POLL_S = 0.05


@contextlib.contextmanager
def turn(session: str, is_restart: bool = False) -> Iterator[int]:
    """While it lasts nobody else starts anything in the session folder, unless something runs there already. Its value
    is a descriptor; who inherits it keeps the turn: a head does so for its life, also one whose `start` was killed.

    Args:
        is_restart: what runs there is the caller, which restarts the head.
    """
    descriptor = os.open(f"{session}/start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _TURN_S
    try:
        while is_restart or running(session) is None:
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


def session_dir() -> str:
    """The machine's session folder; on a machine that was not made by a provider, a new one."""
    named = settings.SESSION_DIR.get()
    if named:
        for folder in (named, f"{named}/logs"):
            registry.make_private_dir(folder)
        return named
    from runtime._session.directories import new_session_dir

    for link, session in hand_started():
        if running(session) is None:
            files.remove(link)
    session = new_session_dir()
    os.makedirs(_hand_started_folder(), 0o700, exist_ok=True)
    files.replace(f"{_hand_started_folder()}/{os.path.basename(session)}", session.encode())
    return session


def sockets_dir() -> str:
    """Where the node's Unix sockets are; "": in its session folder. The node agent makes the folder."""
    return settings.SOCKETS_DIR.get() if settings.SESSION_DIR.get() else ""


def hand_started() -> list[tuple[str, str]]:
    """Of each session that was started here by hand: the file that says so, and its folder."""
    folder = _hand_started_folder()
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            if name.startswith("."):
                continue  # the draft of a start that was killed
            with open(f"{folder}/{name}", encoding="utf-8") as file:
                found.append((f"{folder}/{name}", file.read()))
    return found


def forget_hand_started(link: str) -> None:
    """Takes back that a session was started by hand, and removes the folders that are empty then."""
    files.remove(link)
    folder = os.path.dirname(link)
    for empty in (folder, os.path.dirname(folder)):
        with contextlib.suppress(OSError):  # others' files are in it
            os.rmdir(empty)


def secret_of(session: str, given: str | None) -> str:
    """The path of the cluster's secret: what is given, else a new one in the session's folder."""
    if given is None:
        path = f"{session}/secret"
        files.replace(path, os.urandom(32).hex().encode())
        return path
    path = os.path.abspath(os.path.expanduser(given))
    try:
        if os.stat(path).st_mode & 0o077:
            raise UsageProblem(f"others may read the secret file {path}", f"Run: chmod 600 {path}")
    except FileNotFoundError:
        raise NotFound(f"there is no secret file {path}", "Copy it from the head.") from None
    return path


def _hand_started_folder() -> str:
    return f"{registry.base_dir()}/started"
