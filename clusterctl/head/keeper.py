"""`python -m clusterctl.head.keeper`: restarts the head of this machine when it has crashed. The head starts it, and
another when it ends (`keeping.py`). After a reboot of the machine the boot entry starts it (`boot_entry.py`); the
record that the head left then means a crash.

A head that was meant to end leaves no record (`record.forget`); then the keeper ends, too. While it restarts the head,
the record names the keeper: whoever looks finds a node that lives, and `start --stop` ends the restart.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from clusterctl import processes
from clusterctl.errors import CliError
from clusterctl.head.daemons import spawn_head
from clusterctl.head.keeping import LOCK
from clusterctl.head.session import turn
from clusterctl.startup import lease_guard
from clusterctl.startup.config import HeadConfig
from clusterctl.startup.record import boot_id, read, remember, running

log = logging.getLogger("clusterctl.head.keeper")

_FIRST_S = 0.5
_LONGEST_S = 60.0
_STABLE_S = 600.0
"""A head that lived this long starts the backoff anew."""


def main() -> int:
    """Watches the head until it ends as it was meant to."""
    parser = argparse.ArgumentParser(prog="python -m clusterctl.head.keeper", description=__doc__)
    parser.add_argument("--config", required=True, help="JSON of a HeadConfig")
    parser.add_argument("--secret-file", required=True, help="the cluster's secret")
    parser.add_argument("--session-dir", required=True, help="the head's folder")
    options = parser.parse_args()
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # a head that is being started ends with this
    with open(f"{options.session_dir}/{LOCK}", "w", encoding="ascii") as lock:
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # after a reboot a head and the boot entry may both have started a keeper
        return keep(options.config, options.secret_file, options.session_dir)


def keep(
    config: str,
    secret_file: str,
    session: str,
    sleep: Callable[[float], None] = time.sleep,
    shut_down: Callable[[], None] = lease_guard.shut_down,
) -> int:
    """Restarts the head whenever it has crashed, with a growing delay. A head that does not come back for as long as
    the cluster may be idle is not waited for: the machine shuts down, if that ends its costs."""
    delay_s = 0.0
    while True:
        up_s = time.monotonic()
        if not _await_end(session):
            log.info("the head has ended as it was meant to")
            return 0
        died_s = time.monotonic()
        if died_s - up_s > _STABLE_S:
            delay_s = 0.0
        while True:
            log.error("the head has crashed; restarting it in %.1f s", delay_s)
            if not _stand_in(session):
                break
            sleep(delay_s)
            delay_s = min(_LONGEST_S, max(_FIRST_S, 2 * delay_s))
            try:
                with turn(session, is_restart=True) as held:
                    spawn_head(session, config, secret_file, held)
                break
            except (CliError, OSError, ValueError) as error:
                log.error("the head does not come back: %s", error)
            if _is_over(config, time.monotonic() - died_s):
                log.error("nobody can use the cluster: the machine shuts down, as autostop wants it")
                shut_down()


def _await_end(session: str) -> bool:
    """Waits for the end of the daemon that the record names; whether it has crashed."""
    record = running(session)
    if record is not None:
        try:
            descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return read(session) is not None
        import select

        select.select([descriptor], [], [])  # a head works until it ends
        os.close(descriptor)
    return read(session) is not None


def _stand_in(session: str) -> bool:
    """Names this process in the record; False: `start` has started another head meanwhile. Ends the process if the
    head was told to end."""
    with turn(session):  # else the record could be written again while `start --stop` removes it
        runs = running(session)
        if runs is not None and runs.pid != os.getpid():
            return False
        record = read(session)
        if record is None:
            sys.exit(0)
        pid = os.getpid()
        ticks = processes.start_ticks(pid) or -1
        remember(session, msgspec.structs.replace(record, pid=pid, start_ticks=ticks, boot_id=boot_id()))
    return True


def _is_over(config: str, down_s: float) -> bool:
    """Whether autostop would have ended a cluster that was idle for this time."""
    known = HeadConfig.read(config)
    policy = known.policy()
    return known.shutdown_ends and policy is not None and down_s >= policy.idle_minutes * 60


if __name__ == "__main__":
    sys.exit(main())
