"""Keeps the head's keeper: head and keeper look after each other, so that either may be killed alone."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import subprocess
import sys
from collections.abc import Sequence

from clusterctl.startup.record import read

log = logging.getLogger(__name__)

LOCK = "keeper.lock"
"""The file in the session folder that a keeper holds locked for its life."""
_LOOK_S = 5.0


def keeper_command(session: str, config_file: str, secret_file: str) -> list[str]:
    """What runs a keeper."""
    arguments = ["--config", config_file, "--secret-file", secret_file, "--session-dir", session]
    return [sys.executable, "-m", "clusterctl.head.keeper", *arguments]


def keeper_log(session: str) -> str:
    """The file for what keepers say."""
    return f"{session}/logs/keeper.log"


async def keep_keeper(session: str, command: Sequence[str]) -> None:
    """Starts a keeper, unless one runs or the head is told to end, and starts another when it ends; until
    cancelled, which leaves it alone."""
    keeper: subprocess.Popen[bytes] | None = None
    while True:
        is_starting = keeper is not None and keeper.poll() is None
        if not is_starting and read(session) is not None and not _is_kept(session):
            log.info("starting a keeper")
            keeper = _spawn(session, command)
        await asyncio.sleep(_LOOK_S)


def _is_kept(session: str) -> bool:
    with open(f"{session}/{LOCK}", "a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _spawn(session: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a session of its own: what kills the head's process group does not reach it."""
    with open(keeper_log(session), "ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )
