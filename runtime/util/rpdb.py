"""A debugger inside a task or actor: `set_trace()` waits for one connection and runs pdb over it.

The address is printed, so it appears in the driver's output. The socket listens on the loopback interface.
"""

from __future__ import annotations

import os
import pdb
import socket
import sys
from types import FrameType
from typing import Any

from runtime._system import settings


class RemotePdb(pdb.Pdb):
    """pdb over a socket.

    Args:
        host, port: where to listen; port 0 is any free one.
        wait_s: how long to wait for a connection; default: RAY_DEBUGGER_TIMEOUT_S.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, wait_s: float | None = None) -> None:
        self._listener = socket.create_server((host, port))
        self._listener.settimeout(settings.DEBUGGER_TIMEOUT_S.get() if wait_s is None else wait_s)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._streams: list[Any] = []

    def wait(self) -> bool:
        """Waits for a connection. Returns False if none is made in time."""
        host, port = self.address
        print(
            f"pdb waits at {host}:{port} (process {os.getpid()}): connect with `nc {host} {port}`", flush=True
        )
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            print(f"nobody connected to pdb at {host}:{port}: the program goes on", flush=True)
            return False
        finally:
            self._listener.close()
        connection.settimeout(None)
        with connection:  # two streams: a text stream forgets what it has read ahead when it writes
            self._streams = [connection.makefile("r"), connection.makefile("w")]
        super().__init__(stdin=self._streams[0], stdout=self._streams[1], nosigint=True)
        self.use_rawinput = False
        self.prompt = "(pdb) "
        return True

    def _leave(self) -> None:
        streams, self._streams = self._streams, []
        for stream in streams:
            try:
                stream.close()
            except OSError:
                pass  # the client has disconnected

    def do_continue(self, arg: str) -> bool | None:
        """Continues the program and closes the connection."""
        done = super().do_continue(arg)
        self._leave()
        return done

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool | None:
        """Continues the program without the debugger and closes the connection. Does not end the worker."""
        self.set_continue()
        self._leave()
        return True

    do_q = do_exit = do_EOF = do_quit


def set_trace(breakpoint_uuid: Any = None, frame: FrameType | None = None) -> None:
    """Stops here and waits up to RAY_DEBUGGER_TIMEOUT_S seconds for a debugger; then the program continues."""
    debugger = RemotePdb()
    if debugger.wait():
        debugger.set_trace(frame or sys._getframe().f_back)


def post_mortem() -> None:
    """Like `set_trace`, for the exception that is being handled.

    Raises:
        ValueError: no exception is being handled.
    """
    traceback = sys.exc_info()[2]
    if traceback is None:
        raise ValueError(
            "post_mortem() needs an exception that is being handled: call it in an except block."
        )
    debugger = RemotePdb()
    if debugger.wait():
        debugger.reset()
        debugger.interaction(None, traceback)
