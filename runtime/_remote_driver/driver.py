"""`python -m runtime._remote_driver.driver`: the driver process of one program outside the cluster.

The server starts one for each program. It is an ordinary driver that does what the program asks. The main thread
handles messages in order; requests that wait run on threads of their own. The process ends when the program leaves or
stays away for the grace period, and with the server.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import select
import socket
import sys
import time

from runtime import exceptions
from runtime._process.core_worker import Core
from runtime._system import stacks

from . import frames, messages
from .messages import GRACE_S
from .outlet import Outlet
from .session import Session, pickled

log = logging.getLogger("runtime._remote_driver")
_READ_BYTES = 1 << 20
_END_S = 2.0


class Readable:
    """Waits for the server. Once there is a core, by its pump: then this thread also takes the workers' answers."""

    def __init__(self, relay: socket.socket) -> None:
        self._relay = relay
        self._core: Core | None = None
        self._has_news = False

    def pump(self, core: Core) -> None:
        """Waits by this core's pump from now on."""
        self._core = core
        core.pump.watch(self._relay, self._note)

    def _note(self, _events: int) -> None:
        self._has_news = True

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is something to read; False after `timeout_s`."""
        core = self._core
        if core is not None:
            try:
                came = core.pump.wait(lambda: self._has_news, timeout_s)
                self._has_news = False
                return came
            except exceptions.RaySystemError:
                self._core = None  # the node agent is gone, and the program knows
        return bool(select.select([self._relay], [], [], timeout_s)[0])


def serve(relay: socket.socket, agent_path: str) -> bool:
    """Works for one program until it leaves, stays away, or the server ends. Logs why, and tells the program of a
    failure, which is the only case of False."""
    outlet = Outlet(relay)
    readable = Readable(relay)
    session = Session(agent_path, outlet, readable.pump)
    failed = False
    try:
        try:
            why = _work(relay, outlet, readable, session)
        except Exception as error:
            log.exception("ending: an unexpected error")
            outlet.send(messages.Ended(pickled(_failure(error))))
            failed = True
        else:
            log.info("ending: %s", why)
        if failed or session.is_over:
            outlet.finish()
            _await_end(relay)
    finally:
        session.close()
    return not failed


def _work(relay: socket.socket, outlet: Outlet, readable: Readable, session: Session) -> str:
    """Handles what comes. Returns why nothing more will."""
    incoming = frames.RelayDecoder()
    away_since: float | None = time.monotonic()
    while not session.is_over:
        left = None if away_since is None else GRACE_S - (time.monotonic() - away_since)
        if left is not None and left <= 0:
            return f"the program stayed away for {GRACE_S:g} s"
        if not readable.wait(left):
            continue
        try:
            data = relay.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        except OSError as error:
            return f"the connection to the server broke: {error}"
        if not data:
            return "the server ended"
        for epoch, kind, payload in incoming.feed(data):
            if kind == frames.ATTACHED:
                away_since = None
                outlet.attached(epoch)
            elif kind == frames.DETACHED:
                if outlet.detached(epoch):
                    away_since = time.monotonic()
            else:
                for body in frames.decode(payload):
                    message = outlet.receive(epoch, body)
                    if message is not None:
                        session.handle(message)
    return "the program left"


def _failure(error: Exception) -> exceptions.RaySystemError:
    return exceptions.RaySystemError(
        f"The driver process on the head failed, and with it went what it owned: {type(error).__name__}: {error}. "
        "This is a bug; the head's log of remote drivers has its traceback. "
        "Call shutdown() and init() to start again."
    )


def _await_end(relay: socket.socket) -> None:
    """Waits until the server has read everything: what is unread here when this socket closes would reset it."""
    with contextlib.suppress(OSError):
        relay.shutdown(socket.SHUT_WR)
        while select.select([relay], [], [], _END_S)[0] and relay.recv(_READ_BYTES):
            pass


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket to the server")
    parser.add_argument("--agent", required=True, help="the Unix socket of the node agent")
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: driver process %(process)d: %(message)s",
    )
    stacks.register("driver")
    status = 1
    try:
        with socket.socket(fileno=options.fd) as relay:
            status = 0 if serve(relay, options.agent) else 1
    except Exception:
        log.exception("an unexpected error at the end")
    finally:
        os._exit(status)  # threads may wait for what will never come


if __name__ == "__main__":
    main()
