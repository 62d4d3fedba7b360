"""`python -P -m clusterctl.head.join ORDER`: makes a machine a node, as `clusterctl start --address` does.

It is what `up` runs on every worker, so it costs little: it imports no command line, and becomes the node agent instead
of starting another Python. A shell starts it in the background, and waits for the line that it says (`join_command`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from runtime._system import interpreter

with interpreter.startup():
    import msgspec

    from clusterctl.errors import CliError
    from clusterctl.startup.notices import Source
    from clusterctl.startup.order import JoinOrder
    from clusterctl.startup.record import running
    from runtime._node.agent_process import run
    from runtime._node.options import NodeOptions, zygote_delay_s
    from runtime._session.coming_up import log_file

    from .session import session_dir, turn
    from .worker import node_options, not_joined, remembered


def main() -> NoReturn:
    """Prints the daemon's record when the node has joined, and runs until it should end."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # what our starter left open
    try:
        with contextlib.ExitStack() as held:
            session = session_dir()
            held.enter_context(turn(session))
            found = running(session)
            if found is not None:
                print(msgspec.json.encode(found).decode(), flush=True)
                os._exit(0)
            order = msgspec.json.decode(sys.argv[1], type=JoinOrder)
            options = node_options(order, session)
            options.zygote_delay_s = zygote_delay_s()
            starter = _Starter(options, held, order.notices)
            _become_daemon(log_file(session, "agent"))
            status = run(options, starter.tell)
    except CliError as error:
        sys.exit(f"error: {error}")
    os._exit(status)  # nothing is left to be finished


class _Starter:
    """Whoever waits for what becomes of this process: for a line on the standard output that it has now, or on its
    standard error output for why there will be none.

    Args:
        turn: ends when this is told.
        notices: watched from then on.
    """

    def __init__(self, options: NodeOptions, turn: contextlib.ExitStack, notices: Source | None) -> None:
        self._options = options
        self._turn = turn
        self._notices = notices
        self._descriptors = [os.dup(1), os.dup(2)]

    def tell(self, words: Mapping[str, Any]) -> None:
        """What the node agent says first; of what it says later, nothing.

        Raises:
            OSError: the node cannot be written down, or this process leads a process group.
        """
        if not self._descriptors:
            return
        to, line = self._descriptors[1], f"error: {not_joined(self._options, words.get('error'))}\n".encode()
        if "error" not in words:
            os.setsid()  # not before: who ended our starter and what it started, ended this
            record = remembered(self._options, os.getpid(), words)
            to, line = self._descriptors[0], msgspec.json.encode(record) + b"\n"
            if self._notices is not None:
                from . import notices  # few machines need it

                node_id = bytes.fromhex(str(words["node_id"]))
                notices.watch(self._notices, self._options.control, self._options.secret_file, node_id)
        self._turn.close()  # before the starter goes on: whatever it does next finds it free
        with contextlib.suppress(BrokenPipeError):
            os.write(to, line)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def _become_daemon(log_path: str) -> None:
    """Keeps nothing of the starter: what a shell's child in the background has from it."""
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # else ignored by all that this starts
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, number)
    os.close(null)
    os.close(log)


if __name__ == "__main__":
    main()
