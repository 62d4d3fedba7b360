"""A node agent that is a fork of whoever joins a cluster, and its zygote, which is a fork of it.

The zygote is forked before the agent's own modules come, so that it is as lean as one that was started by itself. It
rests at first: a node that has just joined needs no worker yet, and joining is the cheaper for it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from runtime._lean import lean_imports
from runtime._node.options import NodeOptions
from runtime._node.zygote_spawn import SpawnedZygote, daemon_environment

from .coming_up import START_TIMEOUT_S, end, log_file, node_amounts, wait_ready

REST_S = 5.0
"""So long a zygote leaves its machine to what else starts there, unless it is asked for a worker."""
_LOOK_S = 0.01


def fork_node(
    control_address: str,
    session_dir: str,
    secret_file: str,
    host: str,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    object_store_memory: int | None = None,
    instance_id: str = "",
    node_type: str = "",
    timeout_s: float = START_TIMEOUT_S,
) -> tuple[int, dict[str, Any]]:
    """Forks a node agent of this process, which must have one thread and little in memory; it outlives the caller.

    Returns:
        Its process id, and what it said (see `start_node`).

    Raises:
        DaemonError: it did not come up.
    """
    log_path = log_file(session_dir, "agent")
    words, words_in = os.pipe()
    options = NodeOptions(
        control=control_address,
        session_dir=session_dir,
        secret_file=secret_file,
        host=host,
        resources=node_amounts(None, None, None, resources),
        labels=dict(labels),
        store_bytes=object_store_memory or 0,
        instance_id=instance_id,
        node_type=node_type,
        ready_fd=words_in,
    )
    pid = os.fork()
    if pid == 0:
        os.close(words)
        _become_agent(options, log_path)
    os.close(words_in)
    process = ForkedProcess(pid)
    try:
        return pid, wait_ready(process, words, log_path, timeout_s)
    except BaseException:
        end(process)
        raise


def _become_agent(options: NodeOptions, log_path: str) -> NoReturn:
    """Makes this process, which was forked for it, a node agent in a session of its own.

    Of the caller's descriptors only `options.ready_fd` stays open.
    """
    status = 1
    try:
        os.setsid()
        os.chdir("/")
        os.environ.update(daemon_environment())
        _redirect(log_path)
        _keep_open(options.ready_fd)
        zygote = _fork_zygote(options.session_dir)
        with lean_imports():
            from runtime._node.running import run  # not before: the zygote needs none of it
        status = run(options, zygote)
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        os._exit(status)


def _fork_zygote(session_dir: str) -> SpawnedZygote:
    """Forks a zygote of this process; it dies with it."""
    log_path = log_file(session_dir, "zygote")
    ours, theirs = socket.socketpair()
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_zygote(theirs, agent, log_path)
    theirs.close()
    ours.setblocking(False)
    return SpawnedZygote(ForkedProcess(pid), ours, log_path, rests=True)


def _become_zygote(connection: socket.socket, agent: int, log_path: str) -> NoReturn:
    try:
        _redirect(log_path)
        kept = connection.detach()
        _keep_open(kept)
        select.select([kept], [], [], REST_S)
        from runtime._worker import zygote as zygotes  # not before: it is what a start costs most for

        sys.argv = [zygotes.__file__]
        zygotes.serve(kept, agent)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # whatever happened: this is no agent


def _redirect(log_path: str) -> None:
    """Standard input from nowhere, output to a log."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, number)
    for source in (log, null):
        if source > 2:
            os.close(source)


def _keep_open(descriptor: int) -> None:
    """Closes every descriptor but this and the standard streams."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))


class ForkedProcess:
    """A child that was forked, with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Its exit status as `Popen` tells it; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("the forked process", timeout or 0.0)
            time.sleep(_LOOK_S)
        return status

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:  # its number is its own until it was waited for
            os.kill(self.pid, number)
