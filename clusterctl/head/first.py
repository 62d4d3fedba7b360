"""What the head does first, before its own heavy imports: take the API's port and start the control store,
which comes up meanwhile. Imports little."""

from __future__ import annotations

import errno
import os
import socket

from clusterctl.head.config import HeadConfig
from runtime._session.daemons import Daemon, start_control

_LOOPBACK = "127.0.0.1"


class HeadError(Exception):
    """The head cannot come up, or cannot go on."""


def listen(config: HeadConfig) -> socket.socket:
    """The API's listener, on the loopback of the machine: who is elsewhere comes through SSH.

    Raises:
        HeadError: its port is in use.
    """
    host, port = _LOOPBACK, config.api_port
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Else the body of an answer waits until its head is acknowledged, which takes 40 ms. What is accepted inherits it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise HeadError(
                f"port {port} of {host} is in use by another program: choose another for ports.api, "
                "or 0 for any free one"
            ) from error
        raise HeadError(f"the API cannot listen on {host}:{port}: {error.strerror}") from error
    listener.listen(128)
    listener.setblocking(False)
    return listener


def state_file(session_dir: str) -> str:
    """Where the control store keeps its state."""
    return os.path.join(session_dir, "control.sqlite")


def control_store(config: HeadConfig, secret_file: str, session_dir: str, port: int) -> Daemon:
    """Starts the control store on the head's state.

    Raises:
        DaemonError: it does not come up.
    """
    return start_control(
        session_dir,
        secret_file,
        host=config.host,
        port=port,
        state=state_file(session_dir),
        cluster_id=config.cluster_id,
    )


def first_control_store(config: HeadConfig, secret_file: str, session_dir: str) -> Daemon:
    """The control store of a new life of the head.

    Raises:
        DaemonError: it does not come up.
        StorageError: the state is damaged.
    """
    path = state_file(session_dir)
    if os.path.exists(path):
        from clusterctl.head.state import begin_new_life

        begin_new_life(path)
    return control_store(config, secret_file, session_dir, config.control_port)
